//! Evaluation tasks from the papers: documents, queries, relevance judgments and measures.

mod dialogues;
mod lists;
mod pairs;

pub use dialogues::{DialogueTask, Profile};
pub use lists::{Candidates, ListTask};
pub use pairs::PairTask;

use serde::{Deserialize, Serialize};

use super::rank::{Pool, Progress, Scorer};
use turnwise_core::error::Result;

/// An evaluation task for rankers.
pub trait Task: Sync {
    /// Short name, as on the command line.
    fn name(&self) -> &'static str;

    /// Description with the paper's name.
    fn about(&self) -> &'static str;

    /// Size of the task in words, for example "20 pairs".
    fn size(&self) -> String;

    /// The documents and queries.
    fn pool(&self) -> &Pool;

    /// What was left out of the data, with reasons and counts.
    fn skipped(&self) -> &[Skipped];

    /// Text that identifies every setting that affects the values. The data is identified separately, by hash.
    fn identity(&self) -> String;

    /// Number of classes, for a classification task.
    fn classes(&self) -> Option<usize> {
        None
    }

    /// Evaluates a ranker. With `keep`, the outcome also contains the rankings.
    fn run(&self, scorer: &dyn Scorer, keep: bool, watch: &dyn Progress) -> Result<Outcome>;
}

/// Count of items that were left out for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The kind of item and the reason.
    pub what: String,
    /// Number of items.
    pub count: u64,
    /// The first such item, as an example.
    pub first: String,
}

impl Skipped {
    /// Adds one item to the count for `what`.
    pub fn count(all: &mut Vec<Skipped>, what: &str, which: impl FnOnce() -> String) {
        match all.iter_mut().find(|skipped| skipped.what == what) {
            Some(skipped) => skipped.count += 1,
            None => all.push(Skipped { what: what.to_owned(), count: 1, first: which() }),
        }
    }
}

/// Outcome of a task for one ranker.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// One value per measure.
    pub values: Vec<Value>,
    /// Query ids, in the order of the per-query values.
    pub queries: Vec<String>,
    /// The ranking of each query, if requested.
    pub rankings: Vec<Ranked>,
    /// Tables from which other tools can compute the same numbers, if requested.
    pub columns: Vec<Columns>,
    /// Two-dimensional map, for tasks with vectors and labels.
    pub map: Option<Map>,
}

/// Table of exported data that is not a ranking.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Columns {
    /// Name of the table, used as a file suffix.
    pub name: &'static str,
    /// Column names.
    pub names: Vec<String>,
    /// Cells of each row.
    pub rows: Vec<Vec<String>>,
}

/// Two-dimensional projection: points are close where their vectors are close.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Map {
    /// Names of the labels.
    pub names: Vec<String>,
    /// Index of each point's label in `names`.
    pub labels: Vec<usize>,
    /// Id of each point.
    pub ids: Vec<String>,
    /// Coordinates of each point, from −1 to 1.
    pub points: Vec<[f32; 2]>,
}

/// Ranking of one query.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ranked {
    /// Query id.
    pub query: String,
    /// Document ids with scores and grades, best first.
    pub documents: Vec<(String, f32, Option<i32>)>,
}

/// Value of a measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// Name of the measure.
    pub measure: String,
    /// Mean value.
    pub value: f64,
    /// Standard deviation, if there are several draws.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation: Option<f64>,
    /// Random baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<f64>,
    /// Value of each query or each draw.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<f64>,
}
