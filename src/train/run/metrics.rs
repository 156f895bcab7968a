//! What a run comes to, step by step, as JSON lines.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::error::{Error, IoContext, Result};

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Steps taken, this one included.
    pub step: u64,
    /// What the examples cost on average, before the step.
    pub loss: f64,
    /// The learning rate.
    pub learning_rate: f64,
    /// How long the gradient was.
    pub gradient: f64,
    /// Examples.
    pub examples: usize,
    /// Tokens.
    pub tokens: usize,
    /// Seconds that the step took.
    pub seconds: f64,
}

/// The file, open to be added to.
pub struct Metrics {
    path: PathBuf,
    file: File,
}

impl Metrics {
    /// Opens the file of a run that has taken so many steps; what it says of later ones is dropped.
    pub fn open(path: &Path, steps: u64) -> Result<Self> {
        let kept: String = match path.exists() {
            false => String::new(),
            true => read(path)?.iter().filter(|l| l.step <= steps).map(text).collect::<Result<_>>()?,
        };
        crate::store::files::replace(path, kept.as_bytes())?;
        let file = OpenOptions::new().append(true).open(path).at("open", path)?;
        Ok(Metrics { path: path.to_owned(), file })
    }

    /// Adds a line.
    pub fn add(&mut self, line: &Line) -> Result<()> {
        self.file.write_all(text(line)?.as_bytes()).at("write", &self.path)
    }
}

fn text(line: &Line) -> Result<String> {
    let text = serde_json::to_string(line).map_err(|e| Error::Internal(e.to_string()))?;
    Ok(text + "\n")
}

/// The lines of a file. A last one that was not written to its end is none.
pub fn read(path: &Path) -> Result<Vec<Line>> {
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
