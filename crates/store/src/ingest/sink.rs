//! Destination of an ingest: a local store or a remote engine.

use crate::{IngestMark, Prepared, Put, Store};
use turnwise_core::{
    error::Result,
    ids::{DialogueId, IdKey},
};
use turnwise_corpus::Dialogue;

/// Destination of the dialogues of an ingest.
pub trait DialogueSink {
    /// Returns a dialogue. Includes uncommitted puts.
    fn get(&self, id: &DialogueId) -> Result<Option<Dialogue>>;

    /// Announces the ids of the next dialogues. A remote sink can look them up in one request.
    fn prefetch(&mut self, _ids: &[IdKey]) -> Result<()> {
        Ok(())
    }

    /// Puts a dialogue. Takes effect with the next commit.
    fn put(&mut self, dialogue: &Prepared) -> Result<Put>;

    /// Returns the number of uncommitted changes.
    fn pending(&self) -> usize;

    /// Returns the size of the uncommitted changes in bytes.
    fn pending_bytes(&self) -> usize;

    /// Commits the uncommitted changes atomically. An interrupted ingest resumes from `mark`.
    fn commit(&mut self, mark: Option<IngestMark>) -> Result<()>;

    /// Returns the mark of an interrupted ingest.
    fn unfinished(&self) -> Option<IngestMark>;

    /// Sets the number of records that an ingest has rejected. Takes effect with the next commit.
    fn set_rejected(&mut self, ingest: &str, rejected: u64);

    /// Calls `see` with the text key and id key of each dialogue.
    fn texts(&self, see: &mut dyn FnMut(IdKey, IdKey)) -> Result<()>;
}

impl DialogueSink for Store {
    fn get(&self, id: &DialogueId) -> Result<Option<Dialogue>> {
        self.view().get(id)
    }

    fn put(&mut self, dialogue: &Prepared) -> Result<Put> {
        Store::put(self, dialogue)
    }

    fn pending(&self) -> usize {
        Store::pending(self)
    }

    fn pending_bytes(&self) -> usize {
        Store::pending_bytes(self)
    }

    fn commit(&mut self, mark: Option<IngestMark>) -> Result<()> {
        Store::commit(self, mark).map(drop)
    }

    fn unfinished(&self) -> Option<IngestMark> {
        self.unfinished_ingest().cloned()
    }

    fn set_rejected(&mut self, ingest: &str, rejected: u64) {
        Store::set_rejected(self, ingest, rejected);
    }

    fn texts(&self, see: &mut dyn FnMut(IdKey, IdKey)) -> Result<()> {
        self.view().text_keys().for_each(|(text, id)| see(text, id));
        Ok(())
    }
}
