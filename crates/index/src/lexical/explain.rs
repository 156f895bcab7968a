//! What each term of a query gives one document, and which terms of a text tell most.

use schemars::JsonSchema;
use serde::Serialize;
use tantivy::{
    DocSet, Searcher, TERMINATED, Term, postings::Postings, query::Bm25Weight, schema::IndexRecordOption,
};

use super::{Lexical, LexicalQuery, side};
use crate::vectors::Kind;
use turnwise_core::{
    error::Result,
    ids::{DialogueId, TurnNo},
};
use turnwise_store::records::caught;

/// A term that more than one in so many documents has tells not much of any.
const COMMON: u64 = 4;

/// What a term gave a document.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TermScore {
    /// The term.
    pub term: String,
    /// How rare it is: ln(1 + (N − n + ½) / (n + ½)) for n of N documents.
    pub idf: f32,
    /// How often the document has it.
    pub frequency: u32,
    /// How long the document is, in terms, as BM25 rounds it.
    pub length: u32,
    /// How long documents are in the mean.
    pub mean_length: f32,
    /// What it gave.
    pub score: f32,
}

impl Lexical {
    /// What each term of a query gives an utterance or a dialogue, the most first.
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
        explained.unwrap_or_else(|| Err(side::damaged(&side.folder, &"the search index is damaged")))
    }

    fn explained(
        &self,
        kind: Kind,
        query: &LexicalQuery,
        dialogue: &DialogueId,
        turn: Option<TurnNo>,
    ) -> tantivy::Result<Vec<TermScore>> {
        let side = self.side(kind);
        let Ok(seen) = side.seen() else { return Ok(Vec::new()) };
        let searcher = &seen.searcher;
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

    /// A query of the terms of a text that tell most: those that it has most often and others seldom. What no other
    /// document has, such as a number or a name, tells nothing of others, and what every fourth has not much.
    pub fn telling(&self, text: &str, kind: Kind, most: usize) -> Result<LexicalQuery> {
        let side = self.side(kind);
        let searcher = &side.seen()?.searcher;
        let mut all: Vec<String> = self.analyzer.analyze(text).into_iter().map(|token| token.term).collect();
        all.sort_unstable();
        // How seldom others have it, and whether that is seldom enough.
        let known = |term: &Term| -> tantivy::Result<(u64, f32)> {
            Ok((searcher.doc_freq(term)?, idf(searcher, term)?))
        };
        let mut weighted: Vec<(f32, String)> = Vec::new();
        let mut common: Vec<(f32, String)> = Vec::new();
        for same in all.chunk_by(|a, b| a == b) {
            let term = Term::from_field_text(side.fields.text, &same[0]);
            let known = caught(|| known(&term).map_err(|e| side::failed(&side.folder, &e)));
            let known =
                known.unwrap_or_else(|| Err(side::damaged(&side.folder, &"the search index is damaged")));
            let (with, rare) = known?;
            let of = if with * COMMON <= documents(searcher) { &mut weighted } else { &mut common };
            if with > 1 {
                of.push((same.len() as f32 * rare, same[0].clone()));
            }
        }
        if weighted.is_empty() {
            // A text of nothing but what everybody says is like others that say it too.
            weighted = common;
        }
        weighted.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        weighted.truncate(most);
        let mut terms: Vec<String> = weighted.into_iter().map(|(_, term)| term).collect();
        terms.sort_unstable();
        Ok(LexicalQuery::sum_over(terms, self.utterances.fields.text))
    }
}

/// How many documents BM25 counts: deleted ones too, until they are merged away.
fn documents(searcher: &Searcher) -> u64 {
    searcher.segment_readers().iter().map(|segment| u64::from(segment.max_doc())).sum()
}

/// As Tantivy's BM25 has it.
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
