//! Finds the folder of the index given by `-i`.

use crate::cli::prelude::*;
use turnwise_core::error::closest_name;
use turnwise_store::{IndexPaths, Manifest, Snapshot};

/// Names of the indexes in a folder, sorted.
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
    /// Folder of the index given by `-i` or by the setting `index`. Does not check whether the folder exists.
    pub(crate) fn index(&self) -> Result<PathBuf> {
        if let Some(address) = &self.settings.engine {
            return Err(Error::input(format!("this command needs an index on this machine, not {address}"))
                .with_hint("use -i NAME"));
        }
        let Some(name) = &self.settings.index else {
            let known = list(&self.settings.indexes_dir);
            return Err(Error::input("no index given").with_hint(match known.len() {
                0 => "use -i NAME, for example -i chats".to_owned(),
                _ => format!("use -i NAME; available indexes: {}", known.join(", ")),
            }));
        };
        Ok(self.folder_of(name))
    }

    /// Folder of an index: `name` itself if it is a path, else the subfolder `name` of the indexes folder.
    pub(crate) fn folder_of(&self, name: &str) -> PathBuf {
        let is_path = name.contains(['/', '\\']) || name == "." || name == "..";
        if is_path { PathBuf::from(name) } else { self.settings.indexes_dir.join(name) }
    }

    /// Folder of the index given by `-i`. Fails if the index does not exist.
    pub(crate) fn existing_index(&self) -> Result<PathBuf> {
        existing(self.index()?)
    }

    /// Folder of an index, by name or path. Fails if the index does not exist.
    #[cfg(feature = "serve")]
    pub(crate) fn existing(&self, name: &str) -> Result<PathBuf> {
        existing(self.folder_of(name))
    }

    /// Opens the index given by `-i` for reading.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::open(&self.existing_index()?)
    }
}

fn existing(path: PathBuf) -> Result<PathBuf> {
    if Manifest::exists(&path) || IndexPaths::newest(&path).is_some() {
        return Ok(path);
    }
    let parent = path.parent().unwrap_or(Path::new("."));
    let known = list(parent);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let hint = match closest_name(&name, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "`turnwise ingest -i NAME FILE…` creates one".to_owned(),
        None => format!("available indexes in {}: {}", parent.display(), known.join(", ")),
    };
    Err(Error::NoIndex { path, hint: Some(hint) })
}
