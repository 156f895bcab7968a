//! Distribution of the cosines of random pairs, as a reference for scores.

use serde::{Deserialize, Serialize};

use crate::vectors::{Kind, VectorReader};
use turnwise_core::error::Result;
use turnwise_core::vectors::cosine;

/// Maximum number of pairs to sample.
const PAIRS: usize = 50_000;

/// Percentiles of the cosines of random pairs of vectors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SimilarityDistribution(Vec<f32>);

/// Returns the percentages of the stored percentiles, 0 to 100. The steps are finer at the top, the range of search
/// hits.
fn grid() -> impl Iterator<Item = f64> {
    let whole = (0..100).map(f64::from);
    let tenths = (1..10).map(|n| 99.0 + f64::from(n) / 10.0);
    let hundredths = (1..10).map(|n| 99.9 + f64::from(n) / 100.0);
    whole.chain(tenths).chain(hundredths).chain([100.0])
}

impl SimilarityDistribution {
    /// Samples random pairs of a vector of kind `one` and a vector of kind `other`. The sample is deterministic. The
    /// distribution is empty if a kind has fewer than two vectors.
    pub fn sample(vectors: &VectorReader, one: Kind, other: Kind) -> Result<Self> {
        let (rows, others) = (vectors.rows(one), vectors.rows(other));
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
            let b = if one == other { (a + 1 + draw(rows - 1)) % rows } else { draw(others) };
            cosines.push(cosine(vectors.row(one, a)?, vectors.row(other, b)?));
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

    /// Percentage of random pairs with a lower cosine, from 0 to 100; `None` if the distribution is empty.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_is_the_share_of_lower_values() {
        let background = SimilarityDistribution::of((0..=10_000).map(|n| n as f32 / 10_000.0).collect());
        for score in [0.0, 0.123, 0.5, 0.77, 0.995, 0.9995] {
            let percentile = background.percentile(score).unwrap();
            assert!((percentile - 100.0 * f64::from(score)).abs() < 0.01, "{score}: {percentile}");
        }
        assert_eq!(background.percentile(-0.5), Some(0.0));
        assert_eq!((background.percentile(1.0), background.percentile(7.0)), (Some(100.0), Some(100.0)));
    }

    #[test]
    fn percentiles_of_equal_values_and_of_an_empty_sample() {
        let same = SimilarityDistribution::of(vec![0.5; 100]);
        assert_eq!((same.percentile(0.4), same.percentile(0.5)), (Some(0.0), Some(100.0)));
        assert_eq!(SimilarityDistribution::of(Vec::new()).percentile(0.5), None);
        assert_eq!(SimilarityDistribution::of(vec![0.3]).percentile(0.2), Some(0.0));
    }
}
