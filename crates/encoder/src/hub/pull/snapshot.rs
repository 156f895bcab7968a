//! Creates a snapshot in the cache from downloaded blobs.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{Progress, blob::lock};
use crate::hub::{Record, cache, files};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files::{replace, sync_folder},
};

/// Links the files of a record to their blobs, writes the record, and finally writes the reference to the
/// revision.
pub(super) fn install(
    repository: &Path,
    locks: &Path,
    record: &Record,
    blobs: &[&str],
    revision: &str,
    watch: &mut dyn Progress,
) -> Result<()> {
    let _lock = lock(&locks.join("turnwise.lock"), watch)?;
    let folder = repository.join("snapshots").join(&record.revision);
    let mut parts: Vec<_> = record.files.iter().zip(blobs).collect();
    // Another process may take a folder with weights as complete, so weights are linked last.
    parts.sort_by_key(|(file, _)| file.path.ends_with(".safetensors"));
    for (file, blob) in parts {
        link(&folder, &file.path, &repository.join("blobs").join(blob))?;
    }
    sync_folder(&folder)?;
    if let Some(file) = files::missing(&folder)? {
        return Err(Error::Data {
            message: format!("{} is incomplete: {file} is missing", record.repository),
            hint: Some("turnwise supports encoders of the BERT family in the Hugging Face layout".to_owned()),
        });
    }
    record.write(repository)?;
    // A revision given as a commit needs no reference.
    if revision != record.revision {
        let reference = repository.join("refs").join(revision);
        create_parent(&reference)?;
        replace(&reference, record.revision.as_bytes())?;
    }
    match cache::snapshot(repository, &record.revision)? {
        cache::Found::Whole(_) => Ok(()),
        _ => {
            Err(Error::Internal(format!("{} is not complete after its files were linked", folder.display())))
        }
    }
}

fn link(folder: &Path, path: &str, blob: &Path) -> Result<()> {
    let place = folder.join(path);
    create_parent(&place)?;
    let depth = path.matches('/').count();
    let target: PathBuf = ["..", ".."].into_iter().chain(std::iter::repeat_n("..", depth)).collect();
    let target = target.join("blobs").join(blob.file_name().unwrap_or_default());
    if fs::read_link(&place).is_ok_and(|there| there == target) {
        return Ok(());
    }
    match fs::remove_file(&place) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e).at("replace", &place),
        _ => {}
    }
    // Some file systems have no symbolic links, and Windows may require a privilege for them.
    match symlink(&target, &place) {
        Ok(()) => Ok(()),
        Err(_) => fs::copy(blob, &place).map(drop).at("create", &place),
    }
}

#[cfg(unix)]
fn symlink(target: &Path, place: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, place)
}

#[cfg(windows)]
fn symlink(target: &Path, place: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, place)
}

#[cfg(not(any(unix, windows)))]
fn symlink(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

fn create_parent(path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), |folder| fs::create_dir_all(folder).at("create", folder))
}
