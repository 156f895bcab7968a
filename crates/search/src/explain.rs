//! How a hit came to its place, as a value: for people, for programs, and for tests that do the sums again.

use schemars::JsonSchema;
use serde::Serialize;

use super::fuse::{FusedCandidate, Place, parts};
use crate::request::{Fusion, Mode};
use turnwise_index::lexical::TermScore;

/// Everything that made up a hit's score.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Explanation {
    /// Its place in the list by meaning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dense: Option<Place>,
    /// Its cosine with the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cosine: Option<f32>,
    /// Its place in the list by words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bm25: Option<Place>,
    /// What each term of the query gave it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub terms: Vec<TermScore>,
    /// How both places became one score.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fusion: Option<Fused>,
    /// The place it had before it was ranked again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Place>,
}

/// The arithmetic of a fusion.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Fused {
    /// The way and its numbers.
    #[serde(flatten)]
    pub by: Fusion,
    /// What its meaning gave.
    pub from_dense: Option<f32>,
    /// What its words gave.
    pub from_bm25: Option<f32>,
    /// The sum.
    pub score: f32,
}

impl Explanation {
    pub(super) fn of(mode: Mode, fusion: &Fusion, candidate: &FusedCandidate) -> Self {
        let fused = || {
            let [from_dense, from_bm25] = parts(fusion, candidate);
            let score = [from_dense, from_bm25].into_iter().flatten().sum();
            Fused { by: *fusion, from_dense, from_bm25, score }
        };
        Explanation {
            dense: candidate.dense,
            cosine: candidate.cosine,
            bm25: candidate.bm25,
            terms: Vec::new(),
            fusion: (mode == Mode::Hybrid).then(fused),
            before: candidate.before,
        }
    }
}
