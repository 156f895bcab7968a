//! From `-i NAME` to a folder.

use std::path::{Path, PathBuf};

use crate::cli::Context;
use turnwise_core::error::{Error, Result, nearest};
use turnwise_store::{Manifest, Places, Snapshot};

/// The indexes in the folder of indexes, by name.
pub(crate) fn list(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| Manifest::exists(&entry.path()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

impl Context<'_> {
    /// The folder that `-i` (or the setting `index`) means: a path as it is, a plain name in the folder of indexes.
    pub(crate) fn index(&self) -> Result<PathBuf> {
        if let Some(address) = &self.settings.engine {
            return Err(Error::Input {
                message: format!("this needs an index on this machine, and {address} is none"),
                hint: Some("name an index with -i".to_owned()),
            });
        }
        let Some(name) = &self.settings.index else {
            let known = list(&self.settings.indexes_dir);
            return Err(Error::Input {
                message: "no index is named".to_owned(),
                hint: Some(match known.len() {
                    0 => "name one with -i, for example -i chats".to_owned(),
                    _ => format!("name one with -i; there are: {}", known.join(", ")),
                }),
            });
        };
        Ok(self.folder_of(name))
    }

    /// The folder that a name or a path means.
    pub(crate) fn folder_of(&self, name: &str) -> PathBuf {
        let is_path = name.contains(['/', '\\']) || name == "." || name == "..";
        if is_path { PathBuf::from(name) } else { self.settings.indexes_dir.join(name) }
    }

    /// The folder of an index that exists.
    pub(crate) fn existing_index(&self) -> Result<PathBuf> {
        existing(self.index()?)
    }

    /// The folder that a name or a path means, of an index that exists.
    #[cfg(feature = "serve")]
    pub(crate) fn existing(&self, name: &str) -> Result<PathBuf> {
        existing(self.folder_of(name))
    }

    /// Opens an index that exists, for reading.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::open(&self.existing_index()?)
    }
}

fn existing(path: PathBuf) -> Result<PathBuf> {
    if Manifest::exists(&path) || Places::newest(&path).is_some() {
        return Ok(path);
    }
    let parent = path.parent().unwrap_or(Path::new("."));
    let known = list(parent);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let hint = match nearest(&name, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "`turnwise ingest -i NAME FILE…` makes one".to_owned(),
        None => format!("in {} there are: {}", parent.display(), known.join(", ")),
    };
    Err(Error::NoIndex { path, hint: Some(hint) })
}
