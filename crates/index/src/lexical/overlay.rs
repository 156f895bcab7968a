//! A read-only Tantivy directory with an in-memory layer for writes.

use std::{io, path::Path, sync::Arc};

use tantivy::directory::{
    Directory, DirectoryLock, FileHandle, INDEX_WRITER_LOCK, Lock, MmapDirectory, RamDirectory,
    WatchCallback, WatchHandle, WritePtr,
    error::{DeleteError, LockError, OpenDirectoryError, OpenReadError, OpenWriteError},
};

/// Files in memory hide files with the same name on disk.
#[derive(Debug, Clone)]
pub(super) struct Overlay {
    folder: MmapDirectory,
    memory: RamDirectory,
}

impl Overlay {
    pub(super) fn with_memory_layer(folder: &Path) -> Result<Self, OpenDirectoryError> {
        Ok(Overlay { folder: MmapDirectory::open(folder)?, memory: RamDirectory::create() })
    }

    fn layer_of(&self, path: &Path) -> Result<&dyn Directory, OpenReadError> {
        Ok(if self.memory.exists(path)? { &self.memory } else { &self.folder })
    }
}

impl Directory for Overlay {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        self.layer_of(path)?.get_file_handle(path)
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        match self.memory.delete(path) {
            // The file on disk stays: other readers may use it.
            Err(DeleteError::FileDoesNotExist(_)) => Ok(()),
            done => done,
        }
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        self.layer_of(path)?.exists(path)
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        self.memory.open_write(path)
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        self.layer_of(path)?.atomic_read(path)
    }

    fn atomic_write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        self.memory.atomic_write(path, data)
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn acquire_lock(&self, lock: &Lock) -> Result<DirectoryLock, LockError> {
        // Writes go to memory and need no lock on disk. Opening files needs the lock on disk: it prevents their
        // removal in the meantime.
        match lock.filepath == INDEX_WRITER_LOCK.filepath {
            true => self.memory.acquire_lock(lock),
            false => self.folder.acquire_lock(lock),
        }
    }

    fn watch(&self, _callback: WatchCallback) -> tantivy::Result<WatchHandle> {
        Ok(WatchHandle::empty())
    }
}
