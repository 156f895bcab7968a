//! The reader thread, and the parallel preparation of records before they are stored.

use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};

use crate::{Prepared, ingest::IngestOptions};
use turnwise_core::{
    error::{Error, Reject, Result},
    ids::DialogueId,
};
use turnwise_corpus::{
    Dialogue,
    clean::Cleaned,
    formats::{Problem, ReadOptions},
    walk::Source,
};

/// Maximum number of records in a chunk.
const CHUNK: usize = 250;

/// Records of one source that the reader thread sends together.
#[derive(Default)]
pub(super) struct Chunk {
    pub(super) source: usize,
    pub(super) items: Vec<Result<Dialogue, Problem>>,
}

/// A record after cleaning and preparation.
pub(super) enum PreparedRecord {
    Dialogue(Box<Prepared>, DialogueId),
    TooShort,
    Problem(Problem),
}

/// Body of the reader thread.
pub(super) fn read_sources(
    sources: Vec<Source>,
    options: &ReadOptions,
    gathering: &Mutex<Chunk>,
    sender: &mpsc::SyncSender<Chunk>,
) {
    for (number, source) in sources.into_iter().enumerate() {
        let name = source.name.clone();
        let dialogues = source.read(options).unwrap_or_else(|e| {
            let reason = match e.hint() {
                Some(hint) => format!("{e} ({hint})"),
                None => e.to_string(),
            };
            let problem = Problem::File(Reject { path: name, line: None, id: None, reason });
            Box::new(std::iter::once(Err(problem)))
        });
        for item in dialogues {
            let full = {
                let mut chunk = lock(gathering);
                chunk.source = number;
                chunk.items.push(item);
                (chunk.items.len() >= CHUNK).then(|| std::mem::take(&mut *chunk))
            };
            if full.is_some_and(|chunk| sender.send(chunk).is_err()) {
                return;
            }
        }
        let rest = std::mem::take(&mut *lock(gathering));
        if !rest.items.is_empty() && sender.send(rest).is_err() {
            return;
        }
    }
}

/// Locks a chunk. Ignores poisoning: after a panic, the chunk still contains only complete records.
pub(super) fn lock(chunk: &Mutex<Chunk>) -> MutexGuard<'_, Chunk> {
    chunk.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reason for rejecting a dialogue because of [`IngestOptions::only`].
pub(super) const NOT_ALLOWED: &str = "the filter of this ingest does not allow this dialogue";

/// Cleans and prepares a record. Called in parallel.
pub(super) fn prepare_record(
    item: Result<Dialogue, Problem>,
    options: &IngestOptions,
) -> (PreparedRecord, Cleaned) {
    let mut cleaned = Cleaned::default();
    let mut dialogue = match item {
        Ok(dialogue) => dialogue,
        Err(problem) => return (PreparedRecord::Problem(problem), cleaned),
    };
    let failed = |id: &DialogueId, e: &Error| {
        let id = Some(id.to_string());
        PreparedRecord::Problem(Problem::Record(Reject {
            path: String::new(),
            line: None,
            id,
            reason: e.to_string(),
        }))
    };
    if !options.id_prefix.is_empty() {
        match DialogueId::new(format!("{}{}", options.id_prefix, dialogue.id)) {
            Ok(id) => dialogue.id = id,
            Err(e) => return (failed(&dialogue.id, &e), cleaned),
        }
    }
    if let Some(source) = &options.source {
        dialogue.source.clone_from(source);
    }
    if dialogue.language.is_none() {
        dialogue.language.clone_from(&options.language);
    }
    if options.only.as_ref().is_some_and(|only| !only.matches(&dialogue)) {
        return (failed(&dialogue.id, &Error::data(NOT_ALLOWED)), cleaned);
    }
    if !options.cleaning.apply(&mut dialogue, &mut cleaned) {
        return (PreparedRecord::TooShort, cleaned);
    }
    match Prepared::new(&dialogue) {
        Ok(prepared) => (PreparedRecord::Dialogue(Box::new(prepared), dialogue.id), cleaned),
        Err(e) => (failed(&dialogue.id, &e), cleaned),
    }
}
