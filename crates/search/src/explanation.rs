//! Explanations of scores.

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    ContextTerm, Coverage, DateMatch, EarlierScore, Fusion, FusionMethod, Mode, Stretch, TurnCosine,
    WordShare,
    fuse::{FusedCandidate, Parts, RankedScore, bm25_with_title},
};
use turnwise_index::lexical::TermScore;

/// Explanation of a hit's score: its ranks and scores in each list, and how they were combined.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Explanation {
    /// Rank and score in the dense list. Absent if the hit is not in that list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dense: Option<RankedScore>,
    /// Cosine of the hit's vector with the query vector. Absent if the search did not compute it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cosine: Option<f32>,
    /// Rank and score in the lexical list. Absent if the hit is not in that list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bm25: Option<RankedScore>,
    /// Rank and score of the dialogue's title: a BM25 score without the influence of the length. Half of it is added to the
    /// BM25 score of the dialogue. Present only if the hit is a whole dialogue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<RankedScore>,
    /// Share of the query's words that a whole dialogue or its title contains. Its factor multiplies the scaled BM25 score.
    /// Absent for a query of one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<WordShare>,
    /// Contribution of each query term to the BM25 score.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub terms: Vec<TermScore>,
    /// Scores of the hit in its conversation. Present only if the fusion method is context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextExplanation>,
    /// Computation of the fused score. Present only if the search mode is hybrid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fusion: Option<FusionExplanation>,
    /// Rank and score before reranking. Absent if the hit was not reranked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<RankedScore>,
}

/// Scores of an utterance together with its neighbors.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ContextExplanation {
    /// Cosine of the query with the utterance and its neighbors. Null if the utterance has no vector.
    pub cosine: Option<f32>,
    /// Cosine of the query with each of these turns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cosines: Vec<TurnCosine>,
    /// BM25 score of the utterance and its neighbors.
    pub bm25: f32,
    /// BM25 score that is mapped to 0.5 in the fused score: 20, or 8 or 16 for a query of one or two words.
    pub half_score: f32,
    /// Share of the query's words in the utterance and around it. Its factor multiplies the scaled BM25 score.
    pub coverage: Coverage,
    /// Contribution of each query term to this BM25 score, highest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub terms: Vec<ContextTerm>,
    /// True if the query names the speaker of the utterance.
    pub speaker: bool,
    /// True if the query names a speaker of the dialogue.
    pub participant: bool,
    /// How the utterance belongs to a date that the query names. Null if it does not.
    pub date: Option<DateMatch>,
    /// Scores of the turns before the utterance. Absent unless the query has a context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub earlier: Option<EarlierScore>,
}

/// Computation of a fused score from the contributions of the dense and the lexical search.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct FusionExplanation {
    /// Fusion method and parameters.
    #[serde(flatten)]
    pub by: Fusion,
    /// Map of the cosines before they are weighted. Absent if they stay the same, and with RRF.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stretch: Option<Stretch>,
    /// Weighted contribution of the dense search. With weighted fusion, null if the hit has no cosine. With RRF, null
    /// if the hit is not in the dense list.
    pub from_dense: Option<f32>,
    /// Weighted contribution of the lexical search. Null if the hit is not in the lexical list.
    pub from_bm25: Option<f32>,
    /// Contribution of the named speakers. Absent unless the query names a speaker of the dialogue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_speaker: Option<f32>,
    /// Contribution of the date. Absent unless the query names a date on which the utterance was said, or that it mentions;
    /// for a whole dialogue, a date on which one of its turns was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_date: Option<f32>,
    /// Contribution of the turns before the utterance. Absent unless the query has a context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_earlier: Option<f32>,
    /// Sum of the contributions.
    pub score: f32,
}

impl Explanation {
    /// Returns the BM25 score that fusion uses: of the dialogue, with half of the score of its title, or of the utterance.
    pub fn bm25_with_title(&self) -> Option<f32> {
        bm25_with_title(self.bm25, self.title)
    }

    pub(super) fn of(mode: Mode, fusion: &Fusion, candidate: &FusedCandidate, stretch: Stretch) -> Self {
        let fused = || {
            let parts = Parts::of(fusion, candidate, stretch);
            FusionExplanation {
                by: *fusion,
                stretch: Some(stretch)
                    .filter(|stretch| stretch.factor != 1.0 && fusion.method != FusionMethod::Rrf),
                from_dense: parts.dense,
                from_bm25: parts.bm25,
                from_speaker: parts.speaker,
                from_date: parts.date,
                from_earlier: parts.earlier,
                score: parts.sum(),
            }
        };
        Explanation {
            dense: candidate.dense,
            cosine: candidate.cosine,
            bm25: candidate.bm25,
            title: candidate.title,
            words: candidate.share,
            terms: Vec::new(),
            context: candidate.context.map(|context| ContextExplanation {
                cosine: context.cosine,
                cosines: Vec::new(),
                bm25: context.bm25,
                half_score: context.half_score,
                coverage: context.coverage,
                terms: Vec::new(),
                speaker: context.speaker,
                participant: context.participant,
                date: context.date,
                earlier: context.earlier,
            }),
            fusion: (mode == Mode::Hybrid).then(fused),
            before: candidate.before,
        }
    }
}
