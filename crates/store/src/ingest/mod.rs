//! Ingest: reads files into a store. One thread reads the files, other threads clean the records, and the calling
//! thread stores them. Every record is counted, and rejected records are reported.
//!
//! An ingest can be interrupted at any time. If it is started again with the same files and options, it continues after
//! the last committed record.

mod run;

use std::{collections::BTreeSet, path::PathBuf, sync::atomic::AtomicBool, time::Instant};

use serde::{Deserialize, Serialize};

use crate::{IngestMark, KeyMap, Prepared, PutOutcome, Store, ingest::run::Run};
use turnwise_core::{DialogueId, IdKey, Result, error::Reject};
use turnwise_corpus::{
    Dialogue,
    clean::{Cleaned, Cleaning},
    filter::Filter,
    formats::ReadOptions,
    walk::{Plan, Source},
    writers::Rejects,
};

/// Options of an ingest.
#[derive(Debug, Clone)]
pub struct IngestOptions {
    /// Options for reading the input files.
    pub read: ReadOptions,
    /// Cleaning steps to apply to each dialogue.
    pub cleaning: Cleaning,
    /// Filter that dialogues must match; other dialogues are rejected. A dialogue is also rejected if it would replace
    /// a stored dialogue that does not match the filter. `None` accepts all dialogues.
    pub only: Option<Filter>,
    /// Prefix added to the id of each ingested dialogue.
    pub id_prefix: String,
    /// Source name to set in each ingested dialogue. `None` keeps the name that the reader has set.
    pub source: Option<String>,
    /// Language tag to set in dialogues that have none.
    pub language: Option<String>,
    /// Metadata key whose value becomes the thread of a dialogue. If none of the dialogues of the first batch has this
    /// key, the ingest ends with an error, and stores nothing. `None` keeps the threads that the reader has set.
    pub thread: Option<String>,
    /// File for rejected records, as JSON lines. `None` writes no file.
    pub rejects: Option<PathBuf>,
    /// Maximum number of rejected records. The ingest stops when there are more.
    pub max_errors: u64,
    /// Number of uncommitted changes ([`DialogueSink::pending`]) at which the ingest commits.
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
            thread: None,
            rejects: None,
            max_errors: 100,
            batch: 1000,
        }
    }
}

/// Callbacks to monitor an ingest, and a flag to stop it.
pub struct IngestControl<'a> {
    /// Stop flag. A signal handler or another thread sets it.
    pub stop: &'a AtomicBool,
    /// Called with the tally after each group of at most 250 records.
    pub progress: &'a mut dyn FnMut(&Tally),
    /// Called with the tally after each commit, including the final one.
    pub acknowledged: &'a mut dyn FnMut(&Tally),
    /// Called once if the ingest resumes an interrupted run, otherwise never. Receives the number of records that are
    /// already processed.
    pub resumed: &'a mut dyn FnMut(u64),
}

/// Numbers of records by outcome. `records` is the sum of the seven fields that follow it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// Number of records read from the inputs. An unreadable file counts as one record.
    pub records: u64,
    /// Number of dialogues added because their id was new.
    pub added: u64,
    /// Number of dialogues that replaced a stored dialogue with the same id and different content.
    pub replaced: u64,
    /// Number of dialogues already stored with the same content.
    pub unchanged: u64,
    /// Number of dialogues that repeat both the id and the content of a dialogue read earlier in this ingest.
    pub repeated: u64,
    /// Number of dialogues skipped because they have too few turns.
    pub too_short: u64,
    /// Number of dialogues skipped because another dialogue has the same texts and roles.
    pub duplicates: u64,
    /// Number of rejected records.
    pub rejected: u64,
    /// Number of files that could not be read completely.
    pub damaged_files: u64,
    /// Number of turns of the added or replaced dialogues.
    pub turns: u64,
    /// Number of dialogues without the metadata key that [`IngestOptions::thread`] names.
    #[serde(skip_serializing_if = "is_zero")]
    pub without_thread: u64,
    /// Counts of the changes made by cleaning.
    pub cleaned: Cleaned,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Tally {
    /// Returns whether the counts of the outcomes add up to `records`.
    pub fn adds_up(&self) -> bool {
        let sum = self.added + self.replaced + self.unchanged + self.repeated;
        self.records == sum + self.too_short + self.duplicates + self.rejected
    }
}

/// Result of an ingest.
#[derive(Debug, Clone, Default)]
pub struct Ingested {
    /// Numbers of records by outcome.
    pub tally: Tally,
    /// Number of records that an earlier, interrupted run had processed. 0 if this run did not resume.
    pub resumed: u64,
    /// The first rejected records of this run, at most 5.
    pub first_rejects: Vec<Reject>,
    /// Metadata keys of the dialogues without the key that [`IngestOptions::thread`] names, sorted. At most 20.
    pub other_keys: BTreeSet<String>,
}

/// Reads all sources of a plan into a store or another sink.
///
/// Returns [`turnwise_core::Error::TooManyRejects`] if more than `max_errors` records are rejected, and
/// [`turnwise_core::Error::Interrupted`] if the stop flag is set. Before either error, commits the processed records.
pub fn ingest(
    store: &mut dyn DialogueSink,
    plan: Plan,
    options: &IngestOptions,
    control: IngestControl<'_>,
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
        has_thread: options.thread.is_none() || mark.is_some(),
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
        run.store.for_each_text_key(&mut |text, id| {
            texts.insert(text, id);
        })?;
    }
    let ended = run.read_all(plan.sources);
    run.finish(ended)
}

/// Returns a hash of the inputs, of the options that affect the records, and of the turnwise version. An unfinished
/// ingest can be resumed by an ingest with the same hash. Returns `None` if an input has no stable identity, such as
/// standard input.
fn fingerprint(sources: &[Source], options: &IngestOptions) -> Option<String> {
    let mut hasher = blake3::Hasher::new();
    for source in sources {
        hasher.update(source.identity()?.as_bytes()).update(&[0]);
        hasher.update(source.format.name.as_bytes()).update(&[0]);
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
    if let Some(thread) = &options.thread {
        hasher.update(&[0]).update(thread.as_bytes());
    }
    Some(hasher.finalize().to_hex()[..32].to_owned())
}

/// Destination for the dialogues that an ingest reads.
pub trait DialogueSink {
    /// Returns a dialogue, or `None` if it does not exist. Uncommitted puts are visible.
    fn get(&self, id: &DialogueId) -> Result<Option<Dialogue>>;

    /// Announces the id keys of the next dialogues, so that a remote sink can look them all up in one request.
    fn prefetch(&mut self, _ids: &[IdKey]) -> Result<()> {
        Ok(())
    }

    /// Adds a dialogue, or replaces the dialogue with the same id. Takes effect with the next commit.
    fn put(&mut self, dialogue: &Prepared) -> Result<PutOutcome>;

    /// Returns the number of uncommitted changes.
    fn pending(&self) -> usize;

    /// Returns the size of the uncommitted changes in bytes.
    fn pending_bytes(&self) -> usize;

    /// Commits the uncommitted changes. Stores `mark`, from which an interrupted ingest resumes. `None` clears the
    /// stored mark.
    fn commit(&mut self, mark: Option<IngestMark>) -> Result<()>;

    /// Returns the progress of an unfinished ingest, or `None` if no ingest is unfinished.
    fn unfinished(&self) -> Option<IngestMark>;

    /// Sets the number of records rejected by the ingest with the fingerprint `ingest`. Takes effect with the next
    /// commit.
    fn set_rejected(&mut self, ingest: &str, rejected: u64);

    /// Calls `see` for each stored dialogue. The arguments are the hash of its texts and roles ([`Prepared::text`]) and
    /// the hash of its id ([`Prepared::id`]).
    fn for_each_text_key(&self, see: &mut dyn FnMut(IdKey, IdKey)) -> Result<()>;
}

impl DialogueSink for Store {
    fn get(&self, id: &DialogueId) -> Result<Option<Dialogue>> {
        Store::get(self, id)
    }

    fn put(&mut self, dialogue: &Prepared) -> Result<PutOutcome> {
        Store::put(self, dialogue)
    }

    fn pending(&self) -> usize {
        Store::pending(self)
    }

    fn pending_bytes(&self) -> usize {
        Store::pending_bytes(self)
    }

    fn commit(&mut self, mark: Option<IngestMark>) -> Result<()> {
        Store::commit(self, mark)
    }

    fn unfinished(&self) -> Option<IngestMark> {
        self.unfinished_ingest().cloned()
    }

    fn set_rejected(&mut self, ingest: &str, rejected: u64) {
        Store::set_rejected(self, ingest, rejected);
    }

    fn for_each_text_key(&self, see: &mut dyn FnMut(IdKey, IdKey)) -> Result<()> {
        self.view().directory.live().for_each(|entry| see(entry.text, entry.id));
        Ok(())
    }
}
