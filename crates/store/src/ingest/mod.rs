//! From files to a store: reading on one thread, cleaning and storing on another, nothing dropped silently.
//!
//! An ingest can be stopped at any moment and started again with the same inputs and options: it goes on behind the
//! last record that was acknowledged.

mod reading;
mod run;
mod sink;
mod tally;

use std::{path::PathBuf, sync::atomic::AtomicBool, time::Instant};

use crate::{directory::KeyMap, ingest::run::Run};
use turnwise_core::error::Result;
use turnwise_corpus::{
    clean::Cleaning,
    filter::Filter,
    formats::ReadOptions,
    rejects::Rejects,
    walk::{Plan, Source},
};

pub use sink::DialogueSink;
pub use tally::{Ingested, Tally};

/// Dialogues that are acknowledged together, unless told otherwise.
pub const BATCH_DIALOGUES: usize = 1000;
/// What to do with the dialogues on the way.
#[derive(Debug, Clone)]
pub struct IngestOptions {
    /// How to read.
    pub read: ReadOptions,
    /// How to clean.
    pub cleaning: Cleaning,
    /// Only what fits is taken in, and only in the place of what fits; the rest is rejected.
    pub only: Option<Filter>,
    /// Put in front of every id.
    pub id_prefix: String,
    /// In place of the source that the reader gives.
    pub source: Option<String>,
    /// For dialogues that name no language.
    pub language: Option<String>,
    /// Where rejected records are listed, as JSON lines.
    pub rejects: Option<PathBuf>,
    /// How many records may be rejected before the ingest stops.
    pub max_errors: u64,
    /// Dialogues that are flushed to the disk and acknowledged together.
    pub batch: usize,
}

impl Default for IngestOptions {
    fn default() -> Self {
        IngestOptions {
            read: ReadOptions::default(),
            cleaning: Cleaning::default(),
            only: None,
            id_prefix: String::new(),
            source: None,
            language: None,
            rejects: None,
            max_errors: 100,
            batch: BATCH_DIALOGUES,
        }
    }
}

/// How an ingest is watched and stopped.
pub struct Control<'a> {
    /// Set by a signal handler or another thread to stop.
    pub stop: &'a AtomicBool,
    /// Told the tally now and then, after every chunk.
    pub progress: &'a mut dyn FnMut(&Tally),
    /// Told about every acknowledged batch.
    pub acknowledged: &'a mut dyn FnMut(&Tally),
    /// Told once, if the ingest goes on where an earlier one ended: the number of records it had done.
    pub resumed: &'a mut dyn FnMut(u64),
}

/// Reads everything in a plan into a store, or into another home of dialogues.
pub fn ingest(
    store: &mut dyn DialogueSink,
    plan: Plan,
    options: &IngestOptions,
    control: Control<'_>,
) -> Result<Ingested> {
    let fingerprint = fingerprint(&plan.sources, options);
    let mark = store.unfinished().filter(|m| fingerprint.as_ref() == Some(&m.fingerprint));
    let mut run = Run {
        rejects: Rejects::open(options.rejects.clone(), mark.as_ref().map_or(0, |m| m.rejects_bytes))?,
        fingerprint: fingerprint.unwrap_or_default(),
        seen: KeyMap::default(),
        texts: KeyMap::default(),
        names: plan.sources.iter().map(|s| s.name.clone()).collect(),
        outcome: Ingested::default(),
        skip: 0,
        last_commit: Instant::now(),
        store,
        options,
        control,
    };
    if let Some(mark) = mark {
        run.outcome.tally = serde_json::from_value(mark.tally).unwrap_or_default();
        run.skip = mark.records;
        run.outcome.resumed = mark.records;
        (run.control.resumed)(mark.records);
    }
    if options.cleaning.dedupe {
        let texts = &mut run.texts;
        run.store.texts(&mut |text, id| {
            texts.insert(text, id);
        })?;
    }
    let ended = run.read_all(plan.sources);
    run.finish(ended)
}

/// Tells this ingest from others: the same files, unchanged, and the same options. `None` where that cannot be told.
fn fingerprint(sources: &[Source], options: &IngestOptions) -> Option<String> {
    let mut hasher = blake3::Hasher::new();
    for source in sources {
        hasher.update(source.identity()?.as_bytes()).update(&[0]);
        hasher.update(source.format.name().as_bytes()).update(&[0]);
    }
    let read = &options.read;
    let how = format!(
        "{:?}{:?}{}{:?}{:?}{:?}{:?}{:?}{}",
        read.columns,
        read.strip_nicks,
        read.max_record,
        options.cleaning,
        options.id_prefix,
        options.source,
        options.language,
        options.only,
        env!("CARGO_PKG_VERSION")
    );
    hasher.update(how.as_bytes());
    Some(hasher.finalize().to_hex()[..32].to_owned())
}
