//! What the hub's cache holds of a repository. Never touches the network.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{Places, Record, Spec, files, sha256_of};
use turnwise_core::error::{IoContext, Result};

/// A whole model in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its folder.
    pub path: PathBuf,
    /// Its commit, or what stands for one.
    pub revision: String,
    /// What is known of its making, if we made it.
    pub record: Option<Record>,
}

impl Snapshot {
    /// The files that are no longer what was fetched.
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

/// What the cache holds of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// All of it.
    Whole(Box<Snapshot>),
    /// Not all of it; the text says what is missing.
    Part(String),
    /// Nothing.
    Nothing,
}

/// Looks for a model.
pub fn find(spec: &Spec, places: &Places) -> Result<Found> {
    let repository = places.repository(&spec.repository);
    let Some(revision) = commit_of(&repository, spec.revision())? else {
        // Blobs without a reference: a pull that has not come to its end.
        let begun = fs::read_dir(repository.join("blobs")).is_ok_and(|mut blobs| blobs.next().is_some());
        return Ok(if begun {
            Found::Part("it has not been fetched to the end".to_owned())
        } else {
            Found::Nothing
        });
    };
    snapshot(&repository, &revision)
}

/// Looks at one snapshot of a repository.
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
    // transformers fetches no modules.json, and without it pooling and normalisation would be guessed. That a model
    // really has none is noted by the libraries in a folder of their own.
    let noted = repository.join(".no_exist").join(revision).join(files::MODULES);
    if record.is_none() && !path.join(files::MODULES).is_file() && !noted.exists() {
        let reason =
            "another program has fetched a part of it, and whether it has a modules.json is not known";
        return Ok(Found::Part(reason.to_owned()));
    }
    Ok(Found::Whole(Box::new(Snapshot { path, revision: revision.to_owned(), record })))
}

/// The commit that a branch, a tag or a commit means.
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

/// Whether this can be the name of a snapshot: a file of the cache must not lead elsewhere.
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
    fn a_snapshot_of_another_program_counts_only_when_it_is_known_to_be_whole() {
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
    fn a_reference_cannot_lead_out_of_the_cache() {
        let cache = Cache::new();
        cache.write("refs/main", "../../..");
        assert_eq!(cache.find("o/m"), Found::Nothing);
    }

    #[test]
    fn a_pull_that_has_begun_is_a_part() {
        let cache = Cache::new();
        cache.write("blobs/0a.incomplete", "x");
        assert_eq!(cache.find("o/m"), Found::Part("it has not been fetched to the end".into()));
    }
}
