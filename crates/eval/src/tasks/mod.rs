//! Evaluation tasks from papers. A task consists of documents, queries, relevance judgments and measures.

mod ad_hoc;
mod dialogues;
mod memory;
mod ranking;
mod response_selection;
mod semantic_retrieval;
mod similarity;

use std::{
    fmt,
    path::{Path, PathBuf},
};

pub use ad_hoc::AdHoc;
pub use dialogues::{DialogueRetrieval, DialogueTask, Profile};
pub use memory::{DEPTH as MEMORY_DEPTH, Memory, MemoryTask, Question};
pub use ranking::{Candidates, RankingTask};
pub use response_selection::ResponseSelection;
pub use semantic_retrieval::{SemanticRetrieval, semantic_retrieval, semantic_retrieval_of};
pub use similarity::Similarity;

use serde::{Deserialize, Serialize};

use super::{
    data,
    rank::{Pool, Progress, Scorer},
    result::Data,
};
use turnwise_core::error::Result;
use turnwise_corpus::Dialogue;

/// A kind of task with its settings, as stored in a recipe. Paths are relative to the data folder.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum TaskSpec {
    /// Semantic retrieval (DialogueCSE): sentences with the intent of the query must rank above other sentences.
    Sr(SemanticRetrieval),
    /// Sentence similarity (DialogueCSE): the scores of sentence pairs must correlate with human scores.
    Dsts(Similarity),
    /// The three tasks of dial2vec, on dialogues that have a domain.
    Dialogues(DialogueRetrieval),
    /// Response selection: the real response must rank above other candidates.
    Response(ResponseSelection),
    /// Ad-hoc retrieval on a data set in BEIR's layout.
    Adhoc(AdHoc),
    /// Search in long conversations: the turns that answer a question must be among the first hits.
    Memory(Memory),
}

impl TaskSpec {
    /// Creates a task with default settings from its name on the command line. Returns `None` if the name is unknown.
    pub fn from_name(name: &str, data: PathBuf) -> Option<Self> {
        serde_json::from_value(serde_json::json!({"kind": name, "data": data})).ok()
    }

    /// Returns the settings of the task.
    pub fn settings(&self) -> &dyn TaskSettings {
        match self {
            TaskSpec::Sr(settings) => settings,
            TaskSpec::Dsts(settings) => settings,
            TaskSpec::Dialogues(settings) => settings,
            TaskSpec::Response(settings) => settings,
            TaskSpec::Adhoc(settings) => settings,
            TaskSpec::Memory(settings) => settings,
        }
    }
}

/// Settings of a task: the paths of its data, and its options.
pub trait TaskSettings {
    /// Returns the command line that runs the task on the data in `folder`, without the arguments that select rankers.
    fn command(&self, folder: &Path) -> String;

    /// Returns the paths of the task's files, relative to the data folder.
    fn files(&self) -> Vec<&Path>;

    /// Reads the data and creates the task. `folder` is the data folder.
    fn load(&self, folder: &Path, with: &LoadOptions<'_>) -> Result<Loaded>;
}

/// Options for loading a task.
pub struct LoadOptions<'a> {
    /// Random seed.
    pub seed: u64,
    /// Function that reads the dialogues in a file or folder.
    pub read_dialogues: &'a dyn Fn(&Path) -> Result<Vec<Dialogue>>,
    /// Receiver of progress reports.
    pub progress: &'a dyn Progress,
}

/// A task with a description of its data.
pub struct Loaded {
    /// The task, ready to run.
    pub task: Box<dyn Task>,
    /// Paths, hash and size of the data.
    pub data: Data,
}

impl Loaded {
    /// Combines a task with the paths and the hash of its data.
    pub fn new(task: impl Task + 'static, files: &[PathBuf], hash: String) -> Self {
        let paths = files.iter().map(|path| path.display().to_string()).collect();
        Loaded { data: Data { paths, hash, size: task.size() }, task: Box::new(task) }
    }

    /// Combines a task with the paths of its data files and a hash of their content.
    pub fn from_files(task: impl Task + 'static, files: Vec<PathBuf>) -> Result<Self> {
        let hash = data::hash(&files)?;
        Ok(Loaded::new(task, &files, hash))
    }
}

/// Name and description of a task, as they are stored with its results.
#[derive(Debug, Clone, Copy)]
pub struct TaskDescription<'a> {
    /// Short name of the task that is used on the command line.
    pub name: &'a str,
    /// Description of the task.
    pub about: &'a str,
    /// Numbers of data items that were skipped, with the reasons.
    pub skipped: &'a [Skipped],
}

impl<'a> From<&'a dyn Task> for TaskDescription<'a> {
    fn from(task: &'a dyn Task) -> Self {
        TaskDescription { name: task.name(), about: task.about(), skipped: task.skipped() }
    }
}

/// Evaluation task. It evaluates rankers.
pub trait Task: Sync {
    /// Returns the short name of the task that is used on the command line.
    fn name(&self) -> &'static str;

    /// Returns a description of the task that contains the name of its paper.
    fn about(&self) -> &'static str;

    /// Returns the size of the task as text, for example "20 pairs".
    fn size(&self) -> String;

    /// Returns the documents to rank, and the queries for which they are ranked.
    fn pool(&self) -> &Pool;

    /// Returns the numbers of data items that were skipped, with the reasons.
    fn skipped(&self) -> &[Skipped];

    /// Returns a text that contains every setting that affects the values. The text does not identify the data, which
    /// has its own hash.
    fn identity(&self) -> String;

    /// Returns the number of classes. Returns `None` if the task has no classes.
    fn classes(&self) -> Option<usize> {
        None
    }

    /// Returns the dialogues and questions of the task if it can evaluate real searches. Returns `None` for other
    /// tasks.
    fn memory(&self) -> Option<&MemoryTask> {
        None
    }

    /// Evaluates the ranker that created `scorer`. If `keep` is true, the outcome also contains the rankings and other
    /// tables for export.
    fn run(&self, scorer: &dyn Scorer, keep: bool, watch: &dyn Progress) -> Result<Outcome>;
}

/// Number of items that were skipped for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Kind of the skipped items and the reason, as a text for users.
    pub what: String,
    /// Number of skipped items.
    pub count: u64,
    /// Id or position of the first skipped item, as an example.
    pub first: String,
}

impl Skipped {
    /// Adds one skipped item to the entry for `what`, or creates this entry. `id` is the id or position of the item.
    pub fn count(all: &mut Vec<Skipped>, what: &str, id: impl fmt::Display) {
        match all.iter_mut().find(|skipped| skipped.what == what) {
            Some(skipped) => skipped.count += 1,
            None => all.push(Skipped { what: what.to_owned(), count: 1, first: id.to_string() }),
        }
    }
}

/// Outcome of a task for one ranker.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// One value per measure.
    pub values: Vec<Value>,
    /// Ids of the queries. Each entry of `values` lists its query values in this order.
    pub queries: Vec<String>,
    /// Category of each query, in the order of `queries`; the empty text if a query has none. The list is empty if the
    /// task does not report categories.
    pub categories: Vec<String>,
    /// Ranking for each query. Empty unless [`Task::run`] was called with `keep`.
    pub rankings: Vec<Ranked>,
    /// Tables from which other tools can compute the same values. Empty unless [`Task::run`] was called with `keep`.
    pub columns: Vec<Columns>,
    /// Two-dimensional map of the documents; `None` if the task has no labels or the ranker has no vectors.
    pub map: Option<Map>,
}

/// Table of exported data that is not a ranking.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Columns {
    /// Name of the table. It is a part of the name of the exported file.
    pub name: &'static str,
    /// Names of the columns.
    pub names: Vec<String>,
    /// Cells of each row.
    pub rows: Vec<Vec<String>>,
}

/// Two-dimensional projection of vectors, in which similar vectors are close together.
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

/// Ranking of documents for one query.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ranked {
    /// Id of the query.
    pub query: String,
    /// Document ids with scores and grades, best first. The grade is `None` if the document is not judged.
    pub documents: Vec<(String, f32, Option<i32>)>,
}

/// Value of a measure for one ranker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// Name of the measure.
    pub measure: String,
    /// Mean value, not in percent: 0.5 means 50%.
    pub value: f64,
    /// Standard deviation over random draws or seeds; `None` if there is only one draw or seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation: Option<f64>,
    /// Random baseline: the expected value for random scores or a random assignment; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<f64>,
    /// Value of each query or of each random draw; empty if there are no such values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<f64>,
}

impl Value {
    /// Creates a value that has no deviation, no random baseline and no values of single queries.
    pub fn new(measure: &str, value: f64) -> Self {
        Value { measure: measure.to_owned(), value, deviation: None, floor: None, each: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_has_a_command_line() {
        let typed = |toml: &str| toml::from_str::<TaskSpec>(toml).unwrap().settings().command(Path::new("d"));
        assert_eq!(
            typed("kind = 'dsts'\ndata = 'sts.txt'\nbackground = 'select.txt'"),
            "turnwise bench dsts d/sts.txt --background d/select.txt"
        );
        assert_eq!(
            typed("kind = 'sr'\ndata = 'x'\nbuild = 'released'"),
            "turnwise bench build sr d/x --candidate-selection released -o select.txt && turnwise bench sr select.txt"
        );
        assert_eq!(
            typed("kind = 'dialogues'\ndata = 'x'\nprofile = 'code'"),
            "turnwise bench dialogues d/x --profile code"
        );
    }

    #[test]
    fn the_files_of_a_task_include_the_optional_ones() {
        let files = |toml: &str| {
            let spec: TaskSpec = toml::from_str(toml).unwrap();
            spec.settings().files().into_iter().map(Path::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(files("kind = 'adhoc'\ndata = 'a'\nqrels = 'b'"), [Path::new("a"), Path::new("b")]);
        assert_eq!(files("kind = 'adhoc'\ndata = 'a'"), [Path::new("a")]);
        assert_eq!(files("kind = 'dsts'\ndata = 'a'\nbackground = 'b'"), [Path::new("a"), Path::new("b")]);
    }

    #[test]
    fn unknown_tasks_and_settings_are_rejected() {
        assert!(TaskSpec::from_name("response", "x".into()).is_some());
        assert_eq!(TaskSpec::from_name("retrieval", "x".into()), None);
        for wrong in ["kind = 'sr'\ndata = 'x'\nqrels = 'y'", "kind = 'sr'", "data = 'x'"] {
            assert!(toml::from_str::<TaskSpec>(wrong).is_err(), "{wrong}");
        }
    }
}
