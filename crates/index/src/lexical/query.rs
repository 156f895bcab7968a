//! Keyword queries: plain words, or Tantivy's query language if requested.

use tantivy::{
    Term,
    query::{BooleanQuery, BoostQuery, EmptyQuery, Occur, Query, QueryParser, TermQuery},
    schema::{Field, IndexRecordOption},
};

use super::{Lexical, top};
use turnwise_core::error::caught;

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
