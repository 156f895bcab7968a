//! Sources of served dialogues: a local index folder or a remote engine. Routes use only this interface for everything
//! except searching.

mod folder;
#[cfg(feature = "milvus")]
mod milvus;

use std::{
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
    time::Duration,
};

use super::{OpenIndex, app::Client, problem::Outcome, stored_responses::IdempotentResponses};
use turnwise_core::{error::Result, ids::DialogueId};
use turnwise_corpus::{filter::Filter, walk::Plan};
#[cfg(feature = "milvus")]
use turnwise_milvus::Target;
use turnwise_search::Searcher;
use turnwise_store::ingest::{Control, DialogueSink, IngestOptions, Ingested, ingest};

/// Location of dialogues to serve.
pub enum IndexLocation {
    /// Index folder.
    Folder(PathBuf),
    /// Milvus server.
    #[cfg(feature = "milvus")]
    Milvus(Target),
}

impl IndexLocation {
    pub(super) fn source(self) -> Box<dyn Source> {
        match self {
            IndexLocation::Folder(root) => Box::new(folder::Folder::new(root)),
            #[cfg(feature = "milvus")]
            IndexLocation::Milvus(target) => Box::new(milvus::MilvusSource::new(target)),
        }
    }
}

/// State of a source, for detecting changes.
#[derive(Debug, PartialEq)]
pub(super) enum ChangeToken {
    Files(folder::Files),
    #[cfg(feature = "milvus")]
    Milvus(Box<turnwise_milvus::MilvusVersion>),
}

/// Dialogues to remove.
pub(super) enum Selection {
    One(DialogueId),
    Matching(Filter),
}

/// Source of dialogues. Its methods may block and must not be called on an async thread.
pub(super) trait Source: Send + Sync {
    /// Engine name, for programs.
    fn kind(&self) -> &'static str;

    /// Paths and addresses of the source as they may occur in messages, the usual one first.
    fn places(&self) -> Vec<String>;

    /// Folder of an index whose derived data must be updated after a write; `None` if new records are searchable at
    /// once.
    fn folder(&self) -> Option<&Path>;

    /// Current change token. An error means that the open state can no longer be searched.
    fn change_token(&self) -> Result<ChangeToken>;

    /// Shortest interval between requests for the change token.
    fn pause(&self) -> Duration;

    /// Opens the current state.
    fn open(&self) -> Result<Searcher>;

    /// Ingests dialogues.
    fn ingest_plan(&self, plan: Plan, options: &IngestOptions, opened: &OpenIndex) -> Outcome<Ingested>;

    /// Removes the selected dialogues that the client may see. Returns their number.
    fn remove(&self, selection: &Selection, client: &Client) -> Result<usize>;

    /// Stored responses of idempotent requests.
    fn answers(&self) -> &IdempotentResponses;
}

/// Ingests a plan into a sink, without progress reports.
fn filled(sink: &mut dyn DialogueSink, plan: Plan, options: &IngestOptions) -> Result<Ingested> {
    let never = AtomicBool::new(false);
    let control =
        Control { stop: &never, progress: &mut |_| {}, acknowledged: &mut |_| {}, resumed: &mut |_| {} };
    ingest(sink, plan, options, control)
}
