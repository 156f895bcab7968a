//! The manifest: which files of an index count, replaced as a whole.

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

/// The version of the files' format that this build writes and reads.
pub const FORMAT: u32 = 1;
const NAME: &str = "manifest.json";

/// What `manifest.json` says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of the files' format.
    pub format: u32,
    /// The turnwise that wrote this manifest.
    pub turnwise: String,
    /// When the index was made.
    pub created: Time,
    /// Counts the manifests of this index.
    pub generation: u64,
    /// Names the log, so that what is derived from it can tell it from another.
    pub log: String,
    /// How often the log was compacted: the number in the names of its folders (see [`Places`](super::Places)).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub compacted: u64,
    /// Sequence numbers that were given and are in the log no more, since it was compacted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub numbers_gone: u64,
    /// Up to where the tables have come. What the log holds after it is read on opening.
    pub checkpoint: Checkpoint,
    /// The directory's tables, oldest first.
    pub tables: Vec<String>,
    /// Records rejected, by ingest.
    #[serde(default)]
    pub rejected: std::collections::BTreeMap<String, u64>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A place in the log and the state there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The end of the last batch.
    pub at: Position,
    /// The last sequence number used.
    pub seq: Seq,
    /// The last batch.
    pub batch: u64,
    /// The totals.
    pub totals: Totals,
    /// An ingest that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingest: Option<super::frame::IngestMark>,
}

impl Checkpoint {
    /// Before the first batch.
    pub fn start() -> Self {
        Checkpoint { at: Position::START, seq: Seq(0), batch: 0, totals: Totals::default(), ingest: None }
    }

    /// Moves on over a commit that ends at `at`.
    pub fn advance(&mut self, commit: Commit, seq: Seq, at: Position) {
        self.at = at;
        self.seq = seq;
        self.batch = commit.batch;
        self.totals = commit.totals;
        self.ingest = commit.ingest;
    }
}

impl Manifest {
    /// The manifest of an index that is just made.
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

    /// A name for a log that no other has.
    pub(super) fn new_log_id() -> String {
        let now = jiff::Timestamp::now().as_nanosecond();
        let unique = format!("{now}-{}-{:p}", std::process::id(), &now);
        blake3::hash(unique.as_bytes()).to_hex()[..16].to_owned()
    }

    /// Whether there is an index in a folder.
    pub fn exists(index: &Path) -> bool {
        index.join(NAME).exists()
    }

    /// Reads the manifest of an index.
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
        let damaged = |e: serde_json::Error| Error::corrupt(&path, format!("this is no manifest: {e}"));
        // The version first: another version may have other fields.
        let FormatOnly { format: found } = serde_json::from_slice(&bytes).map_err(damaged)?;
        if found != FORMAT {
            return Err(Error::FormatVersion { path, found, supported: FORMAT });
        }
        serde_json::from_slice(&bytes).map_err(damaged)
    }

    /// Replaces the manifest of an index, counting its generation up.
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
    fn a_manifest_comes_back_and_other_versions_are_told() {
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
