//! Folders in which models are stored.

use std::path::{Path, PathBuf};

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
