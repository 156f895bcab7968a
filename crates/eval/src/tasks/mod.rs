//! Evaluation tasks from the papers: documents, queries, relevance judgments and measures.

mod ad_hoc;
mod dialogues;
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

/// A task with its settings, as stored in a recipe. Paths are relative to the data folder.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum TaskSpec {
    /// Semantic retrieval: sentences with the same intent rank above others (DialogueCSE).
    Sr(SemanticRetrieval),
    /// Sentence similarity: correlation with human scores (DialogueCSE).
    Dsts(Similarity),
    /// The three dial2vec tasks on dialogues with domains.
    Dialogues(DialogueRetrieval),
    /// Response selection: the real response ranks above other candidates.
    Response(ResponseSelection),
    /// Ad-hoc retrieval on a data set in BEIR's layout.
    Adhoc(AdHoc),
}

impl TaskSpec {
    /// Creates a task with default settings from its name on the command line. Returns `None` for an unknown name.
    pub fn from_name(name: &str, data: PathBuf) -> Option<Self> {
        serde_json::from_value(serde_json::json!({"kind": name, "data": data})).ok()
    }

    /// The settings of the task.
    pub fn settings(&self) -> &dyn TaskSettings {
        match self {
            TaskSpec::Sr(settings) => settings,
            TaskSpec::Dsts(settings) => settings,
            TaskSpec::Dialogues(settings) => settings,
            TaskSpec::Response(settings) => settings,
            TaskSpec::Adhoc(settings) => settings,
        }
    }
}

/// Settings of a task: the paths of its data, and its options.
pub trait TaskSettings {
    /// Command line that runs the task on data in a folder, without the rankers.
    fn command(&self, folder: &Path) -> String;

    /// Files of the task, relative to the data folder.
    fn files(&self) -> Vec<&Path>;

    /// Reads the data. `folder` is the data folder.
    fn load(&self, folder: &Path, with: &LoadOptions<'_>) -> Result<Loaded>;
}

/// Options for loading a task.
pub struct LoadOptions<'a> {
    /// Random seed.
    pub seed: u64,
    /// Reads the dialogues of a file or folder.
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

/// An evaluation task for rankers.
pub trait Task: Sync {
    /// Short name, as on the command line.
    fn name(&self) -> &'static str;

    /// Description, with the name of the paper.
    fn about(&self) -> &'static str;

    /// Size of the task as text, for example "20 pairs".
    fn size(&self) -> String;

    /// Documents to rank, and the queries for which they are ranked.
    fn pool(&self) -> &Pool;

    /// Items of the data that were skipped, with reasons and counts.
    fn skipped(&self) -> &[Skipped];

    /// Text with every setting that affects the values. The data is identified separately, by hash.
    fn identity(&self) -> String;

    /// Number of classes; `None` if the task has no classes.
    fn classes(&self) -> Option<usize> {
        None
    }

    /// Evaluates a ranker. With `keep`, the outcome also contains the rankings and other tables for export.
    fn run(&self, scorer: &dyn Scorer, keep: bool, watch: &dyn Progress) -> Result<Outcome>;
}

/// Number of items that were skipped for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Kind of the skipped items, and the reason, as shown to users.
    pub what: String,
    /// Number of skipped items.
    pub count: u64,
    /// Id or position of the first skipped item, as an example.
    pub first: String,
}

impl Skipped {
    /// Adds one item to the count for `what`. `id` is the id or position of the item.
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
    /// Query ids, in the order of the per-query values.
    pub queries: Vec<String>,
    /// Ranking of each query; empty unless requested.
    pub rankings: Vec<Ranked>,
    /// Tables from which other tools can compute the same values; empty unless requested.
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

/// Ranking of one query.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ranked {
    /// Query id.
    pub query: String,
    /// Document ids with scores and grades, best first. The grade is `None` if the document is not judged.
    pub documents: Vec<(String, f32, Option<i32>)>,
}

/// Value of a measure for one ranker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Value {
    /// Name of the measure.
    pub measure: String,
    /// Mean value, as a fraction, not in percent.
    pub value: f64,
    /// Standard deviation over random draws or seeds; `None` if there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation: Option<f64>,
    /// Random baseline: the average value of random scores or of a random assignment; `None` if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<f64>,
    /// Value of each query or each draw.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<f64>,
}

impl Value {
    /// Creates a value without deviation, random baseline and single values.
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
