//! What is remembered of a pull, beside the snapshot: which files belong to it and how they were checked.
//!
//! The Hugging Face libraries fetch files one by one as they need them, so that a snapshot of theirs may lack what a
//! model has. With a record there is no doubt.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use turnwise_core::{
    error::{Error, IoContext, Result},
    files::replace,
};

/// What a snapshot in the cache is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// `org/name`.
    pub repository: String,
    /// The name of the snapshot: the commit, or for a wheel a digest of its content.
    pub revision: String,
    /// Where it came from.
    pub source: Source,
    /// Its files.
    pub files: Vec<FileRecord>,
}

/// Where a model came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The hub, or what `HF_ENDPOINT` names in its place.
    Hub {
        /// Its address.
        endpoint: String,
    },
    /// The wheel of the default model.
    Wheel {
        /// Package and version.
        package: String,
    },
}

/// One file of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Its path in the snapshot.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Its digest.
    pub sha256: String,
    /// What the digest was compared with.
    pub checked: Checked,
}

/// What a file was compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Checked {
    /// Only its length, because the hub tells no SHA-256 of small files.
    Length,
    /// The SHA-256 that the hub tells.
    Hub,
    /// The SHA-256 that is part of turnwise.
    Pinned,
}

impl Record {
    /// How the weights were checked: as the least checked of their files.
    pub fn weights_checked(&self) -> Option<Checked> {
        self.files.iter().filter(|f| f.path.ends_with(".safetensors")).map(|f| f.checked).min()
    }

    /// The record of a snapshot; `None` where another program has made it.
    pub fn read(repository: &Path, revision: &str) -> Result<Option<Self>> {
        let path = place(repository, revision);
        let text = match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.at("read", &path)?,
        };
        serde_json::from_slice(&text).map(Some).map_err(|e| Error::Data {
            message: format!("{} is damaged: {e}", path.display()),
            hint: Some("remove the file and pull the model again; what is there is kept".to_owned()),
        })
    }

    /// Writes it beside the snapshots.
    pub fn write(&self, repository: &Path) -> Result<()> {
        let path = place(repository, &self.revision);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).at("create", folder)?;
        }
        let text = serde_json::to_vec_pretty(self).map_err(|e| Error::Internal(e.to_string()))?;
        replace(&path, &text)
    }
}

/// A folder of our own, which the Hugging Face libraries pass over.
fn place(repository: &Path, revision: &str) -> PathBuf {
    repository.join(".turnwise").join(format!("{revision}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_and_a_damaged_one_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let file =
            |path: &str, checked| FileRecord { path: path.into(), bytes: 3, sha256: "ab".into(), checked };
        let record = Record {
            repository: "a/b".into(),
            revision: "c0ffee".into(),
            source: Source::Hub { endpoint: "http://h".into() },
            files: vec![file("config.json", Checked::Length), file("model.safetensors", Checked::Pinned)],
        };
        assert_eq!(Record::read(dir.path(), "c0ffee").unwrap(), None);
        record.write(dir.path()).unwrap();
        assert_eq!(Record::read(dir.path(), "c0ffee").unwrap(), Some(record.clone()));
        assert_eq!(record.weights_checked(), Some(Checked::Pinned));
        fs::write(place(dir.path(), "c0ffee"), "{").unwrap();
        assert!(Record::read(dir.path(), "c0ffee").unwrap_err().to_string().contains("is damaged"));
    }
}
