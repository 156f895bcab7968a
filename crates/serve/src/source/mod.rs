//! Where what is served lies: an index folder on this machine, or an engine past it. Everything that the server does to it
//! besides searching goes through here, so that no route knows which of them it is.

mod folder;
#[cfg(feature = "milvus")]
mod milvus;

use std::{
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
    time::Duration,
};

use super::{Opened, app::Asker, problem::Outcome, repeated::Answers};
use turnwise_core::{error::Result, ids::DialogueId};
use turnwise_corpus::{filter::Filter, walk::Plan};
#[cfg(feature = "milvus")]
use turnwise_milvus::Target;
use turnwise_search::Searcher;
use turnwise_store::ingest::{Control, DialogueSink, IngestOptions, Ingested, ingest};

/// Where something that is to be served lies.
pub enum Place {
    /// In the folder of an index.
    Folder(PathBuf),
    /// In a Milvus.
    #[cfg(feature = "milvus")]
    Milvus(Target),
}

impl Place {
    pub(super) fn source(self) -> Box<dyn Source> {
        match self {
            Place::Folder(root) => Box::new(folder::Folder::new(root)),
            #[cfg(feature = "milvus")]
            Place::Milvus(target) => Box::new(milvus::Far::new(target)),
        }
    }
}

/// What of a source tells that it changed.
#[derive(Debug, PartialEq)]
pub(super) enum ChangeToken {
    Files(folder::Files),
    #[cfg(feature = "milvus")]
    Milvus(Box<turnwise_milvus::MilvusVersion>),
}

/// What is to be removed.
pub(super) enum Those {
    One(DialogueId),
    Fitting(Filter),
}

/// Something that is served, wherever it lies. Nothing of it is called on a thread that waits for connections.
pub(super) trait Source: Send + Sync {
    /// What kind of engine it is, for programs.
    fn kind(&self) -> &'static str;

    /// Where it is, first as messages have it, then in all other ways in which they may tell it.
    fn places(&self) -> Vec<String>;

    /// The folder of what is derived from records after they came; `None` where they are searchable when they are there.
    fn folder(&self) -> Option<&Path>;

    /// What tells whether it changed; an error if what is open of it cannot be searched any more.
    fn change_token(&self) -> Result<ChangeToken>;

    /// Nobody looks for its change_token more often.
    fn pause(&self) -> Duration;

    /// Opens it as it is now.
    fn open(&self) -> Result<Searcher>;

    /// Takes dialogues in.
    fn take_in(&self, plan: Plan, options: &IngestOptions, opened: &Opened) -> Outcome<Ingested>;

    /// Removes what there is of those, as far as it may be seen; gives how many that were.
    fn remove(&self, those: &Those, asker: &Asker) -> Result<usize>;

    /// What requests that name themselves were answered.
    fn answers(&self) -> &Answers;
}

/// Reads a plan into a home of dialogues; nobody watches.
fn filled(home: &mut dyn DialogueSink, plan: Plan, options: &IngestOptions) -> Result<Ingested> {
    let never = AtomicBool::new(false);
    let control =
        Control { stop: &never, progress: &mut |_| {}, acknowledged: &mut |_| {}, resumed: &mut |_| {} };
    ingest(home, plan, options, control)
}
