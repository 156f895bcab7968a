//! Significance tests and confidence intervals by resampling with a random seed, and the paired comparison of two
//! results.

use std::collections::HashMap;

use rayon::prelude::*;
use serde::Serialize;

use super::result::Done;
use turnwise_core::random::Random;
pub use turnwise_core::stats::mean_and_deviation;

/// Default number of resamples for a test or an interval.
pub const DRAWS: usize = 10_000;

/// Returns the two-sided p-value of the paired randomization test for the difference between the means of `a` and `b`.
/// `draws` is the number of resamples. Each resample swaps the two values of each query with probability one half.
pub fn randomization_test(a: &[f64], b: &[f64], draws: usize, seed: u64) -> f64 {
    let apart: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).filter(|d| *d != 0.0).collect();
    // If the values of all pairs are equal, the p-value is 1.
    if apart.is_empty() {
        return 1.0;
    }
    let seen = apart.iter().sum::<f64>().abs();
    // Tolerate rounding: it can make the sum of a resample slightly smaller than an equally large observed sum.
    let least = seen - 1e-9 * apart.iter().map(|d| d.abs()).sum::<f64>();
    let as_great = (0..draws as u64)
        .into_par_iter()
        .filter(|draw| {
            let mut random = Random::new(seed, *draw);
            let (mut bits, mut left, mut sum) = (0u64, 0, 0.0);
            for d in &apart {
                if left == 0 {
                    (bits, left) = (random.bits(), 64);
                }
                sum += if bits & 1 == 1 { *d } else { -d };
                bits >>= 1;
                left -= 1;
            }
            sum.abs() >= least
        })
        .count();
    (as_great + 1) as f64 / (draws + 1) as f64
}

/// Returns the confidence interval of the mean by the percentile bootstrap. `within` is the confidence level, for
/// example 0.95. `draws` is the number of resamples.
pub fn bootstrap(values: &[f64], within: f64, draws: usize, seed: u64) -> (f64, f64) {
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let mut means: Vec<f64> = (0..draws as u64)
        .into_par_iter()
        .map(|draw| {
            let mut random = Random::new(seed, draw);
            (0..values.len()).map(|_| values[random.below(values.len())]).sum::<f64>() / values.len() as f64
        })
        .collect();
    means.sort_unstable_by(f64::total_cmp);
    let at = |part: f64| means[((draws as f64 * part) as usize).min(draws.saturating_sub(1))];
    (at((1.0 - within) / 2.0), at((1.0 + within) / 2.0))
}

/// Corrects p-values for multiple tests by Holm's step-down method. Returns the corrected values in the order of the
/// given values.
pub fn holm(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_unstable_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b]));
    let mut corrected = vec![0.0; probabilities.len()];
    let mut least: f64 = 0.0;
    for (step, n) in order.iter().enumerate() {
        least = least.max(probabilities[*n] * (probabilities.len() - step) as f64).min(1.0);
        corrected[*n] = least;
    }
    corrected
}

/// Confidence level of the intervals.
pub(crate) const WITHIN: f64 = 0.95;

/// Difference between two benchmark results in one measure. The measure has a value for each query.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// Name of the measure.
    pub measure: String,
    /// Mean value of the first result over the queries that both results contain.
    pub a: f64,
    /// Mean value of the second result over the queries that both results contain.
    pub b: f64,
    /// 95% confidence interval of the difference b − a (bootstrap over the queries).
    pub interval: (f64, f64),
    /// Two-sided p-value of the paired randomization test, corrected for the number of measures (Holm).
    pub p: f64,
    /// Number of queries that both results contain.
    pub queries: usize,
}

/// Compares two results query by query, for each measure that both results contain. Ignores queries that only one
/// result contains.
pub fn compare(a: &Done, b: &Done, seed: u64) -> Vec<Difference> {
    let mut differences = Vec::new();
    for value in &a.values {
        let Some(other) = b.value(&value.measure) else { continue };
        let (of_a, of_b) = paired(a, &value.each, b, &other.each);
        if of_a.is_empty() {
            continue;
        }
        let apart: Vec<f64> = of_a.iter().zip(&of_b).map(|(a, b)| b - a).collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        differences.push(Difference {
            measure: value.measure.clone(),
            a: mean(&of_a),
            b: mean(&of_b),
            interval: bootstrap(&apart, WITHIN, DRAWS, seed),
            p: randomization_test(&of_a, &of_b, DRAWS, seed),
            queries: apart.len(),
        });
    }
    let corrected = holm(&differences.iter().map(|d| d.p).collect::<Vec<_>>());
    differences.iter_mut().zip(corrected).for_each(|(difference, p)| difference.p = p);
    differences
}

/// Returns the values of `a` and the values of `b` for the queries that both results contain, in the order of the
/// queries in `a`.
fn paired(a: &Done, of_a: &[f64], b: &Done, of_b: &[f64]) -> (Vec<f64>, Vec<f64>) {
    if of_a.len() != a.queries.len() || of_b.len() != b.queries.len() {
        return (Vec::new(), Vec::new());
    }
    let values_of_b: HashMap<&str, f64> =
        b.queries.iter().map(String::as_str).zip(of_b.iter().copied()).collect();
    a.queries.iter().zip(of_a).filter_map(|(query, a)| Some((*a, *values_of_b.get(query.as_str())?))).unzip()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation_of_a_sample() {
        assert_eq!(mean_and_deviation(&[1.0, 3.0]), (2.0, 2f64.sqrt()));
        assert_eq!((mean_and_deviation(&[4.0]), mean_and_deviation(&[])), ((4.0, 0.0), (0.0, 0.0)));
    }

    #[test]
    fn the_randomization_test_agrees_with_exact_enumeration() {
        // In two of the 2^10 possible swaps, the difference is this large. So the p-value is 1/512.
        let (a, b): (Vec<f64>, Vec<f64>) = ((1..=10).map(f64::from).collect(), vec![0.0; 10]);
        let p = randomization_test(&a, &b, 100_000, 3);
        assert!((p - 2.0 / 1024.0).abs() < 0.0005, "{p}");
        let p = randomization_test(&[1.0, -1.0, 1.0], &[0.0; 3], 20_000, 3);
        assert!((p - 1.0).abs() < 1e-9, "{p}");
        assert_eq!(randomization_test(&a, &a, 100, 3), 1.0);
        assert_eq!(randomization_test(&a, &b, 1000, 3), randomization_test(&b, &a, 1000, 3));
    }

    #[test]
    fn the_bootstrap_interval_matches_the_standard_error() {
        let values: Vec<f64> = (0..400).map(|n| f64::from(n % 2)).collect();
        let (low, high) = bootstrap(&values, 0.95, DRAWS, 1);
        // The expected interval is the mean of a fair coin plus or minus 1.96 standard errors.
        assert!((low - 0.451).abs() < 0.006 && (high - 0.549).abs() < 0.006, "{low} {high}");
        assert_eq!(bootstrap(&values, 0.95, 500, 1), bootstrap(&values, 0.95, 500, 1));
        assert_eq!(bootstrap(&[], 0.95, 500, 1), (0.0, 0.0));
    }

    #[test]
    fn holm_by_hand() {
        let corrected = holm(&[0.01, 0.04, 0.03, 0.005]);
        for (corrected, expected) in corrected.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((corrected - expected).abs() < 1e-12);
        }
        assert!(holm(&[]).is_empty());
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
    }
}
