//! Vector search: a graph index over the dialogues of the last build, and an exact scan of newer dialogues.
//!
//! ```text
//! indexes/chats/
//!   graphs.lock               file lock of the building process; all other work can continue
//!   graphs/
//!     current.json            names the generation in use; replaced as a whole
//!     <n>/                    a generation: one build of the graphs; its files never change
//!       manifest.json         vector set and log position of the build; checksummed
//!       dialogues.places      24 bytes per dialogue: key and sequence number; ids descending
//!       dialogues.keys        4 bytes per dialogue: the same dialogues in key order
//!       utterances.places     8 bytes per utterance: index of its dialogue, and its turn
//!       utterances.graph      the graph of the utterances; its rows are the entries of utterances.places
//!       dialogues.graph       the same for whole dialogues
//! ```
//!
//! Dialogues are sorted by descending id, because hits with equal scores are returned in this order. Dialogues that are
//! newer than the generation are the tail. Without a generation, all dialogues are in the tail. Dialogues of the tail
//! are searched one by one; their older versions in the generation are skipped.

mod build;
mod generation;
mod places;
mod reader;
mod sweep;

#[cfg(test)]
mod tests;

pub use build::{
    Built, GraphRecall, Progress, Step, build, builder, compact, in_use, is_worth_building, rebuild, recall,
    verify,
};
pub use generation::{GraphStats, Manifest};
pub use reader::{DenseReader, NodeFilter, SearchSettings};
pub use sweep::{DistinctVectors, NeighborBuffers, Owner};
pub use turnwise_nearest::{BuildOptions, Builder};

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::vectors::{Kind, VectorReader, dialogue_key, utterance_key};
use turnwise_core::{
    error::{Error, Result},
    ids::{DialogueId, IdKey, Seq, TurnNo},
    vectors::cosine,
};
use turnwise_corpus::Dialogue;

/// A dialogue with the keys of its vectors.
struct VectorKeys {
    id: DialogueId,
    seq: Seq,
    dialogue: IdKey,
    turns: Vec<(TurnNo, IdKey)>,
}

impl VectorKeys {
    fn of(dialogue: Dialogue, seq: Seq) -> Self {
        VectorKeys {
            seq,
            dialogue: dialogue_key(&dialogue),
            turns: dialogue.turns.iter().map(|t| (t.number, utterance_key(&t.text))).collect(),
            id: dialogue.id,
        }
    }

    /// Returns the vector keys of all turns, or of the whole dialogue, depending on `kind`.
    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (Option<TurnNo>, &IdKey)> {
        let (turns, dialogue) = match kind {
            Kind::Utterances => (self.turns.as_slice(), None),
            Kind::Dialogues => (&[][..], Some((None, &self.dialogue))),
        };
        turns.iter().map(|(turn, key)| (Some(*turn), key)).chain(dialogue)
    }
}

fn folder(root: &Path) -> PathBuf {
    root.join("graphs")
}

fn damaged(path: &Path, what: String) -> Error {
    Error::corrupt(path, what).with_hint("`turnwise index build` rebuilds it")
}

/// Maximum number of pairs to sample.
const PAIRS: usize = 50_000;

/// Percentiles of the cosines of random pairs of vectors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SimilarityDistribution(Vec<f32>);

/// Returns the percentages, from 0 to 100, at which percentiles are stored. Steps are smaller near 100, because the
/// scores of search hits are in that range.
fn grid() -> impl Iterator<Item = f64> {
    let whole = (0..100).map(f64::from);
    let tenths = (1..10).map(|n| 99.0 + f64::from(n) / 10.0);
    let hundredths = (1..10).map(|n| 99.9 + f64::from(n) / 100.0);
    whole.chain(tenths).chain(hundredths).chain([100.0])
}

impl SimilarityDistribution {
    /// Computes the distribution from random pairs. Each pair consists of a vector of kind `one` and a vector of kind
    /// `other`. The sample is deterministic. The distribution is empty if a kind has fewer than two vectors.
    pub fn sample(vectors: &VectorReader, one: Kind, other: Kind) -> Result<Self> {
        let rows = [vectors.rows(one), vectors.rows(other)];
        SimilarityDistribution::sample_pairs(rows, one == other, |a, b| {
            Ok(cosine(vectors.row(one, a)?, vectors.row(other, b)?))
        })
    }

    /// Computes the distribution from random pairs of two lists of vectors with these lengths. If `same` is true, the lists
    /// are the same, and no vector is paired with itself. `cosine` returns the cosine of a pair, given by its positions in
    /// the lists.
    pub fn sample_pairs(
        [rows, others]: [usize; 2],
        same: bool,
        mut cosine: impl FnMut(usize, usize) -> Result<f32>,
    ) -> Result<Self> {
        if rows.min(others) < 2 {
            return Ok(SimilarityDistribution::default());
        }
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let mut draw = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((u128::from(state) * below as u128) >> 64) as usize
        };
        // With few vectors, sample fewer pairs.
        let pairs = PAIRS.min(rows * (others - 1) / 2).max(1);
        let mut cosines = Vec::with_capacity(pairs);
        for _ in 0..pairs {
            let a = draw(rows);
            let b = if same { (a + 1 + draw(rows - 1)) % rows } else { draw(others) };
            cosines.push(cosine(a, b)?);
        }
        Ok(SimilarityDistribution::of(cosines))
    }

    fn of(mut cosines: Vec<f32>) -> Self {
        cosines.sort_unstable_by(f32::total_cmp);
        let last = cosines.len().saturating_sub(1) as f64;
        let at = |percent: f64| cosines.get((percent / 100.0 * last).round() as usize).copied();
        SimilarityDistribution(grid().filter_map(at).collect())
    }

    /// Returns true if there were too few vectors for a sample.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the median of the cosines, and half the distance between the 16th and the 84th percentile, which is the
    /// standard deviation of a normal distribution. `None` if the distribution is empty.
    pub fn spread(&self) -> Option<(f32, f32)> {
        let at = |percent: usize| self.0.get(percent).copied();
        Some((at(50)?, (at(84)? - at(16)?) / 2.0))
    }

    /// Percentage of random pairs with a cosine below `score`, from 0 to 100; `None` if the distribution is empty.
    pub fn percentile(&self, score: f32) -> Option<f64> {
        let values = &self.0;
        let (first, last) = (values.first()?, values.last()?);
        if score < *first {
            return Some(0.0);
        }
        if score >= *last {
            return Some(100.0);
        }
        // Interpolate between the last value up to the score and the first value above it.
        let above = values.partition_point(|value| *value <= score);
        let (low, high) = (f64::from(values[above - 1]), f64::from(values[above]));
        let mut percents = grid().skip(above - 1);
        let (from, to) = (percents.next()?, percents.next()?);
        Some(from + (to - from) * (f64::from(score) - low) / (high - low))
    }
}
