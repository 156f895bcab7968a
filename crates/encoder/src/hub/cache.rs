//! Models in the Hugging Face cache, the folders of all models, and the records of downloads. Never uses the network.
//!
//! The Hugging Face libraries download files one by one on demand, so their snapshots can be incomplete. turnwise stores
//! a record next to each snapshot that it downloads: the files, and how they were checked. A snapshot with a record is
//! known to be complete.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files::replace,
};

use crate::hub::{Spec, files, sha256_of};

/// A complete model in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Folder of the model.
    pub path: PathBuf,
    /// Commit hash. For a model from a Python wheel, a digest of its content.
    pub revision: String,
    /// Record of the download, if turnwise made it.
    pub record: Option<Record>,
}

impl Snapshot {
    /// Returns the files whose size or digest has changed since the download.
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

/// State of a model in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Complete.
    Whole(Box<Snapshot>),
    /// Incomplete, with the reason.
    Part(String),
    /// Not in the cache.
    Nothing,
}

/// Looks up a model in the cache.
pub fn find(spec: &Spec, places: &Places) -> Result<Found> {
    let repository = places.repository(&spec.repository);
    let Some(revision) = commit_of(&repository, spec.revision())? else {
        // Blobs without a reference belong to an unfinished pull.
        let begun = fs::read_dir(repository.join("blobs")).is_ok_and(|mut blobs| blobs.next().is_some());
        return Ok(if begun {
            Found::Part("its download is not finished".to_owned())
        } else {
            Found::Nothing
        });
    };
    snapshot(&repository, &revision)
}

/// Checks one snapshot of a repository.
pub(super) fn snapshot(repository: &Path, revision: &str) -> Result<Found> {
    let path = repository.join("snapshots").join(revision);
    if !path.is_dir() {
        return Ok(Found::Nothing);
    }
    let record = Record::read(repository, revision)?;
    let lacking = match &record {
        Some(record) => record.files.iter().find(|f| !path.join(&f.path).is_file()).map(|f| f.path.clone()),
        None => files::missing(&path)?,
    };
    if let Some(file) = lacking {
        return Ok(Found::Part(format!("{file} is missing")));
    }
    // The library transformers downloads no modules.json, and without it pooling and normalization are unknown.
    // The Hugging Face libraries record missing files in the folder `.no_exist`.
    let noted = repository.join(".no_exist").join(revision).join(files::MODULES);
    if record.is_none() && !path.join(files::MODULES).is_file() && !noted.exists() {
        let reason =
            "another program downloaded parts of it, and it is unknown whether the model has a modules.json";
        return Ok(Found::Part(reason.to_owned()));
    }
    Ok(Found::Whole(Box::new(Snapshot { path, revision: revision.to_owned(), record })))
}

/// Resolves a branch, tag or commit to a commit.
fn commit_of(repository: &Path, revision: &str) -> Result<Option<String>> {
    let reference = repository.join("refs").join(revision);
    match fs::read_to_string(&reference) {
        Ok(commit) => return Ok(Some(commit.trim().to_owned()).filter(|c| is_commit(c))),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory
            ) => {}
        Err(e) => return Err(e).at("read", &reference),
    }
    let is_there = is_commit(revision) && repository.join("snapshots").join(revision).is_dir();
    Ok(is_there.then(|| revision.to_owned()))
}

/// Whether the text can be the name of a snapshot. A path separator in a reference must not lead out of the
/// cache.
pub(super) fn is_commit(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// The two folders that are searched for a model by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Hugging Face cache, shared with Python: `models--org--name/{blobs, refs, snapshots}`.
    pub cache: PathBuf,
    /// Folder of imported models: one subfolder per model, with its name.
    pub imports: PathBuf,
}

impl Places {
    /// Folder of a repository in the cache.
    pub fn repository(&self, name: &str) -> PathBuf {
        self.cache.join(folder_name(name))
    }

    /// Folder of the lock files of a repository. The Hugging Face libraries use the same lock files.
    pub fn locks(&self, name: &str) -> PathBuf {
        self.cache.join(".locks").join(folder_name(name))
    }

    /// Folder of an imported model.
    pub fn imported(&self, name: &str) -> PathBuf {
        self.imports.join(name)
    }
}

fn folder_name(repository: &str) -> String {
    format!("models--{}", repository.replace('/', "--"))
}

/// The repository of a cache folder: `models--org--name` is `org/name`.
pub(super) fn repository_of(folder: &Path) -> Option<String> {
    let name = folder.file_name()?.to_str()?.strip_prefix("models--")?;
    Some(name.replacen("--", "/", 1))
}

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
        assert_eq!(cache.find("o/m"), Found::Nothing);
        for file in ["config.json", "model.safetensors", "vocab.txt"] {
            cache.write(&format!("snapshots/abc/{file}"), "{}");
        }
        assert_eq!(cache.find("o/m"), Found::Nothing);
        cache.write("refs/main", "abc\n");
        assert!(matches!(cache.find("o/m"), Found::Part(why) if why.contains("modules.json")));
        cache.write(".no_exist/abc/modules.json", "");
        assert!(matches!(cache.find("o/m"), Found::Whole(s) if s.revision == "abc" && s.record.is_none()));
        assert!(matches!(cache.find("o/m@abc"), Found::Whole(_)));
        assert_eq!(cache.find("o/m@other"), Found::Nothing);
        cache.write("snapshots/abc/modules.json", r#"[{"path":"1_Pooling","type":"x.Pooling"}]"#);
        assert_eq!(cache.find("o/m"), Found::Part("1_Pooling/config.json is missing".into()));
    }

    #[test]
    fn a_reference_cannot_leave_the_cache() {
        let cache = Cache::new();
        cache.write("refs/main", "../../..");
        assert_eq!(cache.find("o/m"), Found::Nothing);
    }

    #[test]
    fn an_unfinished_pull_is_incomplete() {
        let cache = Cache::new();
        cache.write("blobs/0a.incomplete", "x");
        assert_eq!(cache.find("o/m"), Found::Part("its download is not finished".into()));
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
        fs::write(place(dir.path(), "c0ffee"), "{").unwrap();
        assert!(Record::read(dir.path(), "c0ffee").unwrap_err().to_string().contains("is damaged"));
    }
}
