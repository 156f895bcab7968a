//! Logs of a run in JSON lines: metrics and evaluations by step. A resumed run first removes the records of steps after
//! its checkpoint.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::trainer::StepResult;
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};

/// A log file, open for appending.
pub(super) struct Lines {
    path: PathBuf,
    file: File,
}

/// The step that a record belongs to.
#[derive(Debug, Serialize, Deserialize)]
struct Position {
    step: u64,
    #[serde(default)]
    layer: bool,
}

impl Lines {
    /// Opens the log of a run that has taken `steps` steps, and removes the records of later steps. If a record is
    /// about a model with an appended layer, it counts as a record of the next step.
    pub(super) fn open(path: &Path, steps: u64) -> Result<Self> {
        let lines = if path.exists() { complete_lines::<Position>(path)? } else { Vec::new() };
        let earlier = lines.into_iter().filter(|(_, of)| of.step + u64::from(of.layer) <= steps);
        let kept: String = earlier.map(|(line, _)| line + "\n").collect();
        files::replace(path, kept.as_bytes())?;
        let file = OpenOptions::new().append(true).open(path).at("open", path)?;
        Ok(Lines { path: path.to_owned(), file })
    }

    pub(super) fn add(&mut self, record: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(record).map_err(|e| Error::Internal(e.to_string()))?;
        self.file.write_all((text + "\n").as_bytes()).at("write", &self.path)
    }
}

/// Metrics of one step: a record of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    #[serde(flatten)]
    pub(super) result: StepResult,
    /// Duration of the step in seconds.
    pub(super) seconds: f64,
}

/// Reads the records of a log, up to the first invalid line. A crash can truncate the last line.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    Ok(complete_lines(path)?.into_iter().map(|(_, record)| record).collect())
}

/// Reads the lines of a log, each with its record, up to the first invalid line.
fn complete_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<(String, T)>> {
    let mut lines = Vec::new();
    for line in BufReader::new(File::open(path).at("read", path)?).lines() {
        let line = line.at("read", path)?;
        match serde_json::from_str(&line) {
            Ok(record) => lines.push((line, record)),
            Err(_) => break,
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn later_and_truncated_records_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        let mut lines = Lines::open(&path, 0).unwrap();
        (1..=5).for_each(|step| lines.add(&Position { step, layer: false }).unwrap());
        let truncated = fs::read_to_string(&path).unwrap() + "{\"st";
        fs::write(&path, truncated).unwrap();
        let mut lines = Lines::open(&path, 3).unwrap();
        lines.add(&Position { step: 4, layer: true }).unwrap();
        let steps: Vec<u64> = read::<Position>(&path).unwrap().iter().map(|l| l.step).collect();
        assert_eq!(steps, [1, 2, 3, 4]);
        // A record with a layer counts as one step later, so this call removes it.
        Lines::open(&path, 4).unwrap();
        assert_eq!(read::<Position>(&path).unwrap().len(), 3);
    }
}
