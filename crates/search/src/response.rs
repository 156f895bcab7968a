//! What a search gives.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    explain::Explanation,
    request::{Fusion, Mode, Of},
};
use turnwise_corpus::Turn;
use turnwise_text::Analyzer;

/// The shape of a response, for programs: fields are added to it, and none is taken away or changes its meaning.
pub const SCHEMA: &str = "turnwise/search/1";

/// The hits of a search, best first, and what they were looked for by.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Response {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The query, or the id of what others are like.
    pub query: String,
    /// What was found.
    pub of: Of,
    /// By what.
    pub mode: Mode,
    /// How many were left out before the first hit.
    pub offset: usize,
    /// The hits.
    pub hits: Vec<Hit>,
    /// What was really looked for, where it is not the query alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective: Option<Effective>,
    /// How the lists became one, if there were two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fusion: Option<Fusion>,
    /// Whether that is what the index keeps of having been tuned.
    pub tuned: bool,
    /// How many were looked at.
    pub candidates: Candidates,
    /// What should be known: what could not be looked at, what of the query was left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The terms that were looked for.
    pub terms: Vec<String>,
    /// The analysis they come from.
    #[serde(skip)]
    pub analyzer: Analyzer,
    /// How long it took.
    pub milliseconds: f64,
    /// How long its parts took.
    pub timings: Timings,
}

/// One that was found.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Hit {
    /// What it is ranked by: a cosine, a BM25 score, or the sum of a fusion.
    pub score: f32,
    /// How many percent of random pairs are less near to each other than it is to the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentile: Option<f64>,
    /// The id of the utterance, or of the dialogue that was found as a whole.
    pub id: String,
    /// The id of its dialogue.
    pub dialogue: String,
    /// The dialogue's title.
    pub title: Option<String>,
    /// What the dialogue is about.
    pub domains: Vec<String>,
    /// How many turns a dialogue has that was found as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<usize>,
    /// What was found, or the turn that fits best of a dialogue that was found as a whole.
    pub turn: Turn,
    /// Where the turn's text has terms of the query: from which character up to which, counted in Unicode scalar values.
    pub matched: Vec<[usize; 2]>,
    /// The turns before it.
    pub before: Vec<Turn>,
    /// The turns behind it.
    pub after: Vec<Turn>,
    /// How many more candidates were of the same group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more: Option<usize>,
    /// How it came to its place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<Explanation>,
}

/// What a query became.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Effective {
    /// The texts whose vectors were added up, with what each counted. They sum to 1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub meaning: Vec<Weighted>,
    /// The terms that were looked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<String>,
}

/// A text and what it counts.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Weighted {
    /// What it counts.
    pub weight: f32,
    /// The text.
    pub text: String,
}

/// How many were looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Candidates {
    /// Of the list by meaning.
    pub dense: usize,
    /// Of the list by words.
    pub bm25: usize,
    /// What the filter admits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admitted: Option<u64>,
    /// What was left out because its score or its percentile was too low.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub too_low: Option<usize>,
}

/// Milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
pub struct Timings {
    /// Encoding the query.
    pub encode: f64,
    /// Finding out what the filter admits.
    pub filter: f64,
    /// Looking by meaning.
    pub dense: f64,
    /// Looking by words.
    pub bm25: f64,
    /// Fusing, ranking again and reading records.
    pub hits: f64,
}
