//! Search responses.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{Explanation, Fusion, Group, HitKind, Mode, Rerank};
use turnwise_corpus::{Time, Turn};
use turnwise_text::Analyzer;

/// Name and version of the response schema. New fields may be added in this version. Existing fields are not removed,
/// and their meaning does not change.
pub const SCHEMA: &str = "turnwise/search/1";

/// Response to a search request.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "SearchResponse")]
pub struct Response {
    /// Name and version of the response schema: `turnwise/search/1`.
    pub schema: &'static str,
    /// The query text, or the id of the item in a search for similar items.
    pub query: String,
    /// Type of the hits.
    pub of: HitKind,
    /// Search mode that was used.
    pub mode: Mode,
    /// Number of hits that were skipped.
    pub offset: usize,
    /// Grouping of the hits.
    #[serde(skip)]
    pub group: Option<Group>,
    /// The hits, best first.
    pub hits: Vec<Hit>,
    /// The query that was actually used. Absent if only the text in `query` was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective: Option<EffectiveQuery>,
    /// Fusion that was used. Present only if the mode is hybrid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fusion: Option<Fusion>,
    /// Reranking that was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rerank: Option<Rerank>,
    /// True if `fusion` was tuned for this index, with `turnwise search tune`.
    pub tuned: bool,
    /// Numbers of candidates that were examined.
    pub candidates: Candidates,
    /// Warnings, for example about parts of the index or the query that were not used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Terms of the lexical search. In dense mode, the terms of the query text.
    pub terms: Vec<String>,
    /// Words of the query that no utterance and no title contains. Dense search can still find something similar. The
    /// field is missing if there are none, or if the engine does not report them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<String>,
    /// Analyzer that produced the terms.
    #[serde(skip)]
    pub analyzer: Analyzer,
    /// Total time of the search in milliseconds.
    pub milliseconds: f64,
    /// Time of each step in milliseconds.
    pub timings: Timings,
}

/// A search hit.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Hit {
    /// Score that determines the rank: a cosine, a BM25 score, a fused score or a reranking score.
    pub score: f32,
    /// Percentage of random pairs that are less similar than the query and this hit, from 0 to 100. Absent in lexical
    /// searches, or if the engine does not support percentiles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentile: Option<f64>,
    /// Id of the utterance or dialogue that was found.
    pub id: String,
    /// Id of the dialogue.
    pub dialogue: String,
    /// Title of the dialogue.
    pub title: Option<String>,
    /// Ranges of query terms in the title, in the form of `matched`. The field is missing if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub title_matched: Vec<[usize; 2]>,
    /// Thread of the dialogue, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// Time of the dialogue, or else of its first turn that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// Domains of the dialogue.
    pub domains: Vec<String>,
    /// Number of turns of the dialogue. Present only if the hit is a whole dialogue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<usize>,
    /// The turn that was found. If the hit is a whole dialogue, the turn of this dialogue that matches best.
    pub turn: Turn,
    /// Ranges of query terms in the turn's text, as `[start, end)`, counted in Unicode scalar values.
    pub matched: Vec<[usize; 2]>,
    /// The turns before `turn`, in order.
    pub before: Vec<Turn>,
    /// The turns after `turn`, in order.
    pub after: Vec<Turn>,
    /// Number of other candidates in the same group. Absent without grouping.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more: Option<usize>,
    /// Explanation of the score, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<Explanation>,
}

/// The query that was used, after the context or the similar item was taken into account.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct EffectiveQuery {
    /// Texts whose vectors were summed, with their weights. The weights sum to 1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub meaning: Vec<WeightedText>,
    /// Terms of the lexical search.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<String>,
    /// Speakers that the query names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub speakers: Vec<String>,
    /// Dates that the query names, as they are written in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dates: Vec<String>,
}

/// A text of the query, and the weight of its vector.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct WeightedText {
    /// Weight of the text's vector, from 0 to 1.
    pub weight: f32,
    /// The text.
    pub text: String,
}

/// Numbers of candidates that were examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub struct Candidates {
    /// Number of candidates that the dense search returned.
    pub dense: usize,
    /// Number of candidates that the lexical search returned.
    pub bm25: usize,
    /// Number of items that match the filter. Absent without a filter, or if the engine does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admitted: Option<u64>,
    /// Number of candidates dropped because their score or percentile was too low.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub too_low: Option<usize>,
}

/// Time of each step of a search, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
pub struct Timings {
    /// Time to encode the query, in milliseconds.
    pub encode: f64,
    /// Time to evaluate the filter, in milliseconds.
    pub filter: f64,
    /// Time of the dense search, in milliseconds.
    pub dense: f64,
    /// Time of the lexical search, in milliseconds.
    pub bm25: f64,
    /// Time of fusion, reranking and reading records, in milliseconds.
    pub hits: f64,
}
