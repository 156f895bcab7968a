//! Recipes: a row of a paper's table, or a study, as a file. What is ranked, by whom, and what should come of it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{build, result::Done, tasks::Profile};
use crate::error::{Error, Result};

/// A recipe, as its file has it.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// What it is, for people.
    pub about: String,
    /// The paper and its table.
    pub paper: String,
    /// What is ranked.
    pub task: TaskSpec,
    /// By whom, and what should come of it.
    pub rows: Vec<Row>,
}

/// A task, by its files below the folder of the data.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum TaskSpec {
    /// Semantic retrieval.
    Sr {
        /// A file as select.txt, or, with a recipe for it, labelled sentences.
        data: PathBuf,
        /// How the set is made of labelled sentences.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        build: Option<build::Recipe>,
    },
    /// Similarity of sentences.
    Dsts {
        /// A file as sts.txt.
        data: PathBuf,
        /// Sentences by which words are weighed, too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        background: Option<PathBuf>,
    },
    /// dial2vec's three tasks.
    Dialogues {
        /// Dialogues with a domain each.
        data: PathBuf,
        /// By the paper's text or by its code.
        #[serde(default = "paper")]
        profile: Profile,
    },
    /// Response selection.
    Response {
        /// Samples.
        data: PathBuf,
    },
    /// Ad-hoc retrieval.
    Adhoc {
        /// A folder as BEIR has it.
        data: PathBuf,
        /// Other judgments than its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        qrels: Option<PathBuf>,
    },
}

fn paper() -> Profile {
    Profile::Paper
}

/// A ranker and what it should reach.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// As `--ranker` has it.
    pub ranker: String,
    /// What should come of it, in hundredths, by measure.
    #[serde(default)]
    pub expected: BTreeMap<String, f64>,
    /// How far off it may be.
    #[serde(default = "within")]
    pub within: f64,
    /// What the paper has in that place, in hundredths.
    #[serde(default)]
    pub paper: BTreeMap<String, f64>,
    /// Where the numbers come from, and why ours may differ.
    #[serde(default)]
    pub note: String,
}

fn within() -> f64 {
    0.1
}

impl TaskSpec {
    /// Its files, below the folder of the data.
    pub fn files(&self) -> Vec<&Path> {
        match self {
            TaskSpec::Dsts { data, background } => {
                std::iter::once(data.as_path()).chain(background.as_deref()).collect()
            }
            TaskSpec::Sr { data, .. }
            | TaskSpec::Dialogues { data, .. }
            | TaskSpec::Response { data }
            | TaskSpec::Adhoc { data, .. } => vec![data],
        }
    }
}

impl Recipe {
    /// Refuses what cannot be run or judged.
    pub fn check(&self, name: &str) -> Result<()> {
        let wrong =
            |why: String| Err(Error::Data { message: format!("the recipe {name}: {why}"), hint: None });
        if self.rows.is_empty() {
            return wrong("it has no [[rows]]".to_owned());
        }
        for row in &self.rows {
            if !(row.within >= 0.0 && row.within.is_finite()) {
                return wrong(format!("`within` of {} is no number of 0 or more", row.ranker));
            }
            if let Some((measure, _)) = row.expected.iter().chain(&row.paper).find(|(_, v)| !v.is_finite()) {
                return wrong(format!("what {} should have of {measure} is no finite number", row.ranker));
            }
        }
        Ok(())
    }
}

/// How a row came out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Checked {
    /// The measure.
    pub measure: String,
    /// What came of it, in hundredths.
    pub value: f64,
    /// What should have.
    pub expected: f64,
    /// Whether it is near enough.
    pub holds: bool,
}

impl Row {
    /// Judges a result. An error where something is expected that the ranker does not have.
    pub fn check(&self, done: &Done) -> Result<Vec<Checked>> {
        let checked = |(measure, expected): (&String, &f64)| {
            let value = done.value(measure).ok_or_else(|| {
                let has: Vec<&str> = done.values.iter().map(|value| value.measure.as_str()).collect();
                Error::Data {
                    message: format!("{} has no {measure}, of which a recipe expects something", done.ranker),
                    hint: Some(format!("it has {}", has.join(", "))),
                }
            })?;
            let value = 100.0 * value.value;
            // What is printed with one digit may be half of the last one off.
            let holds = (value - expected).abs() <= self.within + 0.05;
            Ok(Checked { measure: measure.clone(), value, expected: *expected, holds })
        };
        self.expected.iter().map(checked).collect()
    }
}
