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
        // A name alone is one in the folder that we are in.
        Some(folder) if folder.as_os_str().is_empty() => sync_folder(Path::new(".")),
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

/// Puts a folder in the place of another, or of nothing: in one step, where the system and the file system can. `old` is
/// a name beside it for one that steps aside where they cannot.
pub fn replace_folder(new: &Path, folder: &Path, old: &Path) -> Result<()> {
    let replaces = folder.exists();
    if replaces && change_places(new, folder) {
        let absolute = std::path::absolute(folder).at("find", folder)?;
        sync_parent(&absolute)?;
        return remove_folder(new);
    }
    if replaces {
        // A folder that holds files cannot be renamed over: the old one steps aside first. A kill between the two leaves
        // it there, which is why this is only for systems that cannot do better.
        remove_folder(old)?;
        fs::rename(folder, old).at("move", folder)?;
    }
    if let Err(e) = fs::rename(new, folder) {
        if replaces {
            // What was there is better than nothing; the first error is the one to tell.
            let _ = fs::rename(old, folder);
        }
        return Err(e).at("create", folder);
    }
    let absolute = std::path::absolute(folder).at("find", folder)?;
    sync_parent(&absolute)?;
    remove_folder(old)
}

/// Gives two folders each other's name in one step, where the system and the file system can.
#[cfg(any(target_os = "linux", target_os = "macos"))]
fn change_places(a: &Path, b: &Path) -> bool {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).is_ok()
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn change_places(_: &Path, _: &Path) -> bool {
    false
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
