//! The folder of vector sets: finds the set in use, creates new sets and switches between sets.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    sealed,
    vectors::{
        key::Kind,
        manifest::{self, FORMAT, Manifest, Recipe},
    },
};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};

const CURRENT: &str = "current.json";

/// Content of `current.json`.
#[derive(Serialize, Deserialize)]
struct Current {
    format: u32,
    set: String,
}

/// Returns the vector folder of an index.
pub(super) fn folder(root: &Path) -> PathBuf {
    root.join("vectors")
}

/// Returns true if an index has vectors, even if they are damaged. A set without rows that is not in `current.json`
/// does not count.
pub fn exists(root: &Path) -> bool {
    let counts = |set: &PathBuf| {
        let rows = |m: Manifest| Kind::ALL.iter().any(|kind| m.extent(*kind).rows > 0);
        set.join(manifest::NAME).exists() && Manifest::read(set).map_or(true, rows)
    };
    folder(root).join(CURRENT).exists() || all(root).iter().any(counts)
}

/// Returns the error for a damaged file, with a hint about repairing vectors.
pub(super) fn damaged(path: impl Into<PathBuf>, what: impl Into<String>) -> Error {
    Error::corrupt(path, what).with_hint(
        "`turnwise repair` keeps the undamaged vectors; `turnwise encode` then encodes the rest again",
    )
}

/// Reads a sealed file of the vectors.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    sealed::read(path, FORMAT, |path, what| damaged(path, what))
}

/// Returns the folder of the set in use, or `None` if there are no vectors.
pub(super) fn current(root: &Path) -> Result<Option<PathBuf>> {
    if !exists(root) {
        return Ok(None);
    }
    let path = folder(root).join(CURRENT);
    let current: Current = read(&path)?;
    if current.set.is_empty() || current.set.contains(['/', '\\', '.']) {
        return Err(damaged(path, format!("`{}` is not a valid set name", current.set)));
    }
    Ok(Some(folder(root).join(current.set)))
}

/// Makes another set the set in use.
pub(super) fn switch(root: &Path, set: &Path) -> Result<()> {
    let name = set.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
    sealed::write(&folder(root).join(CURRENT), &Current { format: FORMAT, set: name })
}

/// Returns all sets, in use or not, sorted by name.
pub(super) fn all(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder(root)) else { return Vec::new() };
    let mut sets: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(|p| p.is_dir()).collect();
    sets.sort();
    sets
}

/// Creates an empty set.
pub(super) fn create(root: &Path, manifest: &Manifest) -> Result<PathBuf> {
    let parent = folder(root);
    fs::create_dir_all(&parent).at("create", &parent)?;
    let prefix = manifest.recipe.fingerprint.to_string()[..16].to_owned();
    for n in 1.. {
        let set = parent.join(format!("{prefix}-{n}"));
        match fs::create_dir(&set) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => continue,
            other => other.at("create", &set)?,
        }
        manifest.write(&set)?;
        files::sync_folder(&parent)?;
        return Ok(set);
    }
    Err(Error::Internal("no free name for a set of vectors".into()))
}

/// Returns an unfinished replacement: a set with this recipe that is not in use.
pub(super) fn unfinished(root: &Path, recipe: &Recipe) -> Result<Option<PathBuf>> {
    let current = current(root).ok().flatten();
    let fits = |set: &&PathBuf| {
        Some(*set) != current.as_ref() && Manifest::read(set).is_ok_and(|m| m.recipe == *recipe && !m.copy)
    };
    Ok(all(root).iter().find(fits).cloned())
}

/// Removes all sets except `keep`. Readers keep an old set open while they have it mapped. If the operating system
/// refuses the removal for this reason, the next switch removes the set.
pub(super) fn remove_others(root: &Path, keep: &Path) {
    for set in all(root).iter().filter(|set| *set != keep) {
        remove(set);
    }
}

/// Removes a set, as far as possible. Errors are ignored.
pub(super) fn remove(set: &Path) {
    // Remove the manifest first: after a crash, the remaining files are not taken for a usable set.
    let _ = fs::remove_file(set.join(manifest::NAME));
    let _ = files::sync_folder(set);
    let _ = fs::remove_dir_all(set);
}
