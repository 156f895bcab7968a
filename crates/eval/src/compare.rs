//! Two results side by side.

use serde::Serialize;

use super::{
    result::Done,
    significance::{DRAWS, bootstrap, holm, randomisation},
};

/// What of the draws an interval holds.
const WITHIN: f64 = 0.95;

/// How far one result is from another in a measure that has a value for each query.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The measure.
    pub measure: String,
    /// The first one's value.
    pub a: f64,
    /// The second one's.
    pub b: f64,
    /// Between which numbers the difference (b − a) lies with 95% (bootstrap over the queries).
    pub interval: (f64, f64),
    /// How probable so great a difference is if there is none: the paired randomisation test, two-sided, corrected for
    /// the number of measures (Holm).
    pub p: f64,
    /// Queries that both have.
    pub queries: usize,
}

/// Compares what two results have in common, query by query.
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
            p: randomisation(&of_a, &of_b, DRAWS, seed),
            queries: apart.len(),
        });
    }
    let corrected = holm(&differences.iter().map(|d| d.p).collect::<Vec<_>>());
    differences.iter_mut().zip(corrected).for_each(|(difference, p)| difference.p = p);
    differences
}

/// The values of the queries that both have, in the order of the first.
fn paired(a: &Done, of_a: &[f64], b: &Done, of_b: &[f64]) -> (Vec<f64>, Vec<f64>) {
    if of_a.len() != a.queries.len() || of_b.len() != b.queries.len() {
        return (Vec::new(), Vec::new());
    }
    let places: std::collections::HashMap<&str, f64> =
        b.queries.iter().map(String::as_str).zip(of_b.iter().copied()).collect();
    a.queries.iter().zip(of_a).filter_map(|(query, a)| Some((*a, *places.get(query.as_str())?))).unzip()
}
