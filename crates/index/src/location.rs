//! Traits for locations of dialogues. Commands and the server use these traits to open an engine for searching or
//! writing. A new engine implements [`Location`], [`Engine`] and [`EngineWriter`].

use std::{path::Path, sync::Arc, time::Duration};

use crate::{engine::Engine, vectors::Recipe};
use turnwise_core::{error::Result, ids::DialogueId};
use turnwise_corpus::filter::Filter;
use turnwise_encoder::Encoder;
use turnwise_store::{Totals, ingest::DialogueSink};

/// Location of dialogues: an index folder, or a named index on a server. The methods may block.
pub trait Location: Send + Sync {
    /// Name of the engine in JSON output, such as `embedded`.
    fn kind(&self) -> &'static str;

    /// Path or address, for messages.
    fn place(&self) -> String;

    /// Short name of the index. The HTTP server serves the index under this name.
    fn name(&self) -> String;

    /// Paths and addresses that may occur in messages of the engine. The HTTP server hides them from clients.
    fn places(&self) -> Vec<String> {
        vec![self.place()]
    }

    /// Folder with derived data (lexical index, vectors, graphs) that the caller must update after a write. `None` if
    /// the writer makes new dialogues searchable itself.
    fn folder(&self) -> Option<&Path> {
        None
    }

    /// Folder to compact. An engine without compaction returns an error with a hint for the user.
    fn compactable(&self) -> Result<&Path>;

    /// Minimum time between two calls of [`Location::change_token`].
    fn poll_interval(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the current change token. If the call fails, an engine that is already open can no longer be searched
    /// and must be opened again.
    fn change_token(&self) -> Result<ChangeToken>;

    /// Returns a summary of the stored dialogues; `None` if nothing is stored at this location.
    fn contents(&self) -> Result<Option<Contents>>;

    /// Opens an engine that searches the current state.
    fn open(&self) -> Result<Box<dyn Engine>>;

    /// Opens the location for writing.
    fn open_writer(&self, options: WriterOptions<'_>) -> Result<Box<dyn EngineWriter>>;

    /// Deletes the selected dialogues. With `dry_run`, only reports them. While the dialogues are locked, other writers
    /// see the name `holder`.
    fn delete(&self, selection: &Selection, dry_run: bool, holder: &str) -> Result<Deletion>;

    /// Removes all dialogues and derived data at this location.
    fn remove(&self) -> Result<()>;
}

/// Writer of an engine. Dialogues are added and committed with the methods of [`DialogueSink`].
pub trait EngineWriter: DialogueSink {
    /// Name of the engine, for messages.
    fn engine(&self) -> &'static str;

    /// Returns the warnings for the user that occurred since the last call.
    fn take_warnings(&mut self) -> Vec<String>;

    /// Number of dialogues, and number of turns, at the location.
    fn totals(&self) -> Result<Totals>;

    /// Waits until the engine has indexed all committed dialogues, so that searches are fast. A failure does not lose
    /// data.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    /// Closes the writer; must be called even after an error. In [`WriteMode::Replace`], the new dialogues become
    /// visible only if `complete` is true.
    fn close(self: Box<Self>, complete: bool) -> Result<()>;
}

/// Opaque token for the state of the data at a location. Equal tokens mean that the data has not changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeToken(String);

impl ChangeToken {
    /// Creates a token from `state`, a text that is different after each change of the data.
    pub fn new(state: String) -> Self {
        ChangeToken(state)
    }
}

/// Summary of the data at a location.
#[derive(Debug, Clone)]
pub struct Contents {
    /// Recipe of the vectors; `None` if there are no vectors.
    pub recipe: Option<Recipe>,
}

/// Options of a writer.
pub struct WriterOptions<'a> {
    /// Treatment of existing dialogues.
    pub mode: WriteMode,
    /// Encoder of new dialogues, for an engine that stores vectors with the dialogues.
    pub encoder: Option<Arc<dyn Encoder>>,
    /// Name of the writing program, which other writers see while the location is locked.
    pub holder: &'a str,
    /// Maximum size of a log segment in bytes, for engines with a log. `None` for the engine's default.
    pub segment_bytes: Option<u64>,
}

/// Treatment of the dialogues that exist at a location when it is opened for writing.
#[derive(Debug, Clone)]
pub enum WriteMode {
    /// Adds to the existing dialogues. The location must exist.
    Append,
    /// Adds to the existing dialogues. If the location does not exist, creates it. The recipe describes the vectors of
    /// the new location; `None` for no vectors.
    CreateOrAppend(Option<Recipe>),
    /// Replaces all dialogues when the writer is closed. The recipe describes the vectors of the new dialogues; `None`
    /// for no vectors.
    Replace(Option<Recipe>),
}

/// Selection of the dialogues to delete.
#[derive(Debug, Clone)]
pub enum Selection {
    /// Dialogues with these ids that match the filter, if there is one.
    Ids(Vec<DialogueId>, Option<Filter>),
    /// Dialogues that match a filter.
    Matching(Filter),
}

/// Outcome of a deletion. With a dry run, the dialogues that would be deleted count as deleted.
#[derive(Debug)]
pub enum Deletion {
    /// Outcome of an engine that reports ids.
    Listed {
        /// Ids of the deleted dialogues.
        deleted: Vec<DialogueId>,
        /// Selected ids of dialogues that do not exist or do not match the filter.
        missing: Vec<DialogueId>,
    },
    /// Number of deleted dialogues, from an engine that does not report ids.
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
