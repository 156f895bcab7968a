//! Before vectors are used for the first time, they have to give what the portable ones give.
//!
//! Not every kind of processor was at hand when the kernels were written and tested. A small network in every
//! precision takes about a millisecond; kernels that are wrong on this processor are not used, and
//! `CpuEngine::describe` says so.

use std::sync::OnceLock;
use turnwise_core::vectors::cosine;

use super::{CpuEngine, simd::SimdLevel};
use turnwise_core::Result;

use crate::{
    Batch, Network, Precision, Sequence,
    network::{Activation, Shape},
};

/// The precisions and how near to the portable f32 they have to come, as a cosine.
const NEAR: [(Precision, f32); 4] = [
    (Precision::F32, 0.999_999),
    (Precision::Bf16, 0.999),
    (Precision::Int16, 0.999_99),
    (Precision::Int8, 0.98),
];

/// The fastest vectors that prove right here, and faster ones that did not.
pub(super) fn best_proven() -> (SimdLevel, Vec<SimdLevel>) {
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

/// Whether a level gives what the portable kernels give, in every precision.
pub(super) fn agrees(level: SimdLevel) -> Result<bool> {
    // Sizes that leave a rest in every direction: rows, columns, heads, tokens.
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
        // Written so that a NaN is not near.
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
    fn everything_that_this_processor_has_proves_right() {
        for level in SimdLevel::here() {
            assert!(agrees(level).unwrap(), "{level}");
        }
        let (best, failed) = best_proven();
        assert_eq!((Some(best), failed), (SimdLevel::here().next(), Vec::new()));
    }
}
