//! How many words of a query are found together.
//!
//! If all words of a query are in a turn and its neighbors, this place is probably meant, unless many dialogues contain
//! them. The lexical score then counts up to three times. Words that no candidate contains do not count.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::fuse::FusedCandidate;
use turnwise_core::IdKey;

/// The factor is 1 + `WEIGHT` × share^`POWER` / dialogues. Both were chosen on questions about long conversations, on words
/// of single turns, and on intents, which are sets in `benchmarks/README.md`.
const WEIGHT: f32 = 2.0;
const POWER: i32 = 4;

/// Number of candidates among which dialogues with the same coverage are counted. It does not depend on the number of
/// hits, so that the scores do not depend on it.
const COUNTED: usize = 100;

/// Maximum number of terms in a query. Longer queries are texts, whose words are never all found together.
const MAX_TERMS: usize = 64;

/// Share of the query's words that an utterance contains together with its neighbors.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Coverage {
    /// Share of the terms, from 0 to 1. A term in a neighbor or in the title counts less. 0 for a query of one term, and if
    /// the query has a context.
    pub share: f32,
    /// Number of dialogues with at least this share.
    pub dialogues: usize,
    /// Factor of the lexical score: 1 + 2 × share⁴ / dialogues. It is 3 if all words are in one dialogue only.
    pub factor: f32,
}

impl Default for Coverage {
    fn default() -> Self {
        Coverage { share: 0.0, dialogues: 0, factor: 1.0 }
    }
}

/// The terms of a query that an utterance contains together with its neighbors.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CoveredTerms {
    /// Sum of the weights of the terms: 1 in the utterance, lower in a neighbor or the title.
    weight: f32,
    /// The terms that count in this dialogue, one bit per term.
    counted: u64,
    /// Those that were found.
    found: u64,
}

impl CoveredTerms {
    /// Collects the terms of a query. The items are `None` for terms that do not count in this dialogue, and otherwise the
    /// weight with which the term was found, or 0. There is one item per term; the last ones can be missing if they were
    /// not found.
    pub(super) fn collect(terms: usize, weights: impl Iterator<Item = Option<f32>>) -> Self {
        let mut all = CoveredTerms::default();
        if terms <= MAX_TERMS {
            for (n, weight) in weights.enumerate() {
                all.counted |= u64::from(weight.is_some()) << n;
                all.found |= u64::from(weight.is_some_and(|weight| weight > 0.0)) << n;
                all.weight += weight.unwrap_or_default();
            }
        }
        all
    }

    fn share(&self, seen: u64) -> f32 {
        match (self.counted & seen).count_ones() {
            0 | 1 => 0.0,
            terms => self.weight / terms as f32,
        }
    }
}

/// Returns the coverage of each candidate.
pub(super) fn coverages(candidates: &[FusedCandidate], covered: &[CoveredTerms]) -> Vec<Coverage> {
    let seen = covered.iter().fold(0, |seen, terms| seen | terms.found);
    let shares: Vec<f32> = covered.iter().map(|terms| terms.share(seen)).collect();
    let mut highest: HashMap<IdKey, f32> = HashMap::new();
    for (candidate, share) in candidates.iter().zip(&shares) {
        if candidate.bm25.is_some_and(|ranked| ranked.rank <= COUNTED) {
            let highest = highest.entry(candidate.dialogue).or_default();
            *highest = highest.max(*share);
        }
    }
    let mut highest: Vec<f32> = highest.into_values().collect();
    highest.sort_by(|a, b| b.total_cmp(a));
    let coverage = |share: f32| {
        // Equal shares can differ in the last bits.
        let dialogues = highest.partition_point(|other| *other >= share - 1e-4);
        let factor = 1.0 + WEIGHT * share.powi(POWER) / dialogues.max(1) as f32;
        Coverage { share, dialogues, factor }
    };
    shares.into_iter().map(coverage).collect()
}
