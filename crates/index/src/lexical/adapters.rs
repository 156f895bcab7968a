//! Implementations of Tantivy traits: a read-only directory with an in-memory layer for writes, and a tokenizer that
//! calls [`Analyzer`].

use std::{io, path::Path, sync::Arc};

use tantivy::{
    directory::{
        Directory, DirectoryLock, FileHandle, INDEX_WRITER_LOCK, Lock, MmapDirectory, RamDirectory,
        WatchCallback, WatchHandle, WritePtr,
        error::{DeleteError, LockError, OpenDirectoryError, OpenReadError, OpenWriteError},
    },
    tokenizer::{Token, TokenStream, Tokenizer},
};

use turnwise_text as text;
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

#[derive(Clone)]
pub(super) struct Analyzed {
    analyzer: Analyzer,
    tokens: Vec<text::Token>,
    token: Token,
}

impl Analyzed {
    pub(super) fn by(analyzer: Analyzer) -> Self {
        Analyzed { analyzer, tokens: Vec::new(), token: Token::default() }
    }
}

pub(super) struct AnalyzedStream<'a> {
    analyzed: &'a mut Analyzed,
    next: usize,
}

impl Tokenizer for Analyzed {
    type TokenStream<'a> = AnalyzedStream<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> AnalyzedStream<'a> {
        self.tokens = self.analyzer.analyze(text);
        AnalyzedStream { analyzed: self, next: 0 }
    }
}

impl TokenStream for AnalyzedStream<'_> {
    fn advance(&mut self) -> bool {
        let position = self.next;
        self.next += 1;
        let Analyzed { tokens, token, .. } = &mut *self.analyzed;
        let Some(found) = tokens.get_mut(position) else { return false };
        token.position = position;
        token.offset_from = found.range.start;
        token.offset_to = found.range.end;
        token.text = std::mem::take(&mut found.term);
        true
    }

    fn token(&self) -> &Token {
        &self.analyzed.token
    }

    fn token_mut(&mut self) -> &mut Token {
        &mut self.analyzed.token
    }
}
