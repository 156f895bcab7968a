//! Implementations of Tantivy traits: a read-only directory with an in-memory layer for writes, and a tokenizer that
//! calls [`Analyzer`].

use std::{io, iter::Enumerate, path::Path, sync::Arc, vec};

use tantivy::{
    directory::{
        Directory, DirectoryLock, FileHandle, INDEX_WRITER_LOCK, Lock, MmapDirectory, RamDirectory,
        WatchCallback, WatchHandle, WritePtr,
        error::{DeleteError, LockError, OpenDirectoryError, OpenReadError, OpenWriteError},
    },
    tokenizer::{Token, TokenStream, Tokenizer},
};

use turnwise_text::Analyzer;

/// Directory with two layers: a folder that is only read, and memory for all writes. A file in memory hides the file
/// with the same name on disk.
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
        // Writes go to memory and need no lock on disk. Opening files needs the lock on disk, which prevents the
        // removal of these files in the meantime.
        let layer: &dyn Directory =
            if lock.filepath == INDEX_WRITER_LOCK.filepath { &self.memory } else { &self.folder };
        layer.acquire_lock(lock)
    }

    fn watch(&self, _callback: WatchCallback) -> tantivy::Result<WatchHandle> {
        Ok(WatchHandle::empty())
    }
}

/// Tokenizer that returns the terms of an analyzer.
#[derive(Clone)]
pub(super) struct AnalyzerTokenizer(pub(super) Analyzer);

pub(super) struct AnalyzerTokenStream {
    terms: Enumerate<vec::IntoIter<turnwise_text::Token>>,
    token: Token,
}

impl Tokenizer for AnalyzerTokenizer {
    type TokenStream<'a> = AnalyzerTokenStream;

    fn token_stream(&mut self, text: &str) -> AnalyzerTokenStream {
        let terms = self.0.analyze(text).into_iter().enumerate();
        AnalyzerTokenStream { terms, token: Token::default() }
    }
}

impl TokenStream for AnalyzerTokenStream {
    fn advance(&mut self) -> bool {
        let Some((position, found)) = self.terms.next() else { return false };
        let (offset_from, offset_to) = (found.range.start, found.range.end);
        self.token = Token { offset_from, offset_to, position, text: found.term, position_length: 1 };
        true
    }

    fn token(&self) -> &Token {
        &self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.token
    }
}
