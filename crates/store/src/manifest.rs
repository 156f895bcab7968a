//! The manifest, `manifest.json`: the last checkpoint of an index and the names of its directory tables. The file is
//! always replaced atomically.
//!
//! The manifest also determines which folders are in use ([`IndexPaths`]). Each compaction writes the log, the tables
//! and the records into new folders with the next number as a suffix.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{IngestMark, Position, Totals, frame::Commit, records::Records};
use turnwise_core::{Error, IoContext, Result, Seq, files};
use turnwise_corpus::Time;

/// File format version that this build reads and writes.
pub const FORMAT: u32 = 1;
const NAME: &str = "manifest.json";

/// Content of `manifest.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// File format version.
    pub format: u32,
    /// Version of turnwise that wrote this manifest.
    pub turnwise: String,
    /// Creation time of the index.
    pub created: Time,
    /// Generation number, increased each time the manifest is written.
    pub generation: u64,
    /// Unique id of the log. Derived data stores this id to detect that the log was replaced.
    pub log: String,
    /// Number of compactions. If this number is not 0, the names of the folders in use end with it, for example `log-3`
    /// (see [`IndexPaths`]).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub compacted: u64,
    /// Number of assigned sequence numbers whose frames are no longer in the log, because of compactions or damage.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub numbers_gone: u64,
    /// State of the index that the directory tables contain. Later batches are read from the log when the index is
    /// opened.
    pub checkpoint: Checkpoint,
    /// File names of the directory tables, oldest first.
    pub tables: Vec<String>,
    /// Number of records rejected in the last run of each ingest. The key is the fingerprint of the ingest. Ingests
    /// without a fingerprint share the key `stdin`.
    #[serde(default)]
    pub rejected: std::collections::BTreeMap<String, u64>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A position in the log with the state of the index at that position.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Log position after the last batch.
    pub at: Position,
    /// Last assigned sequence number.
    pub seq: Seq,
    /// Number of the last batch.
    pub batch: u64,
    /// Numbers of live dialogues and of their turns.
    pub totals: Totals,
    /// Progress of an unfinished ingest. `None` if no ingest is unfinished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingest: Option<IngestMark>,
}

impl Checkpoint {
    /// Returns the state of an index before its first batch.
    pub fn start() -> Self {
        Checkpoint { at: Position::START, seq: Seq(0), batch: 0, totals: Totals::default(), ingest: None }
    }

    /// Updates the state to the state after a commit. `seq` is the sequence number of the commit frame, and `at` is the
    /// log position after that frame.
    pub fn advance(&mut self, commit: Commit, seq: Seq, at: Position) {
        *self = Checkpoint { at, seq, batch: commit.batch, totals: commit.totals, ingest: commit.ingest };
    }
}

/// The manifest of a new index.
impl Default for Manifest {
    fn default() -> Self {
        Manifest {
            format: FORMAT,
            turnwise: env!("CARGO_PKG_VERSION").to_owned(),
            created: Time(jiff::Timestamp::now()),
            generation: 0,
            log: Manifest::new_log_id(),
            compacted: 0,
            numbers_gone: 0,
            checkpoint: Checkpoint::start(),
            tables: Vec::new(),
            rejected: Default::default(),
        }
    }
}

impl Manifest {
    /// Generates a unique log id.
    pub(super) fn new_log_id() -> String {
        let now = jiff::Timestamp::now().as_nanosecond();
        let unique = format!("{now}-{}-{:p}", std::process::id(), &now);
        blake3::hash(unique.as_bytes()).to_hex()[..16].to_owned()
    }

    /// Returns whether a folder contains a manifest.
    pub fn exists(index: &Path) -> bool {
        index.join(NAME).exists()
    }

    /// Reads the manifest of an index. Returns an error if the manifest is missing, is damaged or has an unsupported
    /// format.
    pub fn read(index: &Path) -> Result<Self> {
        #[derive(Deserialize)]
        struct FormatOnly {
            format: u32,
        }
        let path = index.join(NAME);
        let bytes = match fs::read(&path) {
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Err(Error::NoIndex { path: index.to_owned(), hint: None });
            }
            other => other.at("read", &path)?,
        };
        let damaged =
            |e: serde_json::Error| Error::corrupt(&path, format!("this is not a valid manifest: {e}"));
        // Check the version first: other versions may have different fields.
        let FormatOnly { format: found } = serde_json::from_slice(&bytes).map_err(damaged)?;
        if found != FORMAT {
            return Err(Error::FormatVersion { path, found, supported: FORMAT });
        }
        serde_json::from_slice(&bytes).map_err(damaged)
    }

    /// Increases the generation and replaces the manifest file.
    pub fn write(&mut self, index: &Path) -> Result<()> {
        self.generation += 1;
        self.turnwise = env!("CARGO_PKG_VERSION").to_owned();
        files::replace_json(&index.join(NAME), self)
    }
}

/// Names of the log, tables and records folders before the first compaction. After compaction N, the names have the
/// suffix `-N`.
const PARTS: [&str; 3] = ["log", "tables", "records"];
/// Name of the folder to which a compaction writes the new log until the log is complete.
const UNFINISHED: &str = "log.compacting";

/// Paths of an index's log, tables and records folders after a given number of compactions.
#[derive(Debug, Clone)]
pub struct IndexPaths {
    root: PathBuf,
    number: u64,
}

impl IndexPaths {
    /// Returns the paths of the folders that are in use according to a manifest.
    pub fn of(root: &Path, manifest: &Manifest) -> Self {
        IndexPaths { root: root.to_owned(), number: manifest.compacted }
    }

    /// Returns the paths of the folders of a new index.
    pub(super) fn first(root: &Path) -> Self {
        IndexPaths { root: root.to_owned(), number: 0 }
    }

    /// Returns the paths of the folders that belong to the newest log. Does not read the manifest. A log in a folder
    /// named `log-N` is always complete, because a compaction first writes it under a different name. Returns `None` if
    /// there is no log.
    pub fn newest(root: &Path) -> Option<Self> {
        let numbers = fs::read_dir(root).ok()?.flatten().filter_map(|e| match part(&e.file_name())? {
            ("log", number) => Some(number),
            _ => None,
        });
        numbers.max().map(|number| IndexPaths { root: root.to_owned(), number })
    }

    /// Returns the paths of the folders that the next compaction creates.
    pub(super) fn next(&self) -> Self {
        IndexPaths { root: self.root.clone(), number: self.number + 1 }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the path of the log folder.
    pub fn log(&self) -> PathBuf {
        self.folder("log")
    }

    /// Returns the path of the folder of the directory tables.
    pub fn tables(&self) -> PathBuf {
        self.folder("tables")
    }

    /// Returns the path of the folder of the sled database.
    pub fn records(&self) -> PathBuf {
        self.folder("records")
    }

    fn folder(&self, part: &str) -> PathBuf {
        match self.number {
            0 => self.root.join(part),
            n => self.root.join(format!("{part}-{n}")),
        }
    }

    /// Returns the path of the folder to which a compaction writes the new log until the log is complete.
    pub(super) fn unfinished_log(&self) -> PathBuf {
        self.root.join(UNFINISHED)
    }

    /// Removes the log, tables and records folders. Open readers can still use the files that they have memory-mapped.
    pub(super) fn remove(&self) -> Result<()> {
        files::remove_folder(&self.log())?;
        files::remove_folder(&self.tables())?;
        Records::remove(&self.records())?;
        files::sync_folder(&self.root)
    }

    /// Removes all log, tables and records folders of the index except the folders in `self`. Also removes the
    /// incomplete log of a stopped compaction. The caller must hold the writer lock. Ignores errors, because the next
    /// writer tries again.
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

/// Parses the name of a log, tables or records folder. For example, `log-2` results in `log` and 2. Returns `None` for
/// other names.
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
    fn manifest_round_trips_and_other_versions_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let mut manifest = Manifest::default();
        manifest.write(dir.path()).unwrap();
        assert_eq!(Manifest::read(dir.path()).unwrap(), manifest);
        assert_eq!(manifest.generation, 1);
        std::fs::write(dir.path().join(NAME), r#"{"format":9,"new":true}"#).unwrap();
        let e = Manifest::read(dir.path()).unwrap_err();
        assert!(matches!(e, Error::FormatVersion { found: 9, .. }));
        assert!(e.hint().unwrap().contains("newer turnwise"));
        assert!(matches!(Manifest::read(&dir.path().join("none")), Err(Error::NoIndex { .. })));
    }

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
        assert_eq!(IndexPaths::newest(dir.path()).unwrap().log(), dir.path().join("log-2"));
        IndexPaths::first(dir.path()).next().remove_others();
        let mut left: Vec<String> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let kept =
            ["graphs", "lexical", "log-1", "log-x", "log.damaged-1", "records-1", "tables-1", "vectors"];
        assert_eq!(left, kept);
        assert!(IndexPaths::newest(&dir.path().join("lexical")).is_none());
    }
}
