//! Folder of shards, on this machine or in an object store. A file under its final name is always complete.

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

/// File in a [`Folder`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// Name without the folder.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
}

/// Folder of shards, on this machine or in an object store.
pub trait Folder {
    /// Returns the path or URL of the folder, as given by the user.
    fn name(&self) -> &str;

    /// Lists the files, sorted by name. The list is empty if the folder does not exist.
    fn list(&self) -> Result<Vec<FileEntry>>;

    /// Reads a small file. Returns `None` if the file does not exist.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>>;

    /// Returns a unique local path for a file that [`publish`](Folder::publish) will store in this folder. `stem` is
    /// used in the file name.
    fn temporary(&self, stem: &str) -> Result<TemporaryFile>;

    /// Publishes a local file in this folder under its final name, by renaming or uploading it. The file must be
    /// flushed to disk.
    fn publish(&self, file: &mut TemporaryFile, name: &str) -> Result<()>;

    /// Returns whether files can be read directly, without a download.
    fn is_local(&self) -> bool;

    /// Returns a local copy of a file, or the file itself if the folder is local.
    fn fetch(&self, name: &str) -> Result<TemporaryFile>;

    /// Removes a file if it exists.
    fn remove(&self, name: &str) -> Result<()>;

    /// Removes abandoned temporary files of the shard whose file names begin with `stem`. Killed processes leave such
    /// files. The default implementation does nothing.
    fn remove_leftovers(&self, stem: &str) {
        let _ = stem;
    }
}

/// Opens a folder by its path or URL. Does not create the folder.
///
/// # Errors
///
/// [`Error::Unavailable`](turnwise_core::error::Error::Unavailable) if the URL names an object store that cannot be
/// opened, or if turnwise was built without the feature `remote`;
/// [`Error::UnknownName`](turnwise_core::error::Error::UnknownName) if the scheme of the URL is unknown.
pub fn open_folder(name: &str) -> Result<Box<dyn Folder>> {
    let path = match name.split_once("://") {
        None => name,
        Some(("file", path)) => path,
        #[cfg(feature = "remote")]
        Some(_) => return Ok(Box::new(super::object_store::RemoteFolder::open(name)?)),
        #[cfg(not(feature = "remote"))]
        Some((scheme, _)) => {
            return Err(turnwise_core::error::Error::unavailable(format!(
                "{name} is in an object store ({scheme}), but this turnwise was built without support for them"
            ))
            .with_hint("build it with `--features remote`, or use a folder"));
        }
    };
    Ok(Box::new(LocalFolder { name: name.to_owned(), path: PathBuf::from(path) }))
}

/// Handle of a local file. If the file is a temporary file of this process, dropping the handle removes it. If it is a
/// file of a [`Folder`], it is kept.
pub struct TemporaryFile {
    pub(crate) path: PathBuf,
    ours: bool,
}

impl TemporaryFile {
    /// Returns a unique path in `folder`. Creates no file.
    pub(crate) fn unique_in(folder: &Path, stem: &str) -> Result<Self> {
        let nanoseconds = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_nanos());
        // Processes in different containers can have the same process id, so the time is part of the name.
        let path = folder.join(format!(".{stem}-{}-{nanoseconds:x}.part", std::process::id()));
        Ok(TemporaryFile::removed_on_drop(path))
    }

    /// Creates a handle that removes the file when dropped. The file need not exist yet.
    pub(crate) fn removed_on_drop(path: PathBuf) -> Self {
        TemporaryFile { path, ours: true }
    }

    /// Makes this handle keep the file when dropped.
    pub(crate) fn keep(&mut self) {
        self.ours = false;
    }

    /// Creates a handle that keeps the file when dropped. The file must exist.
    pub(crate) fn existing(path: PathBuf) -> Self {
        TemporaryFile { path, ours: false }
    }

    /// Returns the size of the file in bytes and its BLAKE3 hash in hexadecimal.
    pub(crate) fn sum(&self) -> Result<(u64, String)> {
        let mut file = File::open(&self.path).at("open", &self.path)?;
        let mut hasher = blake3::Hasher::new();
        let bytes = io::copy(&mut file, &mut hasher).at("read", &self.path)?;
        Ok((bytes, hasher.finalize().to_hex().to_string()))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if self.ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Folder in the file system, such as a local disk or a network mount.
struct LocalFolder {
    name: String,
    path: PathBuf,
}

impl Folder for LocalFolder {
    fn name(&self) -> &str {
        &self.name
    }

    fn list(&self) -> Result<Vec<FileEntry>> {
        let entries = match fs::read_dir(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.at("read", &self.path)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.at("read", &self.path)?;
            // Another process can remove a file after it is listed.
            let Ok(metadata) = fs::metadata(entry.path()) else { continue };
            if let (true, Ok(name)) = (metadata.is_file(), entry.file_name().into_string()) {
                found.push(FileEntry { name, bytes: metadata.len() });
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

    fn temporary(&self, stem: &str) -> Result<TemporaryFile> {
        fs::create_dir_all(&self.path).at("create", &self.path)?;
        TemporaryFile::unique_in(&self.path, stem)
    }

    fn publish(&self, file: &mut TemporaryFile, name: &str) -> Result<()> {
        let path = self.path.join(name);
        fs::rename(&file.path, &path).at("create", &path)?;
        *file = TemporaryFile::existing(path);
        files::sync_folder(&self.path)
    }

    fn is_local(&self) -> bool {
        true
    }

    fn fetch(&self, name: &str) -> Result<TemporaryFile> {
        Ok(TemporaryFile::existing(self.path.join(name)))
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

/// Writes a small file to a folder atomically. `stem` is used in the name of the temporary file.
pub(crate) fn write_file(folder: &dyn Folder, stem: &str, name: &str, bytes: &[u8]) -> Result<()> {
    let mut file = folder.temporary(stem)?;
    let mut out = File::create(&file.path).at("create", &file.path)?;
    io::Write::write_all(&mut out, bytes).and_then(|()| out.sync_all()).at("write", &file.path)?;
    drop(out);
    folder.publish(&mut file, name)
}
