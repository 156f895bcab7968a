//! Copies of an index that can be trusted: the log up to one batch, with a checksum of every file.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::{
    frame::Totals,
    lock::WriterLock,
    manifest::{FORMAT, Manifest},
    places::Places,
    snapshot::Snapshot,
    writer,
};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};
use turnwise_corpus::Time;

const NAME: &str = "backup.json";

/// What `backup.json` says.
#[derive(Debug, Serialize, Deserialize)]
pub struct Backup {
    /// The version of the files' format.
    pub format: u32,
    /// The turnwise that wrote it.
    pub turnwise: String,
    /// When it was made.
    pub made: Time,
    /// When the index was made.
    pub created: Time,
    /// The batch it holds.
    pub batch: u64,
    /// The totals at that batch.
    pub totals: Totals,
    /// The files.
    pub files: Vec<Saved>,
}

/// A file of a backup.
#[derive(Debug, Serialize, Deserialize)]
pub struct Saved {
    /// Its name in the backup's folder.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its BLAKE3 checksum.
    pub blake3: String,
}

/// Copies an index, as of its last batch, into a folder that must be new or empty. A writer may go on meanwhile.
pub fn backup(root: &Path, target: &Path) -> Result<Backup> {
    let snapshot = Snapshot::open(root)?;
    must_be_free(target)?;
    fs::create_dir_all(target).at("create", target)?;
    let end = snapshot.state.at;
    let mut saved = Vec::new();
    for number in 1..=end.segment {
        // As they were mapped: what becomes of the files meanwhile is of no matter.
        let segment = snapshot.segment(number)?;
        let name = segment.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (bytes, blake3) = copy(&mut segment.bytes(), segment.path(), &target.join(&name))?;
        saved.push(Saved { name, bytes, blake3 });
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
    let mut text = serde_json::to_vec_pretty(&backup).map_err(|e| Error::Internal(e.to_string()))?;
    text.push(b'\n');
    files::replace(&target.join(NAME), &text)?;
    Ok(backup)
}

/// Makes an index from a backup, in a place where there is none. Every checksum is compared first.
pub fn restore(source: &Path, root: &Path, command: &str) -> Result<Backup> {
    let path = source.join(NAME);
    let text = match fs::read(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(Error::Input {
                message: format!("{} is not a backup: it holds no {NAME}", source.display()),
                hint: Some("a backup is the folder that `turnwise backup` wrote".to_owned()),
            });
        }
        other => other.at("read", &path)?,
    };
    let backup: Backup =
        serde_json::from_slice(&text).map_err(|e| damaged(&path, format!("it is unreadable: {e}")))?;
    if backup.format != FORMAT {
        return Err(Error::FormatVersion { path, found: backup.format, supported: FORMAT });
    }
    must_be_free(root)?;
    check(source, &backup)?;
    fs::create_dir_all(root).at("create", root)?;
    let _lock = WriterLock::acquire(root, command)?;
    let folder = Places::first(root).log();
    fs::create_dir_all(&folder).at("create", &folder)?;
    for saved in &backup.files {
        let from = source.join(&saved.name);
        let mut file = File::open(&from).at("open", &from)?;
        copy(&mut file, &from, &folder.join(&saved.name))?;
    }
    files::sync_folder(&folder)?;
    let manifest = Manifest { created: backup.created, ..Manifest::new() };
    let view = writer::rebuild_derived(root, manifest)?;
    if view.totals() != backup.totals {
        return Err(damaged(&path, "the restored index does not have the totals that it names".to_owned()));
    }
    Ok(backup)
}

fn check(source: &Path, backup: &Backup) -> Result<()> {
    for saved in &backup.files {
        let path = source.join(&saved.name);
        if saved.name.contains(['/', '\\']) {
            return Err(damaged(&source.join(NAME), format!("`{}` is no name of a file in it", saved.name)));
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
            return Err(damaged(&path, "its checksum is not the one of the backup".to_owned()));
        }
    }
    Ok(())
}

fn damaged(path: &Path, what: String) -> Error {
    Error::corrupt(path, what).with_hint("take another backup; nothing was restored from this one")
}

fn must_be_free(folder: &Path) -> Result<()> {
    let taken = match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_some(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => false,
        Err(e) => return Err(e).at("read", folder),
    };
    if taken {
        return Err(Error::Input {
            message: format!("{} is not empty", folder.display()),
            hint: Some(
                "name a folder that does not exist yet, or remove what an interrupted run left in it"
                    .to_owned(),
            ),
        });
    }
    Ok(())
}

/// Copies and hashes; the copy is flushed to the disk.
fn copy(source: &mut dyn Read, from: &Path, to: &Path) -> Result<(u64, String)> {
    let mut out = File::create(to).at("create", to)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        let n = match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e).at("read", from),
        };
        hasher.update(&buffer[..n]);
        out.write_all(&buffer[..n]).at("write", to)?;
        bytes += n as u64;
    }
    out.sync_all().at("flush", to)?;
    Ok((bytes, hasher.finalize().to_hex().to_string()))
}
