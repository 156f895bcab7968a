//! Where shards lie: a folder, or a folder of an object store. Whatever has a name there is whole.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use turnwise_core::{
    error::{IoContext, Result},
    files,
};

/// A temporary file that nothing was added to for so long belongs to nobody any more.
const ABANDONED: Duration = Duration::from_secs(3600);

/// A file that lies in a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) bytes: u64,
}

/// A folder, wherever it is.
pub(crate) trait Place {
    /// As the user named it.
    fn name(&self) -> &str;

    /// What lies there, by name.
    fn list(&self) -> Result<Vec<Found>>;

    /// A small file; `None` if it is not there.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>>;

    /// A new name on this machine, for a file that is to be kept there.
    fn temporary(&self, stem: &str) -> Result<Temporary>;

    /// Gives a file that is flushed to the disk its name in the place.
    fn keep(&self, file: &mut Temporary, name: &str) -> Result<()>;

    /// Whether its files are read where they lie.
    fn is_near(&self) -> bool;

    /// A file of the place as one of this machine.
    fn fetch(&self, name: &str) -> Result<Temporary>;

    /// Removes a file, if it is there.
    fn remove(&self, name: &str) -> Result<()>;

    /// Removes the files that killed processes have left of this shard.
    fn tidy(&self, stem: &str) {
        let _ = stem;
    }
}

/// Opens the place that is named so. Nothing is created yet.
pub(crate) fn open(name: &str) -> Result<Box<dyn Place>> {
    match name.split_once("://") {
        None => Ok(Box::new(Folder { name: name.to_owned(), path: PathBuf::from(name) })),
        Some(("file", path)) => Ok(Box::new(Folder { name: name.to_owned(), path: PathBuf::from(path) })),
        #[cfg(feature = "remote")]
        Some(_) => Ok(Box::new(super::remote::Remote::open(name)?)),
        #[cfg(not(feature = "remote"))]
        Some((scheme, _)) => Err(turnwise_core::error::Error::Unavailable {
            message: format!(
                "this turnwise was built without object stores, and {name} is in one ({scheme})"
            ),
            hint: Some("build it with `--features remote`, or name a folder".to_owned()),
        }),
    }
}

/// A file of this machine that is removed when it is dropped, unless it is not ours.
pub(crate) struct Temporary {
    pub(crate) path: PathBuf,
    ours: bool,
}

impl Temporary {
    /// A name that no other process has, in this folder.
    pub(crate) fn within(folder: &Path, stem: &str) -> Result<Self> {
        let nanoseconds = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_nanos());
        // Processes in containers may have the same number, and hardly the same moment.
        let path = folder.join(format!(".{stem}-{}-{nanoseconds:x}.part", std::process::id()));
        Ok(Temporary { path, ours: true })
    }

    /// A file that stays.
    pub(crate) fn there(path: PathBuf) -> Self {
        Temporary { path, ours: false }
    }

    /// Its length, and the hash of its bytes.
    pub(crate) fn sum(&self) -> Result<(u64, String)> {
        let mut file = File::open(&self.path).at("open", &self.path)?;
        let mut hasher = blake3::Hasher::new();
        let bytes = io::copy(&mut file, &mut hasher).at("read", &self.path)?;
        Ok((bytes, hasher.finalize().to_hex().to_string()))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A folder of this machine, or one that is mounted.
struct Folder {
    name: String,
    path: PathBuf,
}

impl Place for Folder {
    fn name(&self) -> &str {
        &self.name
    }

    fn list(&self) -> Result<Vec<Found>> {
        let entries = match fs::read_dir(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.at("read", &self.path)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.at("read", &self.path)?;
            // What is removed meanwhile is not there.
            let Ok(metadata) = fs::metadata(entry.path()) else { continue };
            if let (true, Ok(name)) = (metadata.is_file(), entry.file_name().into_string()) {
                found.push(Found { name, bytes: metadata.len() });
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path.join(name);
        match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            bytes => bytes.at("read", &path).map(Some),
        }
    }

    fn temporary(&self, stem: &str) -> Result<Temporary> {
        fs::create_dir_all(&self.path).at("create", &self.path)?;
        Temporary::within(&self.path, stem)
    }

    fn keep(&self, file: &mut Temporary, name: &str) -> Result<()> {
        let path = self.path.join(name);
        fs::rename(&file.path, &path).at("create", &path)?;
        *file = Temporary::there(path);
        files::sync_folder(&self.path)
    }

    fn is_near(&self) -> bool {
        true
    }

    fn fetch(&self, name: &str) -> Result<Temporary> {
        Ok(Temporary::there(self.path.join(name)))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.at("remove", &path),
        }
    }

    fn tidy(&self, stem: &str) {
        let beginning = format!(".{stem}-");
        let abandoned = |entry: &fs::DirEntry| {
            let old = entry.metadata().and_then(|m| m.modified()).ok().and_then(|m| m.elapsed().ok());
            entry.file_name().to_string_lossy().starts_with(&beginning)
                && old.is_some_and(|old| old > ABANDONED)
        };
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        entries.flatten().filter(abandoned).for_each(|entry| drop(fs::remove_file(entry.path())));
    }
}

/// Writes a small file under its name, whole or not at all.
pub(crate) fn write(place: &dyn Place, stem: &str, name: &str, bytes: &[u8]) -> Result<()> {
    let mut file = place.temporary(stem)?;
    let mut out = File::create(&file.path).at("create", &file.path)?;
    io::Write::write_all(&mut out, bytes).and_then(|()| out.sync_all()).at("write", &file.path)?;
    drop(out);
    place.keep(&mut file, name)
}
