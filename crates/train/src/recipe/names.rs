//! Named values of recipes: objectives, their variants, and dev tasks.

use std::{path::PathBuf, str::FromStr};

use serde::{Deserialize, Serialize};

use turnwise_core::error::{Error, Result};

/// Training objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectiveName {
    /// DialogueCSE: utterance embeddings.
    Dialoguecse,
    /// dial2vec: dialogue embeddings.
    Dial2vec,
    /// Unsupervised SimCSE: utterance embeddings.
    Simcse,
    /// Dialogue embeddings, distilled from a teacher that combines word and vector similarities (ours).
    Neighbours,
    /// Utterance embeddings: a closed-form linear layer, learned from the neighboring turns (ours).
    Surroundings,
    /// Response selection with in-batch negatives (ours).
    Responses,
    /// Utterance embeddings: classification by speaker role and position in the dialogue (ours).
    Places,
    /// SiameseBERT-S: a matching layer between one context turn and the response.
    SiameseS,
    /// SiameseBERT-M: perceptrons between the context, as one sequence, and the response.
    SiameseM,
    /// Masked language modeling.
    Words,
    /// Utterance relevance classification.
    Relevance,
    /// DialogueCSE with hard negatives, combined with dial2vec, neighbours and keep.
    Joint,
    /// Auxiliary objective: keeps utterance embeddings close to those of the base model (ours).
    Keep,
}

impl ObjectiveName {
    /// All objectives.
    pub const ALL: [ObjectiveName; 13] = [
        ObjectiveName::Dialoguecse,
        ObjectiveName::Dial2vec,
        ObjectiveName::Simcse,
        ObjectiveName::Neighbours,
        ObjectiveName::Surroundings,
        ObjectiveName::Responses,
        ObjectiveName::Places,
        ObjectiveName::SiameseS,
        ObjectiveName::SiameseM,
        ObjectiveName::Words,
        ObjectiveName::Relevance,
        ObjectiveName::Joint,
        ObjectiveName::Keep,
    ];

    /// Name on the command line and in recipes.
    pub fn name(self) -> &'static str {
        match self {
            ObjectiveName::Dialoguecse => "dialoguecse",
            ObjectiveName::Dial2vec => "dial2vec",
            ObjectiveName::Simcse => "simcse",
            ObjectiveName::Neighbours => "neighbours",
            ObjectiveName::Surroundings => "surroundings",
            ObjectiveName::Responses => "responses",
            ObjectiveName::Places => "places",
            ObjectiveName::SiameseS => "siamese-s",
            ObjectiveName::SiameseM => "siamese-m",
            ObjectiveName::Words => "words",
            ObjectiveName::Relevance => "relevance",
            ObjectiveName::Joint => "joint",
            ObjectiveName::Keep => "keep",
        }
    }

    /// Recommended benchmark for the objective: task and data, as an argument of `turnwise bench`.
    pub fn bench(self) -> &'static str {
        match self {
            ObjectiveName::Dial2vec | ObjectiveName::Neighbours | ObjectiveName::Joint => {
                "dialogues labelled.jsonl"
            }
            ObjectiveName::Responses | ObjectiveName::Relevance => "response responses.jsonl",
            _ => "sr select.txt",
        }
    }
}

impl FromStr for ObjectiveName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // Best objective for dialogues so far: see "What training gains" in benchmarks/README.md.
        let text = if text == "auto" { "neighbours" } else { text };
        let known = ObjectiveName::ALL.into_iter().find(|o| o.name() == text);
        known.ok_or_else(|| {
            Error::unknown_name("objective", text, ObjectiveName::ALL.map(ObjectiveName::name))
        })
    }
}

/// Variant of an objective: the paper, or its released code where they differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// As described in the paper.
    #[default]
    Paper,
    /// As implemented in the released code.
    Code,
}

/// Aggregation of the context turns in DialogueCSE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Aggregation {
    /// I₁: weighted mean.
    I1,
    /// I₂: mean.
    #[default]
    I2,
}

impl FromStr for Profile {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "paper" => Ok(Profile::Paper),
            "code" => Ok(Profile::Code),
            _ => Err(Error::unknown_name("profile", text, ["paper", "code"])),
        }
    }
}

impl FromStr for Aggregation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "i1" => Ok(Aggregation::I1),
            "i2" => Ok(Aggregation::I2),
            _ => Err(Error::unknown_name("aggregation", text, ["i1", "i2"])),
        }
    }
}

/// A benchmark task with its data, for example `sr:select.txt`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DevTask {
    /// Name of the task.
    pub task: String,
    /// Path of its data.
    pub data: PathBuf,
}

impl DevTask {
    /// Names of the tasks.
    pub const KNOWN: [&str; 4] = ["sr", "dsts", "response", "dialogues"];
}

impl FromStr for DevTask {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some((task, data)) = text.split_once(':').filter(|(_, data)| !data.is_empty()) else {
            return Err(Error::input(format!("`{text}` is not a task with its data (TASK:PATH)"))
                .with_hint("for example: dialogues:labelled.jsonl or sr:select.txt"));
        };
        match DevTask::KNOWN.contains(&task) {
            true => Ok(DevTask { task: task.to_owned(), data: data.into() }),
            false => Err(Error::unknown_name("task", task, DevTask::KNOWN)),
        }
    }
}

impl TryFrom<String> for DevTask {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<DevTask> for String {
    fn from(task: DevTask) -> String {
        format!("{}:{}", task.task, task.data.display())
    }
}
