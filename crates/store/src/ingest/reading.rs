//! The reading thread, and what is done to a record on all cores before it is stored.

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

/// What the reading thread hands over at once.
const CHUNK: usize = 250;

/// A handful of records, all of one source.
#[derive(Default)]
pub(super) struct Chunk {
    pub(super) source: usize,
    pub(super) items: Vec<Result<Dialogue, Problem>>,
}

/// A record after cleaning.
pub(super) enum Ready {
    Dialogue(Box<Prepared>, DialogueId),
    TooShort,
    Problem(Problem),
}

/// The reading thread.
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

/// A panic while a chunk was held leaves it as it was: a list of whole records.
pub(super) fn lock(chunk: &Mutex<Chunk>) -> MutexGuard<'_, Chunk> {
    chunk.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why something is not taken in that does not fit what only is.
pub(super) const OTHERS: &str = "it is none of those that may be taken in here";

/// Cleans and prepares a record; done on all cores.
pub(super) fn ready(item: Result<Dialogue, Problem>, options: &IngestOptions) -> (Ready, Cleaned) {
    let mut cleaned = Cleaned::default();
    let mut dialogue = match item {
        Ok(dialogue) => dialogue,
        Err(problem) => return (Ready::Problem(problem), cleaned),
    };
    let failed = |id: &DialogueId, e: &Error| {
        let id = Some(id.to_string());
        Ready::Problem(Problem::Record(Reject { path: String::new(), line: None, id, reason: e.to_string() }))
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
        return (failed(&dialogue.id, &Error::data(OTHERS)), cleaned);
    }
    if !options.cleaning.apply(&mut dialogue, &mut cleaned) {
        return (Ready::TooShort, cleaned);
    }
    match Prepared::new(&dialogue) {
        Ok(prepared) => (Ready::Dialogue(Box::new(prepared), dialogue.id), cleaned),
        Err(e) => (failed(&dialogue.id, &e), cleaned),
    }
}
