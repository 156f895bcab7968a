//! Keyword queries: plain words, the most informative terms of a text, or Tantivy's query language. Also explains
//! scores by term.

use schemars::JsonSchema;
use serde::Serialize;
use tantivy::{
    DocSet, Searcher, TERMINATED, Term,
    postings::Postings,
    query::{Bm25Weight, BooleanQuery, BoostQuery, EmptyQuery, Occur, Query, QueryParser, TermQuery},
    schema::{Field, IndexRecordOption},
};

use super::{
    Lexical,
    side::{DAMAGED, Fields},
    sum::Sum,
    top,
};
use crate::vectors::Kind;
use turnwise_core::{
    error::{Result, caught},
    ids::{DialogueId, TurnNo},
};

/// Keyword query for the [`Lexical`] index that created it. One query can search utterances and dialogues.
pub struct LexicalQuery {
    pub(super) query: Box<dyn Query>,
    /// The search terms, if the score of a document is the sum of its term scores. `None` for other queries, such as
    /// expressions.
    pub(super) sum: Option<Sum>,
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

    /// Returns true if the query has no terms and is not an expression.
    pub fn is_empty(&self) -> bool {
        self.sum.as_ref().is_some_and(|sum| sum.terms.is_empty())
    }

    pub(super) fn sum_over(terms: Vec<String>, text: Field) -> Self {
        let own: Vec<Term> = terms.iter().map(|term| Term::from_field_text(text, term)).collect();
        let query = any_of(&own);
        let sum = Some(Sum { terms: own, normalizes_length: true });
        LexicalQuery { query, sum, terms, warnings: Vec::new() }
    }

    /// Returns the query for the same words in titles. `None` if this query is an expression.
    pub(super) fn in_titles(&self, title: Field) -> Option<Self> {
        let mut query = LexicalQuery::sum_over(self.terms.clone(), title);
        self.sum.as_ref()?;
        query.sum.iter_mut().for_each(|sum| sum.normalizes_length = false);
        Some(query)
    }

    /// Restricts the query to one dialogue: the new query matches the documents of this dialogue that contain any of
    /// the terms.
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

/// A term is common if it is in more than a quarter (1/`COMMON`) of the documents.
const COMMON: u64 = 4;

/// Score of one term in a document, and the numbers that BM25 computes it from.
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
    /// Creates a query from analyzed terms.
    pub fn of_terms(&self, terms: Vec<String>) -> LexicalQuery {
        LexicalQuery::sum_over(terms, self.fields().text)
    }

    /// Creates a query from a plain text; punctuation has no special meaning. Function words such as `the` are left out.
    pub fn words(&self, text: &str) -> LexicalQuery {
        self.of_terms(self.analyzer.query_terms(text))
    }

    /// Parses a query in Tantivy's query language. Parts that cannot be parsed are ignored and listed in the warnings.
    pub fn syntax(&self, text: &str) -> LexicalQuery {
        let text_field = self.fields().text;
        let parser = QueryParser::for_index(&self.side(Kind::Utterances).index, vec![text_field]);
        // Unusual input can make the parser panic.
        let parsed = caught(|| parser.parse_query_lenient(text));
        let (query, errors) = parsed.unwrap_or_else(|| (Box::new(EmptyQuery), Vec::new()));
        let mut warnings: Vec<String> = errors.iter().map(ToString::to_string).collect();
        if query.is::<EmptyQuery>() && warnings.is_empty() {
            warnings.push("the query could not be parsed".to_owned());
        }
        warnings.dedup();
        let terms = top::terms_of(query.as_ref(), text_field);
        LexicalQuery { query, sum: None, terms, warnings }
    }

    /// Returns the BM25 scores of the query's terms in an utterance or a dialogue, highest first. Terms that do not
    /// occur are omitted.
    pub fn explain(
        &self,
        kind: Kind,
        query: &LexicalQuery,
        dialogue: &DialogueId,
        turn: Option<TurnNo>,
    ) -> Result<Vec<TermScore>> {
        let side = self.side(kind);
        side.guarded(DAMAGED, || self.explained(kind, query, dialogue, turn).map_err(|e| side.failed(&e)))
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
        let Fields { dialogue: dialogue_field, text: text_field, .. } = side.fields;
        let name = Term::from_field_text(dialogue_field, dialogue.as_str());
        let mut scores = Vec::new();
        for segment in searcher.segment_readers() {
            let names = segment.inverted_index(dialogue_field)?;
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
            let texts = segment.inverted_index(text_field)?;
            let norms = segment.get_fieldnorms_reader(text_field)?;
            for name in query.terms() {
                let term = Term::from_field_text(text_field, name);
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

    /// Returns a query of the `most` most informative terms of a text: frequent in the text, rare in the index. Terms
    /// in fewer than two documents are omitted, and function words if the text has other words. Terms in more than a quarter of the documents are used only if the
    /// text has no rarer term.
    pub fn informative_terms(&self, text: &str, kind: Kind, most: usize) -> Result<LexicalQuery> {
        let side = self.side(kind);
        let searcher = &side.state()?.searcher;
        let mut all: Vec<String> =
            self.analyzer.analyze_query(text).into_iter().map(|token| token.term).collect();
        all.sort_unstable();
        let statistics = |term: &Term| -> tantivy::Result<(u64, f32)> {
            Ok((searcher.doc_freq(term)?, idf(searcher, term)?))
        };
        let mut weighted: Vec<(f32, String)> = Vec::new();
        let mut common: Vec<(f32, String)> = Vec::new();
        for same in all.chunk_by(|a, b| a == b) {
            let term = Term::from_field_text(side.fields.text, &same[0]);
            let (frequency, idf) =
                side.guarded(DAMAGED, || statistics(&term).map_err(|e| side.failed(&e)))?;
            let is_rare = frequency * COMMON <= documents(searcher);
            if frequency > 1 {
                let terms = if is_rare { &mut weighted } else { &mut common };
                terms.push((same.len() as f32 * idf, same[0].clone()));
            }
        }
        if weighted.is_empty() {
            weighted = common;
        }
        weighted.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        weighted.truncate(most);
        let mut terms: Vec<String> = weighted.into_iter().map(|(_, term)| term).collect();
        terms.sort_unstable();
        Ok(self.of_terms(terms))
    }
}

/// Returns the number of documents, including deleted ones that are not removed by a merge yet.
pub(super) fn documents(searcher: &Searcher) -> u64 {
    searcher.segment_readers().iter().map(|segment| u64::from(segment.max_doc())).sum()
}

/// Returns the inverse document frequency of a term, with the formula of Tantivy's BM25.
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
