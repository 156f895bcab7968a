//! Values of a result by category of its queries, with confidence intervals.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    result::Done,
    significance::{DRAWS, WITHIN, bootstrap},
};

/// Queries of a result: all of them, or those of one category.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// Name of the category; `None` for all queries.
    pub category: Option<String>,
    /// Number of queries.
    pub queries: usize,
    /// One entry per measure.
    pub values: Vec<GroupValue>,
}

/// Mean of a measure over the queries of a group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupValue {
    /// Name of the measure.
    pub measure: String,
    /// Mean value, not in percent.
    pub value: f64,
    /// 95% confidence interval of the mean (bootstrap over the queries).
    pub interval: (f64, f64),
}

impl Group {
    /// Returns the values over all queries and over each category, in the order of the names. Returns no group if the
    /// task does not report categories.
    pub fn all(done: &Done, seed: u64) -> Vec<Group> {
        if done.categories.is_empty() {
            return Vec::new();
        }
        let mut categories: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (n, category) in done.categories.iter().enumerate().filter(|(_, category)| !category.is_empty()) {
            categories.entry(category).or_default().push(n);
        }
        let all = (0..done.categories.len()).collect();
        let named = categories.into_iter().map(|(name, queries)| (Some(name.to_owned()), queries));
        std::iter::once((None, all))
            .chain(named)
            .map(|(name, queries)| Group::of(done, name, &queries, seed))
            .collect()
    }

    fn of(done: &Done, category: Option<String>, queries: &[usize], seed: u64) -> Group {
        let values = done.values.iter().map(|value| {
            let each: Vec<f64> = queries.iter().filter_map(|n| value.each.get(*n).copied()).collect();
            GroupValue {
                measure: value.measure.clone(),
                value: each.iter().sum::<f64>() / each.len().max(1) as f64,
                interval: bootstrap(&each, WITHIN, DRAWS, seed),
            }
        });
        Group { category, queries: queries.len(), values: values.collect() }
    }
}
