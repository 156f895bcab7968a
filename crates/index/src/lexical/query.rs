//! What is looked for: words, or Tantivy's query language where that was asked for.

use tantivy::{
    Term,
    query::{BooleanQuery, BoostQuery, EmptyQuery, Occur, Query, QueryParser, TermQuery},
    schema::{Field, IndexRecordOption},
};

use super::{Lexical, top};
use turnwise_store::records::caught;

/// A query that fits both indexes of the [`Lexical`] that made it.
pub struct LexicalQuery {
    pub(super) query: Box<dyn Query>,
    /// The terms, where the query is nothing but the sum over them.
    pub(super) sum: Option<Vec<Term>>,
    terms: Vec<String>,
    warnings: Vec<String>,
}

impl LexicalQuery {
    /// The terms that are looked for, sorted.
    pub fn terms(&self) -> &[String] {
        &self.terms
    }

    /// What of a query in syntax was not understood, and so left out.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether it can find nothing.
    pub fn is_empty(&self) -> bool {
        self.sum.as_ref().is_some_and(Vec::is_empty)
    }

    pub(super) fn sum_over(terms: Vec<String>, text: Field) -> Self {
        let sum: Vec<Term> = terms.iter().map(|term| Term::from_field_text(text, term)).collect();
        LexicalQuery { query: any_of(&sum), sum: Some(sum), terms, warnings: Vec::new() }
    }

    /// Its terms, within one dialogue.
    pub(super) fn within(&self, dialogue: Term, text: Field) -> Self {
        let words = LexicalQuery::sum_over(self.terms.clone(), text);
        if words.is_empty() {
            return words;
        }
        // The name of the dialogue is a condition and adds nothing.
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
    /// Terms that an analysis has given.
    pub fn of_terms(&self, terms: Vec<String>) -> LexicalQuery {
        LexicalQuery::sum_over(terms, self.utterances.fields.text)
    }

    /// The words of a text, whatever signs stand between them.
    pub fn words(&self, text: &str) -> LexicalQuery {
        LexicalQuery::sum_over(self.analyzer.terms(text), self.utterances.fields.text)
    }

    /// A query in Tantivy's language. What is not understood is left out and stands in the query's warnings.
    pub fn syntax(&self, text: &str) -> LexicalQuery {
        let side = &self.utterances;
        let parser = QueryParser::for_index(&side.index, vec![side.fields.text]);
        // What people type is not what its authors thought of.
        let parsed = caught(|| parser.parse_query_lenient(text));
        let (query, errors) = parsed.unwrap_or_else(|| (Box::new(EmptyQuery), Vec::new()));
        let mut warnings: Vec<String> = errors.iter().map(ToString::to_string).collect();
        if query.is::<EmptyQuery>() && warnings.is_empty() {
            warnings.push("nothing of the query was understood".to_owned());
        }
        warnings.dedup();
        let terms = top::terms_of(query.as_ref(), side.fields.text);
        LexicalQuery { query, sum: None, terms, warnings }
    }
}
