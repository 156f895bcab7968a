//! What is told of a run step by step, as JSON lines: whatever is of a later step than the run is goes.

use std::{
    fs::{self, File, OpenOptions},
    io::{BufRead, BufReader, Write},
    marker::PhantomData,
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};

use turnwise_core::error::{Error, IoContext, Result};

/// Something that is told of a step.
pub trait OfStep: Serialize + DeserializeOwned {
    /// Steps taken when it was told.
    fn step(&self) -> u64;
}

/// A file of such lines, open to be added to.
pub struct Lines<T> {
    path: PathBuf,
    file: File,
    of: PhantomData<T>,
}

impl<T: OfStep> Lines<T> {
    /// Opens the file of a run that has taken so many steps; what it says of later ones is dropped.
    pub fn open(path: &Path, steps: u64) -> Result<Self> {
        let kept: String = match path.exists() {
            false => String::new(),
            true => read::<T>(path)?.iter().filter(|l| l.step() <= steps).map(text).collect::<Result<_>>()?,
        };
        turnwise_core::files::replace(path, kept.as_bytes())?;
        let file = OpenOptions::new().append(true).open(path).at("open", path)?;
        Ok(Lines { path: path.to_owned(), file, of: PhantomData })
    }

    /// Drops all that there is.
    pub fn clear(&mut self) -> Result<()> {
        self.file.set_len(0).at("empty", &self.path)
    }

    /// Adds a line.
    pub fn add(&mut self, line: &T) -> Result<()> {
        self.file.write_all(text(line)?.as_bytes()).at("write", &self.path)
    }
}

fn text<T: OfStep>(line: &T) -> Result<String> {
    let text = serde_json::to_string(line).map_err(|e| Error::Internal(e.to_string()))?;
    Ok(text + "\n")
}

/// The lines of a file. A last one that was not written to its end is none.
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

    #[derive(Debug, PartialEq, Serialize, serde::Deserialize)]
    struct Said {
        step: u64,
    }

    impl OfStep for Said {
        fn step(&self) -> u64 {
            self.step
        }
    }

    #[test]
    fn what_is_later_and_what_is_torn_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        let mut lines = Lines::open(&path, 0).unwrap();
        (1..=5).for_each(|step| lines.add(&Said { step }).unwrap());
        let torn = fs::read_to_string(&path).unwrap() + "{\"st";
        fs::write(&path, torn).unwrap();
        let mut lines = Lines::open(&path, 3).unwrap();
        lines.add(&Said { step: 4 }).unwrap();
        let steps: Vec<u64> = read::<Said>(&path).unwrap().iter().map(|l| l.step).collect();
        assert_eq!(steps, [1, 2, 3, 4]);
    }
}
