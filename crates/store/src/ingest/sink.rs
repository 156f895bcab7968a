//! Where an ingest puts what it reads: a store on this machine, or something past it.

use crate::{IngestMark, Prepared, Put, Store};
use turnwise_core::{
    error::Result,
    ids::{DialogueId, IdKey},
};
use turnwise_corpus::Dialogue;

/// A home of dialogues that an ingest fills.
pub trait DialogueSink {
    /// A dialogue that is there, or was put and is not acknowledged yet.
    fn get(&self, id: &DialogueId) -> Result<Option<Dialogue>>;

    /// Says which dialogues come next, so that a home that is far away can find out at once what it has of them.
    fn ahead(&mut self, _ids: &[IdKey]) -> Result<()> {
        Ok(())
    }

    /// Takes a dialogue in with the next commit.
    fn put(&mut self, dialogue: &Prepared) -> Result<Put>;

    /// How many dialogues wait for the next commit.
    fn pending(&self) -> usize;

    /// How large they are.
    fn pending_bytes(&self) -> usize;

    /// Makes what was put last, all of it or nothing; with a mark from which an ingest that was cut short goes on.
    fn commit(&mut self, mark: Option<IngestMark>) -> Result<()>;

    /// Where an ingest was cut short.
    fn unfinished(&self) -> Option<IngestMark>;

    /// Records how many records were rejected, with the next commit.
    fn set_rejected(&mut self, ingest: &str, rejected: u64);

    /// Gives the key of every dialogue's text, and of its id.
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
