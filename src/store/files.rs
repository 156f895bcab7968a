//! Files that are either old or new, never half.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use crate::error::{IoContext, Result};

/// Replaces a file: write beside it, fsync, rename over it, fsync the folder.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = beside(path);
    let mut file = File::create(&temporary).at("create", &temporary)?;
    file.write_all(bytes).at("write", &temporary)?;
    file.sync_all().at("flush", &temporary)?;
    drop(file);
    fs::rename(&temporary, path).at("replace", path)?;
    sync_parent(path)
}

/// Where a file is written that is to appear whole.
pub enum Place {
    /// Under this name, behind all links: there is a file of that name, or nothing.
    File(PathBuf),
    /// There is a device, a pipe or the like, which is written to and never replaced.
    Stream,
}

/// What a path leads to.
pub fn place(path: &Path) -> Place {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => {
            Place::File(fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()))
        }
        Ok(found) if !found.is_dir() => Place::Stream,
        _ => Place::File(path.to_owned()),
    }
}

/// The temporary name beside a file that is about to be replaced.
pub fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    path.with_file_name(name)
}

/// Makes a created, renamed or removed name in a file's folder last.
pub fn sync_parent(path: &Path) -> Result<()> {
    match path.parent() {
        Some(folder) => sync_folder(folder),
        None => Ok(()),
    }
}

/// Makes the names in a folder last.
pub fn sync_folder(folder: &Path) -> Result<()> {
    // Windows has no way to flush a folder; renames there are journalled.
    if cfg!(windows) {
        return Ok(());
    }
    let folder_file = OpenOptions::new().read(true).open(folder).at("open", folder)?;
    folder_file.sync_all().at("flush", folder)
}

/// Removes a folder and all in it, if it is there.
pub fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e).at("remove", folder),
        _ => Ok(()),
    }
}

/// The bytes of all files in a folder, at any depth.
pub fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(m) if m.is_dir() => folder_bytes(&entry.path()),
            Ok(m) => m.len(),
            Err(_) => 0,
        })
        .sum()
}
