//! The manifest, `manifest.json`: the list of files that belong to an index. It is always replaced atomically.

use std::{fs, io, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    frame::{Commit, Totals},
    log::Position,
};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
    ids::Seq,
};
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
    /// Number of compactions. It is the suffix of the index's folders (see [`Places`](super::Places)).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub compacted: u64,
    /// Number of assigned sequence numbers that compactions have removed from the log.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub numbers_gone: u64,
    /// The state that the tables contain. Opening the index reads the rest from the log.
    pub checkpoint: Checkpoint,
    /// File names of the directory tables, oldest first.
    pub tables: Vec<String>,
    /// Number of rejected records by ingest fingerprint.
    #[serde(default)]
    pub rejected: std::collections::BTreeMap<String, u64>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A position in the log with the state of the index at that position.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// End of the last batch.
    pub at: Position,
    /// Last assigned sequence number.
    pub seq: Seq,
    /// Number of the last batch.
    pub batch: u64,
    /// Total counts.
    pub totals: Totals,
    /// Progress of an unfinished ingest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingest: Option<super::frame::IngestMark>,
}

impl Checkpoint {
    /// Returns the state before the first batch.
    pub fn start() -> Self {
        Checkpoint { at: Position::START, seq: Seq(0), batch: 0, totals: Totals::default(), ingest: None }
    }

    /// Advances the state by a commit whose frame ends at `at`.
    pub fn advance(&mut self, commit: Commit, seq: Seq, at: Position) {
        self.at = at;
        self.seq = seq;
        self.batch = commit.batch;
        self.totals = commit.totals;
        self.ingest = commit.ingest;
    }
}

impl Manifest {
    /// Returns the manifest of a new index.
    pub fn new() -> Self {
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

    /// Reads the manifest of an index. Fails if there is none, if it is damaged, or if its format is not supported.
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
        let mut text = serde_json::to_vec_pretty(self).map_err(|e| Error::Internal(e.to_string()))?;
        text.push(b'\n');
        files::replace(&index.join(NAME), &text)
    }
}

impl Default for Manifest {
    fn default() -> Self {
        Manifest::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_round_trips_and_other_versions_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let mut manifest = Manifest::new();
        manifest.write(dir.path()).unwrap();
        assert_eq!(Manifest::read(dir.path()).unwrap(), manifest);
        assert_eq!(manifest.generation, 1);
        std::fs::write(dir.path().join(NAME), r#"{"format":9,"new":true}"#).unwrap();
        let e = Manifest::read(dir.path()).unwrap_err();
        assert!(matches!(e, Error::FormatVersion { found: 9, .. }));
        assert!(e.hint().unwrap().contains("newer turnwise"));
        assert!(matches!(Manifest::read(&dir.path().join("none")), Err(Error::NoIndex { .. })));
    }
}
