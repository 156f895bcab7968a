//! Backup and restore. A backup is a copy of the log, up to its last batch, with a checksum of each file.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::{IndexPaths, Manifest, Snapshot, Totals, lock::WriterLock, manifest::FORMAT, writer};
use turnwise_core::{Error, IoContext, Result, files};
use turnwise_corpus::Time;

const NAME: &str = "backup.json";

/// Content of `backup.json`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Backup {
    /// File format version.
    pub format: u32,
    /// Version of turnwise that wrote the backup.
    pub turnwise: String,
    /// Creation time of the backup.
    pub made: Time,
    /// Creation time of the index.
    pub created: Time,
    /// Number of the last batch in the backup.
    pub batch: u64,
    /// Numbers of dialogues and turns in the backup.
    pub totals: Totals,
    /// The copied log segments.
    pub files: Vec<BackupFile>,
}

/// A file of a backup.
#[derive(Debug, Serialize, Deserialize)]
pub struct BackupFile {
    /// File name in the backup folder.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// BLAKE3 checksum, hexadecimal.
    pub blake3: String,
}

/// Backs up an index, up to its last batch, to the folder `target`. A writer may be active at the same time.
///
/// Returns an error if `target` is not empty.
pub fn backup(root: &Path, target: &Path) -> Result<Backup> {
    let snapshot = Snapshot::open(root)?;
    check_empty(target)?;
    fs::create_dir_all(target).at("create", target)?;
    let end = snapshot.state.at;
    let mut saved = Vec::new();
    for number in 1..=end.segment {
        // Copy the mapped bytes: a compaction may remove the files at the same time.
        let segment = snapshot.segment(number)?;
        let name = segment.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (bytes, blake3) = copy(&mut segment.bytes(), segment.path(), &target.join(&name))?;
        saved.push(BackupFile { name, bytes, blake3 });
    }
    let backup = Backup {
        format: FORMAT,
        turnwise: env!("CARGO_PKG_VERSION").to_owned(),
        made: Time(jiff::Timestamp::now()),
        created: snapshot.created(),
        batch: snapshot.batch(),
        totals: snapshot.totals(),
        files: saved,
    };
    files::replace_json(&target.join(NAME), &backup)?;
    Ok(backup)
}

/// Creates the index `root` from the backup in `source`. Verifies all checksums first. `command` is stored in the lock
/// file.
///
/// Returns an error if `root` is not empty, if `source` is not a backup, or if the backup is damaged.
pub fn restore(source: &Path, root: &Path, command: &str) -> Result<Backup> {
    let path = source.join(NAME);
    let text = match fs::read(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let message = format!("{} is not a backup: it contains no {NAME}", source.display());
            return Err(
                Error::input(message).with_hint("a backup is the folder that `turnwise backup` wrote")
            );
        }
        other => other.at("read", &path)?,
    };
    let backup: Backup =
        serde_json::from_slice(&text).map_err(|e| damaged(&path, format!("it is unreadable: {e}")))?;
    if backup.format != FORMAT {
        return Err(Error::FormatVersion { path, found: backup.format, supported: FORMAT });
    }
    check_empty(root)?;
    check(source, &backup)?;
    fs::create_dir_all(root).at("create", root)?;
    let _lock = WriterLock::acquire(root, command)?;
    let folder = IndexPaths::first(root).log();
    fs::create_dir_all(&folder).at("create", &folder)?;
    for saved in &backup.files {
        let from = source.join(&saved.name);
        let mut file = File::open(&from).at("open", &from)?;
        copy(&mut file, &from, &folder.join(&saved.name))?;
    }
    files::sync_folder(&folder)?;
    let manifest = Manifest { created: backup.created, ..Manifest::default() };
    let view = writer::rebuild_derived(root, manifest)?;
    if view.totals() != backup.totals {
        let hint = format!("delete {} and use a different backup", root.display());
        return Err(Error::corrupt(&path, "the totals of the restored index do not match it").with_hint(hint));
    }
    Ok(backup)
}

fn check(source: &Path, backup: &Backup) -> Result<()> {
    for saved in &backup.files {
        let path = source.join(&saved.name);
        if saved.name.contains(['/', '\\']) {
            return Err(damaged(&source.join(NAME), format!("`{}` is not a valid file name", saved.name)));
        }
        let mut file = match File::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(damaged(&path, "it is missing".to_owned()));
            }
            other => other.at("open", &path)?,
        };
        let mut hasher = blake3::Hasher::new();
        let bytes = io::copy(&mut file, &mut hasher).at("read", &path)?;
        if bytes != saved.bytes {
            return Err(damaged(&path, format!("it has {bytes} bytes instead of {}", saved.bytes)));
        }
        if hasher.finalize().to_hex().as_str() != saved.blake3 {
            return Err(damaged(&path, format!("its checksum does not match {NAME}")));
        }
    }
    Ok(())
}

fn damaged(path: &Path, what: String) -> Error {
    Error::corrupt(path, what).with_hint("use a different backup; nothing was restored from this one")
}

fn check_empty(folder: &Path) -> Result<()> {
    let taken = match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_some(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => false,
        Err(e) => return Err(e).at("read", folder),
    };
    if taken {
        return Err(Error::input(format!("{} is not empty", folder.display())).with_hint(
            "name a folder that does not exist yet, or remove the files that an interrupted run left in it",
        ));
    }
    Ok(())
}

/// Copies data to a file and flushes the file to disk. Returns the length and the checksum.
fn copy(source: &mut dyn Read, from: &Path, to: &Path) -> Result<(u64, String)> {
    let mut out = File::create(to).at("create", to)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        let n = match source.read(&mut buffer) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            read => read.at("read", from)?,
        };
        if n == 0 {
            break;
        }
        hasher.update(&buffer[..n]);
        out.write_all(&buffer[..n]).at("write", to)?;
        bytes += n as u64;
    }
    out.sync_all().at("flush", to)?;
    Ok((bytes, hasher.finalize().to_hex().to_string()))
}
