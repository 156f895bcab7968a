//! Paired comparison of two results.

use serde::Serialize;

use super::{
    result::Done,
    significance::{DRAWS, bootstrap, holm, randomization_test},
};

/// Confidence level of the intervals.
const WITHIN: f64 = 0.95;

/// Difference between two results in a measure that has a value for each query.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The measure.
    pub measure: String,
    /// Mean of the first result over the shared queries.
    pub a: f64,
    /// Mean of the second result over the shared queries.
    pub b: f64,
    /// 95% confidence interval of the difference b − a (bootstrap over the queries).
    pub interval: (f64, f64),
    /// Two-sided p-value of the paired randomization test, corrected for the number of measures (Holm).
    pub p: f64,
    /// Number of queries that both results have.
    pub queries: usize,
}

/// Compares two results query by query, for each measure that both have. Queries that only one of them has are ignored.
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

/// Returns the values of `a` and `b` for the queries that occur in both, in the order of `a`.
fn paired(a: &Done, of_a: &[f64], b: &Done, of_b: &[f64]) -> (Vec<f64>, Vec<f64>) {
    if of_a.len() != a.queries.len() || of_b.len() != b.queries.len() {
        return (Vec::new(), Vec::new());
    }
    let values_of_b: std::collections::HashMap<&str, f64> =
        b.queries.iter().map(String::as_str).zip(of_b.iter().copied()).collect();
    a.queries.iter().zip(of_a).filter_map(|(query, a)| Some((*a, *values_of_b.get(query.as_str())?))).unzip()
}
