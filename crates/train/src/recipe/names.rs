//! What is chosen by a name: objectives, their ways, tasks to measure by.

use std::{path::PathBuf, str::FromStr};

use serde::{Deserialize, Serialize};

use turnwise_core::error::{Error, Result};

/// What is trained for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectiveName {
    /// DialogueCSE, for utterances.
    Dialoguecse,
    /// dial2vec, for dialogues.
    Dial2vec,
    /// SimCSE without labels, for utterances.
    Simcse,
    /// Ours, for dialogues: taught by what their words and their vectors agree on.
    Neighbours,
    /// Ours, for utterances, without steps: a linear layer by what is said around each.
    Surroundings,
    /// Ours, for responses: what is said next is like the turns before it.
    Responses,
    /// Ours, for utterances: who says it, and where in the dialogue.
    Places,
    /// SiameseBERT-S: a layer between one turn and its response.
    SiameseS,
    /// SiameseBERT-M: layers between several turns as one sequence and their response.
    SiameseM,
    /// Masked words, as BERT was trained.
    Words,
    /// Whether a response belongs to the turns before it.
    Relevance,
    /// DialogueCSE with hard negatives, dial2vec and neighbours at once, utterances kept where they are.
    Joint,
    /// Ours, beside another: utterances stay where they are.
    Keep,
}

impl ObjectiveName {
    /// All of them.
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

    /// As it is typed.
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

    /// The benchmark that tells what it gains, with its data, as it is typed.
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
        // What gained most on dialogues so far: "What training gains" in benchmarks/README.md.
        let text = if text == "auto" { "neighbours" } else { text };
        let known = ObjectiveName::ALL.into_iter().find(|o| o.name() == text);
        known.ok_or_else(|| {
            Error::unknown_name("objective", text, ObjectiveName::ALL.map(ObjectiveName::name))
        })
    }
}

/// By the text of a paper, or by its released code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// The text.
    #[default]
    Paper,
    /// The code.
    Code,
}

/// How the turns of a context become one, in DialogueCSE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Aggregation {
    /// I₁: weighed.
    I1,
    /// I₂: their mean.
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

/// A task of the benchmarks, and its data: `sr:select.txt`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DevTask {
    /// Which.
    pub task: String,
    /// Its data.
    pub data: PathBuf,
}

impl DevTask {
    /// The tasks that there are.
    pub const KNOWN: [&str; 4] = ["sr", "dsts", "response", "dialogues"];
}

impl FromStr for DevTask {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some((task, data)) = text.split_once(':').filter(|(_, data)| !data.is_empty()) else {
            return Err(Error::input(format!("`{text}` is no task with its data"))
                .with_hint("write it as dialogues:labelled.jsonl or sr:select.txt"));
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
