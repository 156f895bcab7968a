//! How many words of a query are found together.
//!
//! A text that contains only one of five words of the query may contain it by chance, and the text that is meant may use
//! other words. So the lexical score counts less if fewer words are found. If all words of a query are in a turn and its
//! neighbors, this place is probably meant, unless many dialogues contain them. The lexical score then counts up to three
//! times.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::fuse::FusedCandidate;
use turnwise_core::IdKey;

/// The factor of an utterance is (`BASE` + (1 − `BASE`) × share) × (1 + `WEIGHT` × share^`POWER` / dialogues). The numbers were
/// chosen on sets in `benchmarks/README.md`: questions about long conversations, paraphrases and words of single turns, titles,
/// and intents. With a lower `BASE`, paraphrases get better, but questions about long conversations and intents get worse.
const BASE: f32 = 0.6;
const WEIGHT: f32 = 2.0;
const POWER: i32 = 4;

/// Number of candidates among which dialogues with the same coverage are counted. It does not depend on the number of
/// hits, so that the scores do not depend on it.
const COUNTED: usize = 100;

/// Maximum number of terms in a query. Longer queries are texts, whose words are never all found together.
pub(super) const MAX_TERMS: usize = u64::BITS as usize;

/// Share of the query's words that an utterance contains together with its neighbors.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Coverage {
    /// Share of the terms, from 0 to 1. A term in a neighbor or in the title counts less. 0 for a query of one term, and if
    /// the query has a context.
    pub share: f32,
    /// Number of dialogues with at least this share.
    pub dialogues: usize,
    /// Factor of the lexical score: (0.6 + 0.4 × share) × (1 + 2 × share⁴ / dialogues). It is 3 if all words are in one
    /// dialogue only. 1 for a query of one term, and if the query has a context. If the vectors are not reliable, the first
    /// part is nearer to 1.
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
    /// Number of terms that count in this dialogue.
    counted: usize,
}

impl CoveredTerms {
    /// Collects the terms of a query. The items are `None` for terms that do not count in this dialogue, and otherwise the
    /// weight with which the term was found, or 0.
    pub(super) fn collect(weights: impl Iterator<Item = Option<f32>>) -> Self {
        weights.flatten().fold(CoveredTerms::default(), |all, weight| CoveredTerms {
            weight: all.weight + weight,
            counted: all.counted + 1,
        })
    }

    /// Returns the share of the terms that were found. `None` if fewer than two terms count, or too many.
    fn share(&self) -> Option<f32> {
        (2..=MAX_TERMS).contains(&self.counted).then(|| self.weight / self.counted as f32)
    }
}

/// Share of the query's words that a whole dialogue or its title contains.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct WordShare {
    /// Share of the terms, from 0 to 1.
    pub share: f32,
    /// Factor of the lexical score: share³, because a long dialogue often contains some of the words by chance. If the
    /// vectors are not reliable, it is nearer to 1.
    pub factor: f32,
}

impl WordShare {
    /// Returns the share of a dialogue that contains `found` of `terms` terms. `reliability` is that of the vectors, from 0
    /// to 1: without good vectors, words are all that a search has.
    pub(super) fn of(found: u32, terms: usize, reliability: f32) -> Self {
        let share = found as f32 / terms as f32;
        WordShare { share, factor: 1.0 - reliability * (1.0 - share.powi(3)) }
    }
}

/// Returns the coverage of each candidate. `reliability` is that of [`WordShare::of`].
pub(super) fn coverages(
    candidates: &[FusedCandidate],
    covered: &[CoveredTerms],
    reliability: f32,
) -> Vec<Coverage> {
    let shares: Vec<Option<f32>> = covered.iter().map(CoveredTerms::share).collect();
    let mut highest: HashMap<IdKey, f32> = HashMap::new();
    for (candidate, share) in candidates.iter().zip(&shares) {
        if let Some(share) = share
            && candidate.bm25.is_some_and(|ranked| ranked.rank <= COUNTED)
        {
            let highest = highest.entry(candidate.dialogue).or_default();
            *highest = highest.max(*share);
        }
    }
    let mut highest: Vec<f32> = highest.into_values().collect();
    highest.sort_by(|a, b| b.total_cmp(a));
    let coverage = |share: Option<f32>| {
        let Some(share) = share else { return Coverage::default() };
        // Equal shares can differ in the last bits.
        let dialogues = highest.partition_point(|other| *other >= share - 1e-4);
        let together = 1.0 + WEIGHT * share.powi(POWER) / dialogues.max(1) as f32;
        let factor = (1.0 - reliability * (1.0 - BASE) * (1.0 - share)) * together;
        Coverage { share, dialogues, factor }
    };
    shares.into_iter().map(coverage).collect()
}
