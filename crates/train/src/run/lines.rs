//! Logs of a run in JSON lines, one record per step: metrics and evaluations. When a run resumes, records of later
//! steps are removed.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, Write},
    marker::PhantomData,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use turnwise_core::error::{Error, IoContext, Result};

/// A log record that belongs to a step.
pub trait OfStep: Serialize + DeserializeOwned {
    /// Number of steps taken when the record was written.
    fn step(&self) -> u64;
}

/// A log file, open for appending.
pub struct Lines<T> {
    path: PathBuf,
    file: File,
    of: PhantomData<T>,
}

impl<T: OfStep> Lines<T> {
    /// Opens the log of a run that has taken `steps` steps, and removes the records of later steps.
    pub fn open(path: &Path, steps: u64) -> Result<Self> {
        let kept: String = match path.exists() {
            false => String::new(),
            true => read::<T>(path)?.iter().filter(|l| l.step() <= steps).map(text).collect::<Result<_>>()?,
        };
        turnwise_core::files::replace(path, kept.as_bytes())?;
        let file = OpenOptions::new().append(true).open(path).at("open", path)?;
        Ok(Lines { path: path.to_owned(), file, of: PhantomData })
    }

    /// Removes all records from the file.
    pub fn clear(&mut self) -> Result<()> {
        self.file.set_len(0).at("empty", &self.path)
    }

    /// Appends a record as a line of JSON.
    pub fn add(&mut self, line: &T) -> Result<()> {
        self.file.write_all(text(line)?.as_bytes()).at("write", &self.path)
    }
}

/// Metrics of one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Number of steps taken, including this one.
    pub step: u64,
    /// Mean loss of the examples, before the update.
    pub loss: f64,
    /// Learning rate of the step.
    pub learning_rate: f64,
    /// Gradient norm before clipping.
    pub gradient: f64,
    /// Number of examples in the batch.
    pub examples: usize,
    /// Number of tokens in the batch.
    pub tokens: usize,
    /// Duration of the step in seconds.
    pub seconds: f64,
}

impl OfStep for Line {
    fn step(&self) -> u64 {
        self.step
    }
}

fn text<T: OfStep>(line: &T) -> Result<String> {
    let text = serde_json::to_string(line).map_err(|e| Error::Internal(e.to_string()))?;
    Ok(text + "\n")
}

/// Reads the records of a file, up to the first incomplete line: a crash can truncate the last one.
pub fn read<T: OfStep>(path: &Path) -> Result<Vec<T>> {
    let file = BufReader::new(fs::File::open(path).at("read", path)?);
    let mut lines = Vec::new();
    for line in file.lines() {
        match serde_json::from_str(&line.at("read", path)?) {
            Ok(line) => lines.push(line),
            Err(_) => break,
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Entry {
        step: u64,
    }

    impl OfStep for Entry {
        fn step(&self) -> u64 {
            self.step
        }
    }

    #[test]
    fn later_and_truncated_records_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        let mut lines = Lines::open(&path, 0).unwrap();
        (1..=5).for_each(|step| lines.add(&Entry { step }).unwrap());
        let truncated = fs::read_to_string(&path).unwrap() + "{\"st";
        fs::write(&path, truncated).unwrap();
        let mut lines = Lines::open(&path, 3).unwrap();
        lines.add(&Entry { step: 4 }).unwrap();
        let steps: Vec<u64> = read::<Entry>(&path).unwrap().iter().map(|l| l.step).collect();
        assert_eq!(steps, [1, 2, 3, 4]);
    }
}
