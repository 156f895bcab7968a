//! One file into the cache: whole and right, or not at all; what was begun is gone on with.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use sha2::{Digest, Sha256};

use super::{Client, Progress, Trouble, http::Patience, stopped, wrong_digest};
use crate::hub::{Places, hex, sha256_of};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files::sync_parent,
};

/// A file as it must be.
pub(super) struct Expected<'a> {
    /// Its name, for messages.
    pub(super) what: &'a str,
    pub(super) url: String,
    pub(super) etag: &'a str,
    pub(super) bytes: u64,
    pub(super) sha256: Option<&'a str>,
    /// Who says so.
    pub(super) by: &'a str,
    pub(super) places: &'a Places,
    pub(super) repository: &'a str,
}

/// Files on their way, one after the other.
pub(super) struct Transfer<'a, 'w> {
    pub(super) client: &'a Client,
    pub(super) watch: &'w mut dyn Progress,
    /// Of all files.
    pub(super) done: u64,
    pub(super) total: u64,
    /// What came over the network.
    pub(super) fetched: u64,
}

/// A file that grows, with the digest of what is in it.
struct Growing {
    path: PathBuf,
    file: File,
    length: u64,
    hasher: Sha256,
}

impl Transfer<'_, '_> {
    /// Brings a file into the cache unless it is there, and gives its SHA-256.
    pub(super) fn bring(&mut self, expected: &Expected<'_>) -> Result<String, Trouble> {
        let blobs = expected.places.repository(expected.repository).join("blobs");
        fs::create_dir_all(&blobs).at("create", &blobs)?;
        let target = blobs.join(expected.etag);
        let locks = expected.places.locks(expected.repository);
        // The Hugging Face libraries lock the same file.
        let _lock = lock(&locks.join(format!("{}.lock", expected.etag)), self.watch)?;
        let before = self.done;
        let digest = match self.there(&target, expected)? {
            Some(digest) => digest,
            None => self.fetch(&target, expected)?,
        };
        self.done = before + expected.bytes;
        self.watch.progress(self.done, self.total);
        Ok(digest)
    }

    /// The digest of a file that is there and right.
    fn there(&self, target: &Path, expected: &Expected<'_>) -> Result<Option<String>> {
        if !fs::metadata(target).is_ok_and(|m| m.len() == expected.bytes) {
            return Ok(None);
        }
        let digest = sha256_of(target)?;
        Ok(Some(digest).filter(|digest| expected.sha256.is_none_or(|right| right == digest)))
    }

    fn fetch(&mut self, target: &Path, expected: &Expected<'_>) -> Result<String, Trouble> {
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(".incomplete");
        let mut growing = Growing::open(target.with_file_name(name), self.watch)?;
        if growing.length > expected.bytes {
            growing.start_over()?;
        }
        let mut began_before = growing.length > 0;
        let before = self.done;
        let mut patience = Patience::new();
        let mut furthest = growing.length;
        loop {
            while growing.length < expected.bytes {
                let outcome = self.more(&mut growing, expected, before);
                if growing.length > furthest {
                    furthest = growing.length;
                    patience.progressed();
                }
                if let Err(trouble) = outcome {
                    patience.wait(trouble, self.watch)?;
                }
            }
            let digest = hex(&growing.hasher.clone().finalize());
            if expected.sha256.is_none_or(|right| right == digest) {
                growing.file.sync_all().at("flush", &growing.path)?;
                fs::rename(&growing.path, target).at("create", target)?;
                sync_parent(target)?;
                return Ok(digest);
            }
            if !began_before {
                fs::remove_file(&growing.path).at("remove", &growing.path)?;
                let right = expected.sha256.unwrap_or_default();
                return Err(wrong_digest(expected.what, right, &digest, expected.by).into());
            }
            // The beginning came from an earlier run, and may be what is wrong.
            growing.start_over()?;
            (began_before, furthest) = (false, 0);
        }
    }

    /// Asks for the rest of a file, and takes in what comes.
    fn more(&mut self, growing: &mut Growing, expected: &Expected<'_>, before: u64) -> Result<(), Trouble> {
        let mut answer = self.client.get(&expected.url, growing.length, self.watch)?;
        match answer.status {
            200 => growing.start_over()?,
            206 if answer.from == growing.length => {}
            206 | 416 => {
                growing.start_over()?;
                return Err(Trouble::Unreachable(format!(
                    "it sends another part of {} than was asked for",
                    expected.what
                )));
            }
            status => {
                return Err(Error::Input {
                    message: format!(
                        "the hub answers {status} to the request for {} of {}",
                        expected.what, expected.repository
                    ),
                    hint: Some("for a model that is private or gated set HF_TOKEN".to_owned()),
                }
                .into());
            }
        }
        if let Some(length) = answer.length
            && answer.from + length > expected.bytes
        {
            return Err(other_length(expected, answer.from + length).into());
        }
        while let Some(bytes) = answer.next(self.watch)? {
            self.fetched += bytes.len() as u64;
            if growing.length + bytes.len() as u64 > expected.bytes {
                return Err(other_length(expected, growing.length + bytes.len() as u64).into());
            }
            growing.take(&bytes)?;
            self.watch.progress(before + growing.length, self.total);
        }
        match growing.length == expected.bytes || answer.status == 206 && growing.length > answer.from {
            true => Ok(()),
            false => Err(truncated(expected, growing.length).into()),
        }
    }
}

fn truncated(expected: &Expected<'_>, length: u64) -> Error {
    Error::Data {
        message: format!(
            "{} is truncated on the hub: {length} of {} bytes came",
            expected.what, expected.bytes
        ),
        hint: Some("pull again later; what has come is kept".to_owned()),
    }
}

fn other_length(expected: &Expected<'_>, length: u64) -> Error {
    Error::Data {
        message: format!(
            "{} is longer than the hub says: {length} bytes, and it told {}",
            expected.what, expected.bytes
        ),
        hint: Some(
            "something between here and there changes the file; try another network or HF_ENDPOINT"
                .to_owned(),
        ),
    }
}

impl Growing {
    /// Opens or begins it, and reads what is there.
    fn open(path: PathBuf, watch: &dyn Progress) -> Result<Self> {
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut growing =
            Growing { file: options.at("open", &path)?, path, length: 0, hasher: Sha256::new() };
        let mut buffer = vec![0; 1 << 18];
        loop {
            if watch.stopped() {
                return Err(stopped());
            }
            match growing.file.read(&mut buffer).at("read", &growing.path)? {
                0 => return Ok(growing),
                n => {
                    growing.hasher.update(&buffer[..n]);
                    growing.length += n as u64;
                }
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Result<()> {
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

/// Takes a lock, or waits for who has it. The kernel releases it when the process ends in any way.
pub(super) fn lock(path: &Path, watch: &mut dyn Progress) -> Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).at("create", folder)?;
    }
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).at("open", path)?;
    let mut said = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(e)) => return Err(e).at("lock", path),
        }
        if !std::mem::replace(&mut said, true) {
            watch.say("another process fetches the same; waiting for it");
        }
        if watch.stopped() {
            return Err(stopped());
        }
        thread::sleep(Duration::from_millis(50));
    }
}
