//! Storage of shards: a local folder or a folder in an object store. A file under its final name is always
//! complete.

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

/// Age after which a temporary file counts as abandoned.
const ABANDONED: Duration = Duration::from_secs(3600);

/// A file in a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) bytes: u64,
}

/// A local or remote folder.
pub(crate) trait Place {
    /// Name as given by the user.
    fn name(&self) -> &str;

    /// Lists the files by name.
    fn list(&self) -> Result<Vec<Found>>;

    /// Reads a small file; `None` if it does not exist.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>>;

    /// Returns a new local file name for a file that will be stored in this place.
    fn temporary(&self, stem: &str) -> Result<Temporary>;

    /// Stores a flushed local file under its final name.
    fn keep(&self, file: &mut Temporary, name: &str) -> Result<()>;

    /// Whether files are read directly, without a download.
    fn is_local(&self) -> bool;

    /// Returns a local copy of a file, or the file itself in a local place.
    fn fetch(&self, name: &str) -> Result<Temporary>;

    /// Removes a file if it exists.
    fn remove(&self, name: &str) -> Result<()>;

    /// Removes temporary files of this shard that killed processes left.
    fn remove_leftovers(&self, stem: &str) {
        let _ = stem;
    }
}

/// Opens the place with this name. Creates nothing.
pub(crate) fn open(name: &str) -> Result<Box<dyn Place>> {
    match name.split_once("://") {
        None => Ok(Box::new(Folder { name: name.to_owned(), path: PathBuf::from(name) })),
        Some(("file", path)) => Ok(Box::new(Folder { name: name.to_owned(), path: PathBuf::from(path) })),
        #[cfg(feature = "remote")]
        Some(_) => Ok(Box::new(super::remote::Remote::open(name)?)),
        #[cfg(not(feature = "remote"))]
        Some((scheme, _)) => Err(turnwise_core::error::Error::Unavailable {
            message: format!(
                "{name} is in an object store ({scheme}), but this turnwise was built without support for them"
            ),
            hint: Some("build it with `--features remote`, or use a folder".to_owned()),
        }),
    }
}

/// A local file that is removed when dropped, unless it is not ours.
pub(crate) struct Temporary {
    pub(crate) path: PathBuf,
    ours: bool,
}

impl Temporary {
    /// Creates a unique name in this folder.
    pub(crate) fn unique_in(folder: &Path, stem: &str) -> Result<Self> {
        let nanoseconds = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_nanos());
        // Processes in different containers can have the same process id, so the time is part of the name.
        let path = folder.join(format!(".{stem}-{}-{nanoseconds:x}.part", std::process::id()));
        Ok(Temporary { path, ours: true })
    }

    /// An existing file, which is not removed.
    pub(crate) fn existing(path: PathBuf) -> Self {
        Temporary { path, ours: false }
    }

    /// Returns the length and the hash of the file.
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

/// A local or mounted folder.
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
            // The file was removed after it was listed.
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
        Temporary::unique_in(&self.path, stem)
    }

    fn keep(&self, file: &mut Temporary, name: &str) -> Result<()> {
        let path = self.path.join(name);
        fs::rename(&file.path, &path).at("create", &path)?;
        *file = Temporary::existing(path);
        files::sync_folder(&self.path)
    }

    fn is_local(&self) -> bool {
        true
    }

    fn fetch(&self, name: &str) -> Result<Temporary> {
        Ok(Temporary::existing(self.path.join(name)))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.at("remove", &path),
        }
    }

    fn remove_leftovers(&self, stem: &str) {
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

/// Writes a small file atomically.
pub(crate) fn write(place: &dyn Place, stem: &str, name: &str, bytes: &[u8]) -> Result<()> {
    let mut file = place.temporary(stem)?;
    let mut out = File::create(&file.path).at("create", &file.path)?;
    io::Write::write_all(&mut out, bytes).and_then(|()| out.sync_all()).at("write", &file.path)?;
    drop(out);
    place.keep(&mut file, name)
}
