//! Models in the Hugging Face cache. Never uses the network.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{Places, Record, Spec, files, sha256_of};
use turnwise_core::error::{IoContext, Result};

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
}
