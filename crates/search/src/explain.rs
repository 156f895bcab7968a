//! Explanation of a hit's score.

use schemars::JsonSchema;
use serde::Serialize;

use super::fuse::{FusedCandidate, Place, parts};
use crate::request::{Fusion, Mode};
use turnwise_index::lexical::TermScore;

/// Components of a hit's score.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Explanation {
    /// Rank and score in the dense list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dense: Option<Place>,
    /// Cosine with the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cosine: Option<f32>,
    /// Rank and score in the lexical list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bm25: Option<Place>,
    /// Contribution of each query term to the BM25 score.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub terms: Vec<TermScore>,
    /// Computation of the fused score.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fusion: Option<Fused>,
    /// Rank and score before reranking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Place>,
}

/// Computation of a fused score.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Fused {
    /// Fusion method and parameters.
    #[serde(flatten)]
    pub by: Fusion,
    /// Contribution of the dense list.
    pub from_dense: Option<f32>,
    /// Contribution of the lexical list.
    pub from_bm25: Option<f32>,
    /// Sum of the contributions.
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
