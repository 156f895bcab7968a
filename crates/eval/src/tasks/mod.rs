//! The papers' tasks: what is ranked, for whom, and what it is judged by.

mod dialogues;
mod lists;
mod pairs;

pub use dialogues::{DialogueTask, Profile};
pub use lists::{Candidates, ListTask};
pub use pairs::PairTask;

use serde::{Deserialize, Serialize};

use super::rank::{Pool, Progress, Scorer};
use turnwise_core::error::Result;

/// Something that a ranker is asked to do.
pub trait Task: Sync {
    /// A short name, as it is typed.
    fn name(&self) -> &'static str;

    /// What it is, with its paper.
    fn about(&self) -> &'static str;

    /// How many of what it has, for people.
    fn size(&self) -> String;

    /// What is ranked.
    fn pool(&self) -> &Pool;

    /// Counted things that were left out, and why.
    fn skipped(&self) -> &[Skipped];

    /// Everything that changes its values but the data, in words.
    fn identity(&self) -> String;

    /// How many classes it sorts things into, where it does.
    fn classes(&self) -> Option<usize> {
        None
    }

    /// What a ranker reaches; with `keep`, the rankings themselves as well.
    fn run(&self, scorer: &dyn Scorer, keep: bool, watch: &dyn Progress) -> Result<Outcome>;
}

/// So many of something were left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// What, and why.
    pub what: String,
    /// How many.
    pub count: u64,
    /// The first of them.
    pub first: String,
}

impl Skipped {
    /// Counts one more.
    pub fn count(all: &mut Vec<Skipped>, what: &str, which: impl FnOnce() -> String) {
        match all.iter_mut().find(|skipped| skipped.what == what) {
            Some(skipped) => skipped.count += 1,
            None => all.push(Skipped { what: what.to_owned(), count: 1, first: which() }),
        }
    }
}

/// What came of a task.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// By measure.
    pub values: Vec<Value>,
    /// The ids of the queries that values are of, one by one.
    pub queries: Vec<String>,
    /// Each query's ranking, if asked for.
    pub rankings: Vec<Ranked>,
    /// What else an outside tool needs for the same numbers, if asked for.
    pub columns: Vec<Columns>,
    /// Where things lie, for tasks that have vectors and labels.
    pub map: Option<Map>,
}

/// What is no ranking, line by line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Columns {
    /// What it is of, as the ending of a file.
    pub name: &'static str,
    /// The names of the columns.
    pub names: Vec<String>,
    /// The cells of each line.
    pub rows: Vec<Vec<String>>,
}

/// Things on a plane, near each other where their vectors are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Map {
    /// What the labels are called.
    pub names: Vec<String>,
    /// The label of each, by number.
    pub labels: Vec<usize>,
    /// The id of each.
    pub ids: Vec<String>,
    /// The place of each, within −1 to 1.
    pub points: Vec<[f32; 2]>,
}

/// The ranking of a query.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ranked {
    /// The query's id.
    pub query: String,
    /// Ids, scores and grades, the best first.
    pub documents: Vec<(String, f32, Option<i32>)>,
}

/// A number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// The measure.
    pub measure: String,
    /// In the mean.
    pub value: f64,
    /// The deviation over the draws, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation: Option<f64>,
    /// What chance would have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<f64>,
    /// Of each query, or of each draw.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<f64>,
}
