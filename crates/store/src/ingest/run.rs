//! The main loop of an ingest: receives chunks from the reader thread, processes each record, and commits batches.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::Ordering,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use rayon::prelude::*;

use crate::{
    IngestMark, KeyMap, Prepared, PutOutcome,
    ingest::{DialogueSink, IngestControl, IngestOptions, Ingested},
};
use turnwise_core::{
    DialogueId, Error, IdKey, Result,
    error::{Reject, closest_name},
};
use turnwise_corpus::{
    Dialogue,
    clean::Cleaned,
    formats::{Problem, ReadOptions},
    walk::Source,
    writers::Rejects,
};

/// Size of the uncommitted changes, in bytes, at which the ingest commits. See also [`IngestOptions::batch`].
const BATCH_BYTES: usize = 8 << 20;
/// Time after which the ingest commits a batch that is not full. This makes the records of a slow stream visible to
/// readers.
const BATCH_TIME: Duration = Duration::from_secs(2);

pub(super) struct Run<'a, 'c> {
    pub(super) store: &'a mut dyn DialogueSink,
    pub(super) options: &'a IngestOptions,
    pub(super) control: IngestControl<'c>,
    pub(super) fingerprint: String,
    pub(super) rejects: Rejects,
    /// Maps the id key of each dialogue read so far to the dialogue's content key and the index of its source.
    pub(super) seen: KeyMap<(IdKey, u32)>,
    /// Maps the hash of each dialogue's texts and roles ([`Prepared::text`]) to the hash of its id. Empty unless
    /// duplicates are removed.
    pub(super) texts: KeyMap<IdKey>,
    pub(super) names: Vec<String>,
    pub(super) outcome: Ingested,
    /// Number of records still to skip, because an interrupted run has already processed them.
    pub(super) skip: u64,
    /// Whether a dialogue has the key that [`IngestOptions::thread`] names, or no key is given. Until then, nothing is
    /// committed.
    pub(super) has_thread: bool,
    pub(super) last_commit: Instant,
}

impl Run<'_, '_> {
    pub(super) fn read_all(&mut self, sources: Vec<Source>) -> Result<()> {
        let (sender, receiver) = mpsc::sync_channel::<Chunk>(4);
        let read = self.options.read.clone();
        let gathered = Arc::<Mutex<Chunk>>::default();
        let gathering = gathered.clone();
        // After Ctrl-C, this thread is not joined, because it may wait for standard input indefinitely. It ends when it
        // next sends a chunk after the receiver is dropped.
        let reader = thread::Builder::new()
            .name("reader".into())
            .spawn(move || read_sources(sources, &read, &gathering, &sender))
            .map_err(|e| Error::Internal(format!("cannot start the reader thread: {e}")))?;
        loop {
            if self.control.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted { hint: None });
            }
            match receiver.recv_timeout(Duration::from_millis(100)) {
                Ok(chunk) => {
                    self.process_chunk(chunk)?;
                    (self.control.progress)(&self.outcome.tally);
                }
                Err(RecvTimeoutError::Timeout) => {
                    // The reader may be waiting for a slow stream with an incomplete chunk. Take this chunk, but only
                    // if the channel is empty, because chunks in the channel must be processed first. Hold the lock of
                    // the incomplete chunk during this check; otherwise, a newer chunk could be taken before an older
                    // one.
                    let late = {
                        let mut gathered = lock(&gathered);
                        receiver.try_recv().unwrap_or_else(|_| std::mem::take(&mut *gathered))
                    };
                    if !late.items.is_empty() {
                        self.process_chunk(late)?;
                        (self.control.progress)(&self.outcome.tally);
                    }
                    self.commit_if_due(BATCH_TIME)?;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let panicked = |_| Error::Internal("the reader thread panicked".into());
                    return reader.join().map_err(panicked);
                }
            }
        }
    }

    fn process_chunk(&mut self, chunk: Chunk) -> Result<()> {
        let options = self.options;
        let mut items = chunk.items;
        // Records processed by an earlier run are not stored again. Only their ids are needed, to detect repeats.
        let done = usize::try_from(self.skip).unwrap_or(usize::MAX).min(items.len());
        let rest = items.split_off(done);
        self.skip -= done as u64;
        let done: Vec<_> = items.into_par_iter().map(|item| prepare_record(item, options).0).collect();
        for item in done {
            if let PreparedRecord::Dialogue(prepared, ..) = item {
                // Keep the first content of an id: the earlier run rejected later records with the same id.
                self.seen.entry(prepared.id).or_insert((prepared.content, chunk.source as u32));
            }
        }
        let ready: Vec<_> = rest.into_par_iter().map(|item| prepare_record(item, options)).collect();
        let next_ids: Vec<IdKey> = ready
            .iter()
            .filter_map(|(item, _)| match item {
                PreparedRecord::Dialogue(prepared, ..) => Some(prepared.id),
                _ => None,
            })
            .collect();
        self.store.prefetch(&next_ids)?;
        for (item, cleaned) in ready {
            let before = self.outcome.tally;
            add(&mut self.outcome.tally.cleaned, cleaned);
            if let Err(e) = self.process_record(item, chunk.source) {
                // Do not count the record that stopped the ingest. The next run starts with it.
                self.outcome.tally = before;
                return Err(e);
            }
            if self.store.pending() >= self.options.batch || self.store.pending_bytes() >= BATCH_BYTES {
                self.commit()?;
            }
        }
        self.commit_if_due(BATCH_TIME)
    }

    fn process_record(&mut self, item: PreparedRecord, source: usize) -> Result<()> {
        let tally = &mut self.outcome.tally;
        tally.records += 1;
        let (prepared, id, other_keys) = match item {
            PreparedRecord::Problem(problem) => return self.reject_problem(problem, source),
            PreparedRecord::TooShort => {
                tally.too_short += 1;
                return Ok(());
            }
            PreparedRecord::Dialogue(prepared, id, other_keys) => (prepared, id, other_keys),
        };
        if let Some(only) = &self.options.only
            && self.store.get(&id)?.is_some_and(|existing| !only.matches(&existing))
        {
            return self.reject_dialogue(&id, source, NOT_ALLOWED.to_owned());
        }
        match self.seen.get(&prepared.id) {
            Some((content, _)) if *content == prepared.content => {
                tally.repeated += 1;
                return Ok(());
            }
            Some((_, earlier)) => {
                let earlier = self.name(*earlier as usize);
                let reason = format!(
                    "another dialogue with this id was already read from {earlier}; \
                     use --id-prefix to make the ids of each file unique"
                );
                return self.reject_dialogue(&id, source, reason);
            }
            None => self.seen.insert(prepared.id, (prepared.content, source as u32)),
        };
        match other_keys {
            None => self.has_thread = true,
            Some(keys) => {
                tally.without_thread += 1;
                let known = &mut self.outcome.other_keys;
                let free = MAX_KEYS.saturating_sub(known.len());
                known.extend(keys.into_iter().take(free));
            }
        }
        if self.options.cleaning.dedupe {
            match self.texts.get(&prepared.text) {
                Some(other) if *other != prepared.id => {
                    tally.duplicates += 1;
                    return Ok(());
                }
                Some(_) => {}
                None => drop(self.texts.insert(prepared.text, prepared.id)),
            }
        }
        let put = match self.store.put(&prepared) {
            // A sink may reject dialogues that other sinks accept.
            Err(Error::Data { message, .. }) => return self.reject_dialogue(&id, source, message),
            put => put?,
        };
        let tally = &mut self.outcome.tally;
        let stored = match put {
            PutOutcome::Unchanged => {
                tally.unchanged += 1;
                return Ok(());
            }
            PutOutcome::Added => &mut tally.added,
            PutOutcome::Replaced => &mut tally.replaced,
        };
        *stored += 1;
        tally.turns += u64::from(prepared.turns);
        Ok(())
    }

    fn reject_problem(&mut self, problem: Problem, source: usize) -> Result<()> {
        self.outcome.tally.damaged_files += u64::from(matches!(problem, Problem::File(_)));
        let (Problem::Record(mut reject) | Problem::File(mut reject)) = problem;
        if reject.path.is_empty() {
            reject.path = self.name(source);
        }
        self.reject(reject)
    }

    fn reject_dialogue(&mut self, id: &DialogueId, source: usize, reason: String) -> Result<()> {
        self.reject(Reject { path: self.name(source), line: None, id: Some(id.to_string()), reason })
    }

    fn name(&self, source: usize) -> String {
        self.names.get(source).cloned().unwrap_or_default()
    }

    fn reject(&mut self, reject: Reject) -> Result<()> {
        self.outcome.tally.rejected += 1;
        let counted = self.rejects.bytes;
        self.rejects.write(&reject)?;
        if self.outcome.first_rejects.len() < 5 {
            self.outcome.first_rejects.push(reject.clone());
        }
        let rejected = self.outcome.tally.rejected;
        if rejected > self.options.max_errors {
            self.rejects.bytes = counted;
            return Err(Error::TooManyRejects { rejected, allowed: self.options.max_errors, last: reject });
        }
        Ok(())
    }

    fn commit_if_due(&mut self, after: Duration) -> Result<()> {
        let due = self.has_thread && self.store.pending() > 0 && self.last_commit.elapsed() >= after;
        if due { self.commit() } else { Ok(()) }
    }

    /// Returns an error if no dialogue has the key that [`IngestOptions::thread`] names.
    fn check_thread(&self) -> Result<()> {
        let (Some(key), false) = (&self.options.thread, self.has_thread) else { return Ok(()) };
        let among = match self.outcome.tally.without_thread {
            0 => return Ok(()),
            1 => "the only dialogue does not have".to_owned(),
            n => format!("none of the {n} dialogues read so far has"),
        };
        let message = format!("{among} the metadata key `{key}` (--thread); nothing was ingested");
        let keys: Vec<&str> = self.outcome.other_keys.iter().map(String::as_str).collect();
        let hint = match (closest_name(key, keys.iter().copied()), keys.is_empty()) {
            (Some(near), _) if near != key => format!("did you mean `{near}`?"),
            (Some(_), _) => {
                "its values must be texts or numbers, and the same in all turns of a dialogue".to_owned()
            }
            (None, false) => format!("the metadata keys are: {}", keys.join(", ")),
            (None, true) if self.options.read.columns.is_some() => {
                format!(
                    "with --map, only mapped columns are read; add `thread=COLUMN` to --map instead of --thread {key}"
                )
            }
            (None, true) => "the dialogues have no metadata".to_owned(),
        };
        Err(Error::input(message).with_hint(hint))
    }

    fn commit(&mut self) -> Result<()> {
        self.check_thread()?;
        let rejects_bytes = self.rejects.flush()?;
        let mark = (!self.fingerprint.is_empty()).then(|| IngestMark {
            fingerprint: self.fingerprint.clone(),
            records: self.outcome.tally.records,
            rejects_bytes,
            tally: serde_json::to_value(self.outcome.tally).unwrap_or_default(),
        });
        self.store.commit(mark)?;
        self.last_commit = Instant::now();
        (self.control.acknowledged)(&self.outcome.tally);
        Ok(())
    }

    /// Ends the ingest and commits the remaining records. `ended` is the outcome of the main loop. Commits nothing if
    /// `ended` is an I/O error, an internal error or an error about damage.
    pub(super) fn finish(mut self, ended: Result<()>) -> Result<Ingested> {
        match ended {
            Ok(()) => {
                self.check_thread()?;
                self.rejects.flush()?;
                let key = if self.fingerprint.is_empty() { "stdin" } else { &self.fingerprint };
                self.store.set_rejected(key, self.outcome.tally.rejected);
                self.store.commit(None)?;
                (self.control.acknowledged)(&self.outcome.tally);
                let tally = &self.outcome.tally;
                if !tally.adds_up() {
                    return Err(Error::Internal(format!("the tally does not add up: {tally:?}")));
                }
                Ok(self.outcome)
            }
            // Writing failed, so the remaining records cannot be committed.
            Err(e @ (Error::Io { .. } | Error::Internal(_) | Error::Corrupt { .. })) => Err(e),
            // Nothing is committed before a dialogue has a thread.
            Err(e) if !self.has_thread => Err(e),
            Err(e) => {
                self.commit()?;
                let records = self.outcome.tally.records;
                Err(match e {
                    Error::Interrupted { .. } => e.with_hint(if self.fingerprint.is_empty() {
                        format!("{records} records are stored; run the same command again, and it skips them")
                    } else {
                        format!("run the same command again to continue after record {records}")
                    }),
                    other => other,
                })
            }
        }
    }
}

fn add(sum: &mut Cleaned, more: Cleaned) {
    sum.normalized_turns += more.normalized_turns;
    sum.merged_turns += more.merged_turns;
    sum.emails += more.emails;
    sum.phones += more.phones;
    sum.cards += more.cards;
}

/// Maximum number of metadata keys that are reported if dialogues lack the key of the thread.
const MAX_KEYS: usize = 20;
/// Maximum number of records in a chunk.
const CHUNK: usize = 250;

/// Records of one source that the reader thread sends together.
#[derive(Default)]
struct Chunk {
    source: usize,
    items: Vec<Result<Dialogue, Problem>>,
}

/// A record after cleaning and preparation.
enum PreparedRecord {
    /// A dialogue and its id. If it lacks the key that [`IngestOptions::thread`] names, also its metadata keys.
    Dialogue(Box<Prepared>, DialogueId, Option<Vec<String>>),
    TooShort,
    Problem(Problem),
}

/// Body of the reader thread. Reads the sources and sends their records, in chunks, to the thread of the ingest.
fn read_sources(
    sources: Vec<Source>,
    options: &ReadOptions,
    gathering: &Mutex<Chunk>,
    sender: &mpsc::SyncSender<Chunk>,
) {
    for (number, source) in sources.into_iter().enumerate() {
        let name = source.name.clone();
        let dialogues = source.read(options).unwrap_or_else(|e| {
            let reason = e.message_and_hint();
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
fn lock(chunk: &Mutex<Chunk>) -> MutexGuard<'_, Chunk> {
    chunk.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reject reason for a dialogue that [`IngestOptions::only`] excludes.
const NOT_ALLOWED: &str = "the filter of this ingest does not allow this dialogue";

/// Applies the options to a record, then serializes and hashes it. Several threads call this function in parallel.
fn prepare_record(item: Result<Dialogue, Problem>, options: &IngestOptions) -> (PreparedRecord, Cleaned) {
    let mut cleaned = Cleaned::default();
    let mut dialogue = match item {
        Ok(dialogue) => dialogue,
        Err(problem) => return (PreparedRecord::Problem(problem), cleaned),
    };
    let failed = |id: &DialogueId, e: &Error| {
        let (id, reason) = (Some(id.to_string()), e.to_string());
        PreparedRecord::Problem(Problem::Record(Reject { path: String::new(), line: None, id, reason }))
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
    let other_keys = match &options.thread {
        Some(key) if !dialogue.set_thread_from(key) => {
            Some(dialogue.metadata_keys().into_iter().map(str::to_owned).collect())
        }
        _ => None,
    };
    if options.only.as_ref().is_some_and(|only| !only.matches(&dialogue)) {
        return (failed(&dialogue.id, &Error::data(NOT_ALLOWED)), cleaned);
    }
    if !options.cleaning.apply(&mut dialogue, &mut cleaned) {
        return (PreparedRecord::TooShort, cleaned);
    }
    match Prepared::new(&dialogue) {
        Ok(prepared) => (PreparedRecord::Dialogue(Box::new(prepared), dialogue.id, other_keys), cleaned),
        Err(e) => (failed(&dialogue.id, &e), cleaned),
    }
}
