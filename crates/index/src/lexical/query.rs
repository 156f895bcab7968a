//! Keyword queries: plain words, the most informative terms of a text, or Tantivy's query language. Explains the
//! score contribution of each term.

use schemars::JsonSchema;
use serde::Serialize;
use tantivy::{
    DocSet, Searcher, TERMINATED, Term,
    postings::Postings,
    query::{Bm25Weight, BooleanQuery, BoostQuery, EmptyQuery, Occur, Query, QueryParser, TermQuery},
    schema::{Field, IndexRecordOption},
};

use super::{Lexical, side, top};
use crate::vectors::Kind;
use turnwise_core::error::caught;
use turnwise_core::{
    error::Result,
    ids::{DialogueId, TurnNo},
};

/// A query for both indexes of the [`Lexical`] that created it.
pub struct LexicalQuery {
    pub(super) query: Box<dyn Query>,
    /// The terms, if the query is a plain sum over terms.
    pub(super) sum: Option<Vec<Term>>,
    terms: Vec<String>,
    warnings: Vec<String>,
}

impl LexicalQuery {
    /// Returns the terms of the query, sorted.
    pub fn terms(&self) -> &[String] {
        &self.terms
    }

    /// Warnings about parts of an expression that could not be parsed and were ignored.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns true if the query cannot match anything.
    pub fn is_empty(&self) -> bool {
        self.sum.as_ref().is_some_and(Vec::is_empty)
    }

    pub(super) fn sum_over(terms: Vec<String>, text: Field) -> Self {
        let sum: Vec<Term> = terms.iter().map(|term| Term::from_field_text(text, term)).collect();
        LexicalQuery { query: any_of(&sum), sum: Some(sum), terms, warnings: Vec::new() }
    }

    /// Restricts the query's terms to one dialogue.
    pub(super) fn within(&self, dialogue: Term, text: Field) -> Self {
        let words = LexicalQuery::sum_over(self.terms.clone(), text);
        if words.is_empty() {
            return words;
        }
        // The dialogue is a condition and must not change the score.
        let dialogue: Box<dyn Query> = Box::new(TermQuery::new(dialogue, IndexRecordOption::Basic));
        let dialogue: Box<dyn Query> = Box::new(BoostQuery::new(dialogue, 0.0));
        let both = BooleanQuery::new(vec![(Occur::Must, dialogue), (Occur::Must, words.query)]);
        LexicalQuery { query: Box::new(both), sum: None, ..words }
    }
}

fn any_of(terms: &[Term]) -> Box<dyn Query> {
    let clause = |term: &Term| {
        let clause: Box<dyn Query> = Box::new(TermQuery::new(term.clone(), IndexRecordOption::WithFreqs));
        (Occur::Should, clause)
    };
    Box::new(BooleanQuery::new(terms.iter().map(clause).collect()))
}

impl Lexical {
    /// Creates a query from analyzed terms.
    pub fn of_terms(&self, terms: Vec<String>) -> LexicalQuery {
        LexicalQuery::sum_over(terms, self.utterances.fields.text)
    }

    /// Creates a query from a plain text; punctuation has no special meaning.
    pub fn words(&self, text: &str) -> LexicalQuery {
        LexicalQuery::sum_over(self.analyzer.terms(text), self.utterances.fields.text)
    }

    /// Parses a query in Tantivy's query language. Parts that cannot be parsed are ignored and listed in the
    /// warnings.
    pub fn syntax(&self, text: &str) -> LexicalQuery {
        let side = &self.utterances;
        let parser = QueryParser::for_index(&side.index, vec![side.fields.text]);
        // Unusual input can make the parser panic.
        let parsed = caught(|| parser.parse_query_lenient(text));
        let (query, errors) = parsed.unwrap_or_else(|| (Box::new(EmptyQuery), Vec::new()));
        let mut warnings: Vec<String> = errors.iter().map(ToString::to_string).collect();
        if query.is::<EmptyQuery>() && warnings.is_empty() {
            warnings.push("the query could not be parsed".to_owned());
        }
        warnings.dedup();
        let terms = top::terms_of(query.as_ref(), side.fields.text);
        LexicalQuery { query, sum: None, terms, warnings }
    }
}

/// A term is common if it is in more than 1/`COMMON` of the documents.
const COMMON: u64 = 4;

/// Contribution of one term to the BM25 score of a document.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TermScore {
    /// The term.
    pub term: String,
    /// Inverse document frequency: ln(1 + (N − n + ½) / (n + ½)) for n of N documents.
    pub idf: f32,
    /// Number of occurrences in the document.
    pub frequency: u32,
    /// Number of terms in the document, rounded as in Tantivy's field norms.
    pub length: u32,
    /// Mean number of terms per document.
    pub mean_length: f32,
    /// Contribution of the term to the BM25 score.
    pub score: f32,
}

impl Lexical {
    /// Returns the contribution of each query term to an utterance or a dialogue, largest first.
    pub fn explain(
        &self,
        kind: Kind,
        query: &LexicalQuery,
        dialogue: &DialogueId,
        turn: Option<TurnNo>,
    ) -> Result<Vec<TermScore>> {
        let side = self.side(kind);
        let explained = caught(|| {
            self.explained(kind, query, dialogue, turn).map_err(|e| side::failed(&side.folder, &e))
        });
        explained.unwrap_or_else(|| Err(side::damaged(&side.folder, &"the lexical index is damaged")))
    }

    fn explained(
        &self,
        kind: Kind,
        query: &LexicalQuery,
        dialogue: &DialogueId,
        turn: Option<TurnNo>,
    ) -> tantivy::Result<Vec<TermScore>> {
        let side = self.side(kind);
        let Ok(state) = side.state() else { return Ok(Vec::new()) };
        let searcher = &state.searcher;
        let name = Term::from_field_text(side.fields.dialogue, dialogue.as_str());
        let mut scores = Vec::new();
        for segment in searcher.segment_readers() {
            let names = segment.inverted_index(side.fields.dialogue)?;
            let Some(mut documents) = names.read_postings(&name, IndexRecordOption::Basic)? else { continue };
            let turns = segment.fast_fields().u64("turn")?;
            let is_it = |doc| {
                let number = turns.first(doc).unwrap_or_default();
                !segment.is_deleted(doc) && turn.is_none_or(|turn| u64::from(turn.0) == number)
            };
            let mut doc = documents.doc();
            while doc != TERMINATED && !is_it(doc) {
                doc = documents.advance();
            }
            if doc == TERMINATED {
                continue;
            }
            let texts = segment.inverted_index(side.fields.text)?;
            let norms = segment.get_fieldnorms_reader(side.fields.text)?;
            for name in query.terms() {
                let term = Term::from_field_text(side.fields.text, name);
                let Some(mut postings) = texts.read_postings(&term, IndexRecordOption::WithFreqs)? else {
                    continue;
                };
                let at = if postings.doc() < doc { postings.seek(doc) } else { postings.doc() };
                if at != doc {
                    continue;
                }
                let weight = Bm25Weight::for_terms(searcher, std::slice::from_ref(&term))?;
                scores.push(TermScore {
                    term: name.clone(),
                    idf: idf(searcher, &term)?,
                    frequency: postings.term_freq(),
                    length: norms.fieldnorm(doc),
                    mean_length: mean_length(searcher, &term)?,
                    score: weight.score(norms.fieldnorm_id(doc), postings.term_freq()),
                });
            }
            break;
        }
        scores.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.term.cmp(&b.term)));
        Ok(scores)
    }

    /// Returns a query of the most informative terms of a text: frequent in the text and rare in other
    /// documents. A term that occurs in no other document is left out, because it matches nothing. Terms in
    /// more than a quarter of the documents are used only if there are no others.
    pub fn informative_terms(&self, text: &str, kind: Kind, most: usize) -> Result<LexicalQuery> {
        let side = self.side(kind);
        let searcher = &side.state()?.searcher;
        let mut all: Vec<String> = self.analyzer.analyze(text).into_iter().map(|token| token.term).collect();
        all.sort_unstable();
        // Document frequency and IDF.
        let known = |term: &Term| -> tantivy::Result<(u64, f32)> {
            Ok((searcher.doc_freq(term)?, idf(searcher, term)?))
        };
        let mut weighted: Vec<(f32, String)> = Vec::new();
        let mut common: Vec<(f32, String)> = Vec::new();
        for same in all.chunk_by(|a, b| a == b) {
            let term = Term::from_field_text(side.fields.text, &same[0]);
            let known = caught(|| known(&term).map_err(|e| side::failed(&side.folder, &e)));
            let known =
                known.unwrap_or_else(|| Err(side::damaged(&side.folder, &"the lexical index is damaged")));
            let (with, rare) = known?;
            let of = if with * COMMON <= documents(searcher) { &mut weighted } else { &mut common };
            if with > 1 {
                of.push((same.len() as f32 * rare, same[0].clone()));
            }
        }
        if weighted.is_empty() {
            // The text contains only common terms: use those.
            weighted = common;
        }
        weighted.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        weighted.truncate(most);
        let mut terms: Vec<String> = weighted.into_iter().map(|(_, term)| term).collect();
        terms.sort_unstable();
        Ok(LexicalQuery::sum_over(terms, self.utterances.fields.text))
    }
}

/// Number of documents for BM25, including deleted documents in segments that were not merged yet.
fn documents(searcher: &Searcher) -> u64 {
    searcher.segment_readers().iter().map(|segment| u64::from(segment.max_doc())).sum()
}

/// Inverse document frequency of a term, with the formula of Tantivy's BM25.
fn idf(searcher: &Searcher, term: &Term) -> tantivy::Result<f32> {
    let (all, with) = (documents(searcher) as f32, searcher.doc_freq(term)? as f32);
    Ok((1.0 + (all - with + 0.5) / (with + 0.5)).ln())
}

fn mean_length(searcher: &Searcher, term: &Term) -> tantivy::Result<f32> {
    let mut tokens = 0;
    for segment in searcher.segment_readers() {
        tokens += segment.inverted_index(term.field())?.total_num_tokens();
    }
    Ok(tokens as f32 / documents(searcher).max(1) as f32)
}
