//! Self-test of the kernels: before a SIMD level is used for the first time, its results are compared with those of
//! the portable level.
//!
//! The kernels were not tested on every kind of processor. The self-test runs a small network in every precision,
//! which takes about a millisecond. A level that fails is not used, and `CpuEngine::describe` reports it.

use std::sync::OnceLock;
use turnwise_core::vectors::cosine;

use super::{CpuEngine, simd::SimdLevel};
use turnwise_core::Result;

use crate::{
    Batch, Network, Precision, Sequence,
    network::{Activation, Shape},
};

/// Minimum cosine similarity to the portable f32 results, for each precision.
const NEAR: [(Precision, f32); 4] = [
    (Precision::F32, 0.999_999),
    (Precision::Bf16, 0.999),
    (Precision::Int16, 0.999_99),
    (Precision::Int8, 0.98),
];

/// Returns the fastest level that passes the self-test, and the faster levels that failed the test.
pub(super) fn best_verified() -> (SimdLevel, Vec<SimdLevel>) {
    static BEST: OnceLock<(SimdLevel, Vec<SimdLevel>)> = OnceLock::new();
    BEST.get_or_init(|| {
        let mut failed = Vec::new();
        for level in SimdLevel::here() {
            if level == SimdLevel::Portable || agrees(level).unwrap_or(false) {
                return (level, failed);
            }
            failed.push(level);
        }
        (SimdLevel::Portable, failed)
    })
    .clone()
}

/// Returns true if a level agrees with the portable kernels in every precision.
pub(super) fn agrees(level: SimdLevel) -> Result<bool> {
    // None of these sizes is a multiple of the tile or vector sizes, to test the remainders as well.
    let shape = Shape {
        hidden: 72,
        heads: 3,
        intermediate: 100,
        activation: Activation::Gelu,
        norm_epsilon: 1e-12,
        first_position: 0,
    };
    let network = Network::random(shape, 2, 50, 40, 3);
    let sequences = [1, 37, 18].map(|n| Sequence::new((0..n).map(|i| i * 7 % 50).collect()));
    let expected = states(&network, Precision::F32, SimdLevel::Portable, &sequences)?;
    for (precision, near) in NEAR {
        let got = states(&network, precision, level, &sequences)?;
        let rows = expected.chunks_exact(72).zip(got.chunks_exact(72));
        // Written so that a NaN fails the comparison.
        if got.len() != expected.len() || !rows.map(|(a, b)| cosine(a, b)).all(|c| c > near) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn states(
    network: &Network,
    precision: Precision,
    level: SimdLevel,
    sequences: &[Sequence],
) -> Result<Vec<f32>> {
    let engine = CpuEngine::at(network, precision, level)?;
    let sequences: Vec<&Sequence> = sequences.iter().collect();
    let mut all = Vec::new();
    engine.run(&Batch::new(&sequences), &[2], &mut |_, states| all.extend_from_slice(states))?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_levels_of_this_processor_pass() {
        for level in SimdLevel::here() {
            assert!(agrees(level).unwrap(), "{level}");
        }
        let (best, failed) = best_verified();
        assert_eq!((Some(best), failed), (SimdLevel::here().next(), Vec::new()));
    }
}
