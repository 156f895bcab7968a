//! Where models are kept.

use std::path::{Path, PathBuf};

/// The two folders in which a model is looked for by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The hub's cache, shared with the Hugging Face libraries: `models--org--name/{blobs, refs, snapshots}`.
    pub cache: PathBuf,
    /// Models that `model import` has taken in: one folder each, under its name.
    pub imports: PathBuf,
}

impl Places {
    /// The folder of a repository in the cache.
    pub fn repository(&self, name: &str) -> PathBuf {
        self.cache.join(folder_name(name))
    }

    /// The folder of the locks of a repository: the same files that the Hugging Face libraries lock.
    pub fn locks(&self, name: &str) -> PathBuf {
        self.cache.join(".locks").join(folder_name(name))
    }

    /// The folder of a model that was imported under this name.
    pub fn imported(&self, name: &str) -> PathBuf {
        self.imports.join(name)
    }
}

fn folder_name(repository: &str) -> String {
    format!("models--{}", repository.replace('/', "--"))
}

/// The repository that a folder of the cache stands for.
pub(super) fn repository_of(folder: &Path) -> Option<String> {
    let name = folder.file_name()?.to_str()?.strip_prefix("models--")?;
    Some(name.replacen("--", "/", 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_has_the_layout_of_the_hugging_face_libraries() {
        let places = Places { cache: "c".into(), imports: "i".into() };
        let folder = places.repository("BAAI/bge-small-en-v1.5");
        assert_eq!(folder, Path::new("c/models--BAAI--bge-small-en-v1.5"));
        assert_eq!(repository_of(&folder).as_deref(), Some("BAAI/bge-small-en-v1.5"));
        assert_eq!(repository_of(Path::new("c/datasets--a--b")), None);
    }
}
