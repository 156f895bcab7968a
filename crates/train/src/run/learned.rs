//! What a layer was learned from, and how much it tells: `layer.json` in the folder of a run.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};

use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};

/// What was looked at, and what was found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    /// Dialogues that were looked at.
    pub dialogues: u64,
    /// Their turns.
    pub utterances: u64,
    /// The tokens of those.
    pub tokens: u64,
    /// Seconds that it took.
    pub seconds: f64,
    /// How much each direction tells of what is said around an utterance, from 1 (all) to 0, falling.
    pub told: Vec<f64>,
    /// How much the most telling direction tells of what is said elsewhere.
    pub by_chance: f64,
}

impl Learned {
    /// How many directions tell more than chance does.
    pub fn telling(&self) -> usize {
        self.told.iter().filter(|told| **told > self.by_chance).count()
    }

    /// Writes it.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string(self).map_err(|e| Error::Internal(e.to_string()))?;
        files::replace(path, (text + "\n").as_bytes())
    }

    /// What stands in a file, if it is there.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(path).at("read", path)?;
        serde_json::from_str(&text).map(Some).map_err(|e| Error::Corrupt {
            path: path.to_owned(),
            what: e.to_string(),
            hint: "remove it: what was learned is learned again".to_owned(),
        })
    }
}
