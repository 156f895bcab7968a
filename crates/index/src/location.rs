//! Locations of dialogues. A location opens its engine for searching and for writing.
//!
//! Commands and the server work with these traits only. A new engine implements [`Location`], [`Engine`] and
//! [`EngineWriter`], and is added to the factory of the program.

use std::{path::Path, sync::Arc, time::Duration};

use crate::{engine::Engine, vectors::Recipe};
use turnwise_core::{
    error::{Error, Result},
    ids::DialogueId,
};
use turnwise_corpus::filter::Filter;
use turnwise_encoder::Encoder;
use turnwise_store::{Totals, ingest::DialogueSink};

/// Location of dialogues: an index folder, or a name on a server. Its methods may block.
pub trait Location: Send + Sync {
    /// Name of the engine for programs, such as `embedded`.
    fn kind(&self) -> &'static str;

    /// Path or address, for messages.
    fn place(&self) -> String;

    /// Short name of the index. The HTTP server serves the index under this name.
    fn name(&self) -> String;

    /// Paths and addresses that may occur in messages of the engine. The HTTP server hides them from clients.
    fn places(&self) -> Vec<String> {
        vec![self.place()]
    }

    /// Folder whose derived data (keywords, vectors, graphs) must be updated after a write. `None` if the writer
    /// updates the derived data itself, so that new dialogues are searchable at once.
    fn folder(&self) -> Option<&Path> {
        None
    }

    /// Folder to compact. An engine without compaction returns an error with a hint for the user.
    fn compactable(&self) -> Result<&Path>;

    /// Shortest interval between requests for the change token.
    fn poll_interval(&self) -> Duration {
        Duration::ZERO
    }

    /// Current change token. An error means that the open state can no longer be searched.
    fn change_token(&self) -> Result<ChangeToken>;

    /// Returns a summary of the stored dialogues; `None` if nothing is stored at this location.
    fn contents(&self) -> Result<Option<Contents>>;

    /// Opens the current state for searching.
    fn open(&self) -> Result<Box<dyn Engine>>;

    /// Opens the location for writing.
    fn open_writer(&self, options: WriterOptions<'_>) -> Result<Box<dyn EngineWriter>>;

    /// Deletes the selected dialogues. With `dry_run`, only reports them. `holder` is the name of this program, shown
    /// to other writers.
    fn delete(&self, selection: &Selection, dry_run: bool, holder: &str) -> Result<Deletion>;

    /// Removes all dialogues and derived data at this location.
    fn remove(&self) -> Result<()>;
}

/// Writer of an engine. Dialogues are added and committed with the methods of [`DialogueSink`].
pub trait EngineWriter: DialogueSink {
    /// Name of the engine, for messages.
    fn engine(&self) -> &'static str;

    /// Warnings for the user since the last call.
    fn take_warnings(&mut self) -> Vec<String>;

    /// Number of dialogues and turns.
    fn totals(&self) -> Result<Totals>;

    /// Lets the engine index everything committed, so that searches are fast. A failure loses no data.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    /// Closes the writer. In [`WriteMode::Replace`], the new dialogues become visible if `complete` is true. Must
    /// also be called after an error.
    fn close(self: Box<Self>, complete: bool) -> Result<()>;
}

/// Opaque state of a location. Equal tokens mean that nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeToken(String);

impl ChangeToken {
    /// Creates a token from a text that changes with the location.
    pub fn new(state: String) -> Self {
        ChangeToken(state)
    }
}

/// Summary of the data at a location, which can be read without opening an engine.
#[derive(Debug, Clone)]
pub struct Contents {
    /// Recipe of the vectors; `None` if there are no vectors.
    pub recipe: Option<Recipe>,
}

/// Options of a writer.
pub struct WriterOptions<'a> {
    /// Treatment of existing dialogues.
    pub mode: WriteMode,
    /// Encoder for engines that store vectors with the dialogues.
    pub encoder: Option<Arc<dyn Encoder>>,
    /// Name of this program. Other writers see it while this writer holds the lock.
    pub holder: &'a str,
    /// Maximum size of a log segment in bytes, for engines with a log. `None` for the engine's default.
    pub segment_bytes: Option<u64>,
}

/// What a writer does with the dialogues that already exist at the location.
#[derive(Debug, Clone)]
pub enum WriteMode {
    /// Adds to the existing dialogues. The location must exist.
    Append,
    /// Adds to existing dialogues. If there are none, creates the location, with vectors of this recipe.
    CreateOrAppend(Option<Recipe>),
    /// Replaces all dialogues when the writer is closed, with vectors of this recipe.
    Replace(Option<Recipe>),
}

/// Selection of the dialogues to delete.
#[derive(Debug, Clone)]
pub enum Selection {
    /// Dialogues with these ids, if they match the filter.
    Ids(Vec<DialogueId>, Option<Filter>),
    /// Dialogues that match a filter.
    Matching(Filter),
}

/// Outcome of a deletion. Not every engine reports ids.
#[derive(Debug)]
pub enum Deletion {
    /// Ids of the deleted dialogues, and selected ids that do not exist.
    Listed {
        /// Deleted dialogues.
        deleted: Vec<DialogueId>,
        /// Selected ids that do not exist.
        missing: Vec<DialogueId>,
    },
    /// Number of deleted dialogues.
    Counted(u64),
}

impl Deletion {
    /// Number of deleted dialogues.
    pub fn count(&self) -> u64 {
        match self {
            Deletion::Listed { deleted, .. } => deleted.len() as u64,
            Deletion::Counted(count) => *count,
        }
    }
}

/// Returns the error for a replacement in an engine that cannot replace dialogues as a whole.
pub(super) fn no_replacement(place: &str) -> Error {
    super::engine::unsupported(place, "replacing all dialogues", "ingest into a different index instead")
}
