//! Ingest: reads files into a store. One thread reads; another cleans and stores. Every record is counted, and
//! rejected records are reported.
//!
//! An ingest can be interrupted at any time. When started again with the same inputs and options, it continues
//! after the last acknowledged record.

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

/// Default batch size: number of dialogues that are acknowledged together.
pub const BATCH_DIALOGUES: usize = 1000;
/// Options of an ingest.
#[derive(Debug, Clone)]
pub struct IngestOptions {
    /// Options of the readers.
    pub read: ReadOptions,
    /// Cleaning steps.
    pub cleaning: Cleaning,
    /// Accepts only dialogues that match this filter. Also rejects a dialogue that would replace one that does not
    /// match.
    pub only: Option<Filter>,
    /// Prefix added to all ids.
    pub id_prefix: String,
    /// Overrides the source set by the reader.
    pub source: Option<String>,
    /// Language of dialogues that specify none.
    pub language: Option<String>,
    /// File for rejected records, as JSON lines.
    pub rejects: Option<PathBuf>,
    /// Maximum number of rejected records. The ingest stops when there are more.
    pub max_errors: u64,
    /// Batch size: number of dialogues that are flushed to disk and acknowledged together.
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

/// Callbacks to monitor an ingest, and a flag to stop it.
pub struct Control<'a> {
    /// Stop flag. A signal handler or another thread sets it.
    pub stop: &'a AtomicBool,
    /// Called with the tally after each chunk.
    pub progress: &'a mut dyn FnMut(&Tally),
    /// Called with the tally after each acknowledged batch.
    pub acknowledged: &'a mut dyn FnMut(&Tally),
    /// Called once if the ingest resumes an interrupted one, with the number of records already processed.
    pub resumed: &'a mut dyn FnMut(u64),
}

/// Reads all sources of a plan into a store or another sink.
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

/// Returns a hash that identifies the ingest by its unchanged input files and its options. Returns `None` if an
/// input has no stable identity, such as standard input.
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
