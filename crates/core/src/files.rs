//! Atomic and durable file replacement.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use crate::{Error, Result, error::IoContext};

/// Replaces a file atomically: writes a temporary file, syncs it, renames it over the target and syncs the folder.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = temporary_path(path);
    let mut file = File::create(&temporary).at("create", &temporary)?;
    file.write_all(bytes).at("write", &temporary)?;
    file.sync_all().at("flush", &temporary)?;
    drop(file);
    fs::rename(&temporary, path).at("replace", path)?;
    sync_parent(path)
}

/// Writes a value to a file as indented JSON. The file is replaced atomically.
pub fn replace_json(path: &Path, value: &impl serde::Serialize) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(value).map_err(|e| Error::Internal(e.to_string()))?;
    text.push(b'\n');
    replace(path, &text)
}

/// Method of writing to a path: atomic replacement or direct writing.
pub enum WriteTarget {
    /// Path of a file, which is replaced atomically. If the file exists, symbolic links in its path are resolved.
    File(PathBuf),
    /// A device, a pipe or a similar target. It is written directly and never replaced.
    Stream,
}

/// Returns the method of writing to a path. Files are replaced. Devices and pipes are written directly.
pub fn write_target(path: &Path) -> WriteTarget {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => {
            WriteTarget::File(fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()))
        }
        Ok(found) if !found.is_dir() => WriteTarget::Stream,
        _ => WriteTarget::File(path.to_owned()),
    }
}

/// Returns the path of the temporary file for `path`, that is, `path` with `.tmp` appended to the file name.
pub fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    path.with_file_name(name)
}

/// Syncs the folder that contains `path`, so that the creation, renaming or removal of `path` survives a crash.
pub fn sync_parent(path: &Path) -> Result<()> {
    match path.parent() {
        // A bare file name is relative to the current folder.
        Some(folder) if folder.as_os_str().is_empty() => sync_folder(Path::new(".")),
        Some(folder) => sync_folder(folder),
        None => Ok(()),
    }
}

/// Syncs a folder, so that changes to its entries survive a crash. Does nothing on Windows.
pub fn sync_folder(folder: &Path) -> Result<()> {
    // Windows cannot sync a folder. Its file system journals renames instead.
    if cfg!(windows) {
        return Ok(());
    }
    let folder_file = OpenOptions::new().read(true).open(folder).at("open", folder)?;
    folder_file.sync_all().at("flush", folder)
}

/// Moves the folder `new` to `folder`, and removes the previous `folder` if there is one.
///
/// The swap is atomic where the operating system and the file system support it. Elsewhere, the previous folder is
/// first renamed to `old`. All three paths must be on one file system.
pub fn replace_folder(new: &Path, folder: &Path, old: &Path) -> Result<()> {
    let replaces = folder.exists();
    let absolute = std::path::absolute(folder).at("find", folder)?;
    if replaces && exchange(new, folder) {
        sync_parent(&absolute)?;
        return remove_folder(new);
    }
    if replaces {
        // A rename cannot overwrite a folder that is not empty, so the previous folder is moved away first. This is not
        // atomic: a process killed between the two renames leaves the previous folder at `old`.
        remove_folder(old)?;
        fs::rename(folder, old).at("move", folder)?;
    }
    if let Err(e) = fs::rename(new, folder) {
        if replaces {
            // Restore the previous folder. If this fails, too, only the first error is reported.
            let _ = fs::rename(old, folder);
        }
        return Err(e).at("create", folder);
    }
    sync_parent(&absolute)?;
    remove_folder(old)
}

/// Swaps the names of two folders atomically. Returns `false` if the swap fails or is not supported by the system.
#[cfg(any(target_os = "linux", target_os = "macos"))]
fn exchange(a: &Path, b: &Path) -> bool {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).is_ok()
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn exchange(_: &Path, _: &Path) -> bool {
    false
}

/// Removes a folder with its contents. A missing folder is not an error.
pub fn remove_folder(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e).at("remove", folder),
        _ => Ok(()),
    }
}

/// Returns the total size of all files in a folder and its subfolders, in bytes. Unreadable entries count as 0.
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
