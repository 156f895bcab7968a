//! The writer lock. A kernel lock on a file allows one writer at a time and is released when the process ends.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read, Seek, SeekFrom, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};

use turnwise_core::{Error, IoContext, Result};

/// Exclusive right to write to an index. Released on drop. If the process is killed, the kernel releases the lock.
#[derive(Debug)]
pub struct WriterLock {
    file: File,
}

#[derive(Serialize, Deserialize)]
struct Holder {
    pid: u32,
    host: String,
    command: String,
    since: String,
}

impl WriterLock {
    /// Acquires the main writer lock. If the lock is taken, returns [`Error::Busy`] with a description of the
    /// holder. `command` is stored in the lock file as part of this description.
    pub fn acquire(index: &Path, command: &str) -> Result<Self> {
        WriterLock::acquire_named(index, "lock", command)
    }

    /// Acquires the writer lock of a part of the index that has its own writer. `name` is the name of the lock file in
    /// the index folder.
    pub fn acquire_named(index: &Path, name: &str, command: &str) -> Result<Self> {
        let path = index.join(name);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .at("open", &path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Busy { path: index.to_owned(), holder: holder(&mut file) });
            }
            Err(TryLockError::Error(e)) => return Err(e).at("lock", &path),
        }
        let holder = Holder {
            pid: std::process::id(),
            host: host(),
            command: command.to_owned(),
            since: jiff::Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string(),
        };
        let text = serde_json::to_vec(&holder).unwrap_or_default();
        let written =
            file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0))).and_then(|_| file.write_all(&text));
        written.at("write", &path)?;
        Ok(WriterLock { file })
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        // Remove the description of this process from the lock file. A killed process leaves it there, which is
        // harmless.
        let _ = self.file.set_len(0);
        let _ = self.file.unlock();
    }
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let _ = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text));
    match serde_json::from_str::<Holder>(&text) {
        Ok(h) => format!("process {} on {} (`{}`, since {})", h.pid, h.host, h.command, h.since),
        Err(_) => "another process".to_owned(),
    }
}

fn host() -> String {
    let from_env = || std::env::var("HOSTNAME").ok();
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(from_env)
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "this host".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_error_names_the_lock_holder() {
        let dir = tempfile::tempdir().unwrap();
        let first = WriterLock::acquire(dir.path(), "turnwise ingest a.jsonl").unwrap();
        let e = WriterLock::acquire(dir.path(), "second").unwrap_err();
        let text = e.to_string();
        assert!(text.contains(&std::process::id().to_string()), "{text}");
        assert!(text.contains("turnwise ingest a.jsonl"), "{text}");
        drop(first);
        WriterLock::acquire(dir.path(), "second").unwrap();
    }
}
