//! A folder of Tantivy's that is read and never written: what is written lies in memory above it.

use std::{io, path::Path, sync::Arc};

use tantivy::directory::{
    Directory, DirectoryLock, FileHandle, INDEX_WRITER_LOCK, Lock, MmapDirectory, RamDirectory,
    WatchCallback, WatchHandle, WritePtr,
    error::{DeleteError, LockError, OpenDirectoryError, OpenReadError, OpenWriteError},
};

/// What is in memory hides what has the same name in the folder.
#[derive(Debug, Clone)]
pub(super) struct Overlay {
    folder: MmapDirectory,
    memory: RamDirectory,
}

impl Overlay {
    pub(super) fn over(folder: &Path) -> Result<Self, OpenDirectoryError> {
        Ok(Overlay { folder: MmapDirectory::open(folder)?, memory: RamDirectory::create() })
    }

    fn holder(&self, path: &Path) -> Result<&dyn Directory, OpenReadError> {
        Ok(if self.memory.exists(path)? { &self.memory } else { &self.folder })
    }
}

impl Directory for Overlay {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        self.holder(path)?.get_file_handle(path)
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        match self.memory.delete(path) {
            // Nobody here needs the folder's file any more. Others may.
            Err(DeleteError::FileDoesNotExist(_)) => Ok(()),
            done => done,
        }
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        self.holder(path)?.exists(path)
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        self.memory.open_write(path)
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        self.holder(path)?.atomic_read(path)
    }

    fn atomic_write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        self.memory.atomic_write(path, data)
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn acquire_lock(&self, lock: &Lock) -> Result<DirectoryLock, LockError> {
        // Who writes into memory is in nobody's way; who opens files must not have them removed under his hands.
        match lock.filepath == INDEX_WRITER_LOCK.filepath {
            true => self.memory.acquire_lock(lock),
            false => self.folder.acquire_lock(lock),
        }
    }

    fn watch(&self, _callback: WatchCallback) -> tantivy::Result<WatchHandle> {
        Ok(WatchHandle::empty())
    }
}
