//! Statistics of a learned `surroundings` layer: `layer.json` in the folder of a run.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};

use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};

/// Training data and canonical correlations of a layer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    /// Number of dialogues.
    pub dialogues: u64,
    /// Number of turns.
    pub utterances: u64,
    /// Number of tokens.
    pub tokens: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// Canonical correlations between utterances and their context, from 0 to 1, in descending order.
    pub told: Vec<f64>,
    /// Random baseline: the largest correlation between utterances and unrelated contexts.
    pub by_chance: f64,
}

impl Learned {
    /// Number of canonical correlations above the random baseline.
    pub fn telling(&self) -> usize {
        self.told.iter().filter(|correlation| **correlation > self.by_chance).count()
    }

    /// Writes the statistics to a file.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string(self).map_err(|e| Error::Internal(e.to_string()))?;
        files::replace(path, (text + "\n").as_bytes())
    }

    /// Reads the statistics from a file. Returns `None` if the file does not exist.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(path).at("read", path)?;
        serde_json::from_str(&text).map(Some).map_err(|e| Error::Corrupt {
            path: path.to_owned(),
            what: e.to_string(),
            hint: "remove this file: the layer is then learned again".to_owned(),
        })
    }
}
