//! Labeled tasks that evaluate the model during training.

use std::{path::PathBuf, str::FromStr};

use serde::{Deserialize, Serialize};

use turnwise_core::error::{Error, Result};

/// A benchmark task with its data, for example `sr:select.txt`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DevTask {
    /// Name of the task, one of [`DevTask::KNOWN`].
    pub task: String,
    /// Path of the task's data.
    pub data: PathBuf,
}

impl DevTask {
    /// Names of all supported tasks.
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
