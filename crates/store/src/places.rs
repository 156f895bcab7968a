//! Paths of the folders of an index.
//!
//! Each compaction writes the log, tables and records into new folders with the next number as a suffix. The manifest
//! contains the number of the folders in use.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{manifest::Manifest, records::Records};
use turnwise_core::{error::Result, files};

const PARTS: [&str; 3] = ["log", "tables", "records"];
/// Folder of an incomplete log that a compaction is writing.
const UNFINISHED: &str = "log.compacting";

/// Paths of the log, tables and records folders with the same number.
#[derive(Debug, Clone)]
pub struct Places {
    root: PathBuf,
    number: u64,
}

impl Places {
    /// Returns the folders that a manifest names.
    pub fn of(root: &Path, manifest: &Manifest) -> Self {
        Places { root: root.to_owned(), number: manifest.compacted }
    }

    /// Returns the folders of a new index.
    pub(super) fn first(root: &Path) -> Self {
        Places { root: root.to_owned(), number: 0 }
    }

    /// Returns the folders of the newest log, without reading a manifest. Every `log-N` folder is complete, because a
    /// compaction renames it at the end. Returns `None` if there is no log.
    pub fn newest(root: &Path) -> Option<Self> {
        let numbers = fs::read_dir(root).ok()?.flatten().filter_map(|e| match part(&e.file_name())? {
            ("log", number) => Some(number),
            _ => None,
        });
        numbers.max().map(|number| Places { root: root.to_owned(), number })
    }

    /// Returns the folders that the next compaction creates.
    pub(super) fn next(&self) -> Self {
        Places { root: self.root.clone(), number: self.number + 1 }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the folder of the log.
    pub fn log(&self) -> PathBuf {
        self.folder("log")
    }

    /// Returns the folder of the directory tables.
    pub fn tables(&self) -> PathBuf {
        self.folder("tables")
    }

    /// Returns the folder of the sled database.
    pub fn records(&self) -> PathBuf {
        self.folder("records")
    }

    fn folder(&self, part: &str) -> PathBuf {
        match self.number {
            0 => self.root.join(part),
            n => self.root.join(format!("{part}-{n}")),
        }
    }

    /// Returns the folder where a compaction writes the log until it is complete.
    pub(super) fn unfinished_log(&self) -> PathBuf {
        self.root.join(UNFINISHED)
    }

    /// Removes these folders. Readers that have mapped the files can continue to use them.
    pub(super) fn remove(&self) -> Result<()> {
        files::remove_folder(&self.log())?;
        files::remove_folder(&self.tables())?;
        Records::remove(&self.records())?;
        files::sync_folder(&self.root)
    }

    /// Removes the folders that an interrupted compaction has left. The caller must hold the writer lock.
    /// Ignores errors: the next writer tries again.
    pub(super) fn remove_others(&self) {
        let Ok(entries) = fs::read_dir(&self.root) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let _ = match part(&name) {
                Some((_, number)) if number == self.number => Ok(()),
                Some(("records", _)) => Records::remove(&entry.path()),
                Some(_) => files::remove_folder(&entry.path()),
                None if name == UNFINISHED => files::remove_folder(&entry.path()),
                None => Ok(()),
            };
        }
    }
}

/// Parses a folder name into its part and number, for example `log-2`. Returns `None` for other names.
fn part(name: &std::ffi::OsStr) -> Option<(&'static str, u64)> {
    let name = name.to_str()?;
    PARTS.into_iter().find_map(|part| match name.strip_prefix(part)?.strip_prefix('-') {
        Some(number) => Some((part, number.parse().ok().filter(|n| *n > 0)?)),
        None => (name == part).then_some((part, 0)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_other_numbers_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let all = [
            "log",
            "tables",
            "records",
            "log-1",
            "tables-1",
            "records-1",
            "log-2",
            "log.compacting",
            "log.damaged-1",
            "log-x",
            "lexical",
            "vectors",
            "graphs",
        ];
        all.iter().for_each(|name| fs::create_dir(dir.path().join(name)).unwrap());
        assert_eq!(Places::newest(dir.path()).unwrap().log(), dir.path().join("log-2"));
        Places::first(dir.path()).next().remove_others();
        let mut left: Vec<String> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let kept =
            ["graphs", "lexical", "log-1", "log-x", "log.damaged-1", "records-1", "tables-1", "vectors"];
        assert_eq!(left, kept);
        assert!(Places::newest(&dir.path().join("lexical")).is_none());
    }
}
