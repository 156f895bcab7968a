//! Evaluation measures of rankings, clusterings and vectors, correlation coefficients, and t-SNE.
//!
//! Tests compare the measures of rankings with trec_eval, those of clusterings with scikit-learn, and the correlation
//! coefficients with SciPy. `tests/fixtures/measures` contains the expected values.
//!
//! ```
//! use turnwise_measures::{correlation::spearman, ranking::Ranking};
//!
//! let ranking = Ranking::of_flags([true, false, true]);
//! assert_eq!(ranking.precision(2), 0.5);
//! assert_eq!(spearman(&[1.0, 2.0, 3.0], &[10.0, 20.0, 40.0]), Some(1.0));
//! ```

pub mod clusters;
pub mod correlation;
pub mod plane;
pub mod random_baseline;
pub mod ranking;
pub mod space;

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{clusters::Table, correlation};

    fn numbers(value: &Value) -> Vec<f64> {
        value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
    }

    /// The script `reference.py` in the fixtures folder computes the expected values with SciPy and scikit-learn.
    #[test]
    fn results_agree_with_scipy_and_scikit_learn() {
        let expected: Value =
            serde_json::from_str(include_str!("../../../tests/fixtures/measures/numbers.json")).unwrap();
        let near = |a: f64, b: &Value| assert!((a - b.as_f64().unwrap()).abs() < 1e-9, "{a} {b}");
        for case in expected["correlations"].as_array().unwrap() {
            let (a, b) = (numbers(&case["a"]), numbers(&case["b"]));
            near(correlation::pearson(&a, &b).unwrap(), &case["pearson"]);
            near(correlation::spearman(&a, &b).unwrap(), &case["spearman"]);
            near(correlation::kendall(&a, &b).unwrap(), &case["kendall"]);
        }
        for case in expected["clusters"].as_array().unwrap() {
            let whole = |value: &Value| numbers(value).into_iter().map(|n| n as usize).collect::<Vec<_>>();
            let table = Table::new(&whole(&case["clusters"]), &whole(&case["labels"]));
            near(table.purity(), &case["purity"]);
            near(table.nmi(), &case["nmi"]);
            near(table.ari(), &case["ari"]);
            near(table.accuracy(), &case["accuracy"]);
        }
    }
}
