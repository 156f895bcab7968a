//! Record of a download, stored next to the snapshot: its files and how they were checked.
//!
//! The Hugging Face libraries download files one by one on demand, so their snapshots can be incomplete. A
//! snapshot with a record is known to be complete.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use turnwise_core::{
    error::{Error, IoContext, Result},
    files::replace,
};

/// Description of a downloaded snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// `org/name`.
    pub repository: String,
    /// Name of the snapshot: the commit, or for a wheel a digest of its content.
    pub revision: String,
    /// Source of the model.
    pub source: Source,
    /// Files of the snapshot.
    pub files: Vec<FileRecord>,
}

/// Source of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The hub, or a mirror set with `HF_ENDPOINT`.
    Hub {
        /// Base address.
        endpoint: String,
    },
    /// The Python wheel of the default model.
    Wheel {
        /// Package and version.
        package: String,
    },
}

/// One file of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Path in the snapshot.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256.
    pub sha256: String,
    /// How the file was checked.
    pub checked: Checked,
}

/// How a file was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Checked {
    /// Only its length. The hub reports no SHA-256 of small files.
    Length,
    /// Its SHA-256, compared with the one that the hub reports.
    Hub,
    /// Its SHA-256, compared with the one built into turnwise.
    Pinned,
}

impl Record {
    /// How the weights were checked; the weakest check of all weight files.
    pub fn weights_checked(&self) -> Option<Checked> {
        self.files.iter().filter(|f| f.path.ends_with(".safetensors")).map(|f| f.checked).min()
    }

    /// Reads the record of a snapshot; `None` if another program downloaded it.
    pub fn read(repository: &Path, revision: &str) -> Result<Option<Self>> {
        let path = place(repository, revision);
        let text = match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.at("read", &path)?,
        };
        serde_json::from_slice(&text).map(Some).map_err(|e| Error::Data {
            message: format!("{} is damaged: {e}", path.display()),
            hint: Some("remove the file and pull the model again; downloaded files are kept".to_owned()),
        })
    }

    /// Writes the record to the repository's folder.
    pub fn write(&self, repository: &Path) -> Result<()> {
        let path = place(repository, &self.revision);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).at("create", folder)?;
        }
        let text = serde_json::to_vec_pretty(self).map_err(|e| Error::Internal(e.to_string()))?;
        replace(&path, &text)
    }
}

/// Path of a record. The Hugging Face libraries ignore this folder.
fn place(repository: &Path, revision: &str) -> PathBuf {
    repository.join(".turnwise").join(format!("{revision}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_and_damage_is_reported() {
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
