//! Downloads files into the cache as blobs, and creates a snapshot from them. Interrupted downloads are resumed. A file
//! gets its final name only after its size and digest are checked.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use sha2::{Digest, Sha256};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files::{replace, sync_folder, sync_parent},
};

use crate::{
    folder::save::create_parent,
    hub::{
        Places, Record, cache, files, hex, incomplete,
        pull::{Client, FetchError, Progress, http::Retry, stopped, wrong_digest},
        sha256_of,
    },
};

/// A file to download, with the expected size and digest.
pub(super) struct Expected<'a> {
    /// Name of the file, for messages.
    pub(super) name: &'a str,
    pub(super) url: String,
    pub(super) etag: &'a str,
    pub(super) bytes: u64,
    pub(super) sha256: Option<&'a str>,
    /// Source of the expected digest, for messages.
    pub(super) digest_source: &'a str,
    pub(super) places: &'a Places,
    pub(super) repository: &'a str,
}

/// Downloads files one after the other.
pub(super) struct Transfer<'a, 'w> {
    pub(super) client: &'a Client,
    pub(super) watch: &'w mut dyn Progress,
    /// Number of bytes of this transfer that are in the cache, including bytes downloaded by earlier transfers.
    pub(super) present: u64,
    pub(super) total: u64,
    /// Number of bytes downloaded by this transfer.
    pub(super) fetched: u64,
}

/// A partially downloaded file. The hasher contains the hash state of the bytes downloaded so far.
struct PartialFile {
    path: PathBuf,
    file: File,
    length: u64,
    hasher: Sha256,
}

impl Transfer<'_, '_> {
    /// Downloads a file into the cache, unless the cache already has it. Returns its SHA-256.
    pub(super) fn ensure(&mut self, expected: &Expected<'_>) -> Result<String, FetchError> {
        let blobs = expected.places.repository(expected.repository).join("blobs");
        fs::create_dir_all(&blobs).at("create", &blobs)?;
        let target = blobs.join(expected.etag);
        let locks = expected.places.locks(expected.repository);
        // The Hugging Face libraries use the same lock file.
        let _lock = lock(&locks.join(format!("{}.lock", expected.etag)), self.watch)?;
        let before = self.present;
        let digest = match self.existing_digest(&target, expected)? {
            Some(digest) => digest,
            None => self.fetch(&target, expected)?,
        };
        self.present = before + expected.bytes;
        self.watch.progress(self.present, self.total);
        Ok(digest)
    }

    /// Returns the SHA-256 of a file in the cache. Returns `None` if the file is missing, or if its size or digest is
    /// not the expected one.
    fn existing_digest(&self, target: &Path, expected: &Expected<'_>) -> Result<Option<String>> {
        if !fs::metadata(target).is_ok_and(|m| m.len() == expected.bytes) {
            return Ok(None);
        }
        let digest = sha256_of(target)?;
        Ok(Some(digest).filter(|digest| expected.sha256.is_none_or(|right| right == digest)))
    }

    fn fetch(&mut self, target: &Path, expected: &Expected<'_>) -> Result<String, FetchError> {
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(".incomplete");
        let mut partial = PartialFile::open(target.with_file_name(name), self.watch)?;
        if partial.length > expected.bytes {
            partial.start_over()?;
        }
        let mut began_before = partial.length > 0;
        let before = self.present;
        let mut retry = Retry::default();
        let mut furthest = partial.length;
        loop {
            while partial.length < expected.bytes {
                let outcome = self.fetch_rest(&mut partial, expected, before);
                if partial.length > furthest {
                    furthest = partial.length;
                    retry.failed = 0;
                }
                if let Err(error) = outcome {
                    retry.wait(error, self.watch)?;
                }
            }
            let digest = hex(&partial.hasher.clone().finalize());
            if expected.sha256.is_none_or(|right| right == digest) {
                partial.file.sync_all().at("flush", &partial.path)?;
                fs::rename(&partial.path, target).at("create", target)?;
                sync_parent(target)?;
                return Ok(digest);
            }
            if !began_before {
                fs::remove_file(&partial.path).at("remove", &partial.path)?;
                let right = expected.sha256.unwrap_or_default();
                return Err(wrong_digest(expected.name, right, &digest, expected.digest_source).into());
            }
            // The first part of the file was downloaded by an earlier run and may be damaged, so download the whole
            // file again.
            partial.start_over()?;
            (began_before, furthest) = (false, 0);
        }
    }

    /// Requests the rest of a file without retries, and appends the response to the partial file.
    fn fetch_rest(
        &mut self,
        partial: &mut PartialFile,
        expected: &Expected<'_>,
        before: u64,
    ) -> Result<(), FetchError> {
        let mut response = self.client.get(&expected.url, partial.length, self.watch)?;
        match response.status {
            200 => partial.start_over()?,
            206 if response.from == partial.length => {}
            206 | 416 => {
                partial.start_over()?;
                return Err(FetchError::Unreachable(format!(
                    "it sent a different range of {} than requested",
                    expected.name
                )));
            }
            status => {
                return Err(Error::input(format!(
                    "the hub returned HTTP status {status} for {} of {}",
                    expected.name, expected.repository
                ))
                .with_hint("for a private or gated model, set HF_TOKEN")
                .into());
            }
        }
        if let Some(length) = response.length
            && response.from + length > expected.bytes
        {
            return Err(wrong_length(expected, response.from + length).into());
        }
        while let Some(bytes) = response.next(self.watch)? {
            self.fetched += bytes.len() as u64;
            if partial.length + bytes.len() as u64 > expected.bytes {
                return Err(wrong_length(expected, partial.length + bytes.len() as u64).into());
            }
            partial.append(&bytes)?;
            self.watch.progress(before + partial.length, self.total);
        }
        match partial.length == expected.bytes || response.status == 206 && partial.length > response.from {
            true => Ok(()),
            false => Err(Error::data(format!(
                "{} is truncated on the hub: received {} of {} bytes",
                expected.name, partial.length, expected.bytes
            ))
            .with_hint("pull again later; the downloaded part is kept")
            .into()),
        }
    }
}

fn wrong_length(expected: &Expected<'_>, length: u64) -> Error {
    Error::data(format!(
        "{} is longer than the hub reported: {length} bytes instead of {}",
        expected.name, expected.bytes
    ))
    .with_hint("a proxy may change the file; try another network or set HF_ENDPOINT")
}

impl PartialFile {
    /// Opens or creates the file, and hashes the existing content.
    fn open(path: PathBuf, watch: &dyn Progress) -> Result<Self> {
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut partial =
            PartialFile { file: options.at("open", &path)?, path, length: 0, hasher: Sha256::new() };
        let mut buffer = vec![0; 1 << 18];
        loop {
            if watch.stopped() {
                return Err(stopped());
            }
            match partial.file.read(&mut buffer).at("read", &partial.path)? {
                0 => return Ok(partial),
                n => {
                    partial.hasher.update(&buffer[..n]);
                    partial.length += n as u64;
                }
            }
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).at("write to", &self.path)?;
        self.hasher.update(bytes);
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn start_over(&mut self) -> Result<()> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.at("write to", &self.path)?;
        (self.length, self.hasher) = (0, Sha256::new());
        Ok(())
    }
}

/// Waits for a file lock and acquires it. The lock is released when the returned file is dropped or the process ends.
pub(super) fn lock(path: &Path, watch: &mut dyn Progress) -> Result<File> {
    create_parent(path)?;
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).at("open", path)?;
    let mut announced = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(e)) => return Err(e).at("lock", path),
        }
        if !std::mem::replace(&mut announced, true) {
            watch.say("another process downloads the same files; waiting for it");
        }
        if watch.stopped() {
            return Err(stopped());
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Creates a snapshot: links its files to the blobs, then writes the record, and finally writes the reference file in
/// `refs`.
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
    // Another process may assume that a folder with weights is complete, so weights are linked last.
    parts.sort_by_key(|(file, _)| file.path.ends_with(".safetensors"));
    for (file, blob) in parts {
        create_link(&folder, &file.path, &repository.join("blobs").join(blob))?;
    }
    sync_folder(&folder)?;
    if let Some(file) = files::missing(&folder)? {
        return Err(incomplete(&record.repository, &file));
    }
    record.write(repository)?;
    // A commit is found by the name of its snapshot and needs no reference file.
    if revision != record.revision {
        let reference = repository.join("refs").join(revision);
        create_parent(&reference)?;
        replace(&reference, record.revision.as_bytes())?;
    }
    match cache::snapshot(repository, &record.revision)? {
        cache::Found::Complete(_) => Ok(()),
        _ => Err(Error::Internal(format!("{} is not complete after linking its files", folder.display()))),
    }
}

fn create_link(folder: &Path, path: &str, blob: &Path) -> Result<()> {
    let link = folder.join(path);
    create_parent(&link)?;
    let depth = path.matches('/').count();
    let target: PathBuf = ["..", ".."].into_iter().chain(std::iter::repeat_n("..", depth)).collect();
    let target = target.join("blobs").join(blob.file_name().unwrap_or_default());
    if fs::read_link(&link).is_ok_and(|current| current == target) {
        return Ok(());
    }
    match fs::remove_file(&link) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e).at("replace", &link),
        _ => {}
    }
    // Copy the file if it cannot be linked. Linking fails on some file systems, and on Windows without a certain
    // privilege.
    symlink(&target, &link).or_else(|_| fs::copy(blob, &link).map(drop)).at("create", &link)
}

#[cfg(unix)]
fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

#[cfg(windows)]
fn symlink(target: &Path, link: &Path) -> io::Result<()> {
    std::os::windows::fs::symlink_file(target, link)
}

#[cfg(not(any(unix, windows)))]
fn symlink(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
