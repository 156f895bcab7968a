//! From files to a store: reading on one thread, cleaning and storing on another, nothing dropped silently.
//!
//! An ingest can be stopped at any moment and started again with the same inputs and options: it goes on behind the
//! last record that was acknowledged.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{BufWriter, Seek, SeekFrom, Write},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{
    corpus::{
        Dialogue,
        clean::{Cleaned, Cleaning},
        formats::{Problem, ReadOptions},
        walk::{Plan, Source},
    },
    error::{Error, IoContext, Reject, Result},
    ids::{DialogueId, IdKey},
    store::{IngestMark, Prepared, Put, Store, directory::KeyMap},
};

/// Dialogues that are acknowledged together.
const BATCH_DIALOGUES: usize = 1000;
/// Or this many bytes, whichever comes first.
const BATCH_BYTES: usize = 8 << 20;
/// Or after this time, so that a slow stream does not keep anybody waiting.
const BATCH_TIME: Duration = Duration::from_secs(2);
/// What the reading thread hands over at once.
const CHUNK: usize = 250;

/// What to do with the dialogues on the way.
#[derive(Debug, Clone, Default)]
pub struct IngestOptions {
    /// How to read.
    pub read: ReadOptions,
    /// How to clean.
    pub cleaning: Cleaning,
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
}

/// What became of every record. `records` is the sum of the seven that follow it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// Records taken from the inputs.
    pub records: u64,
    /// New ones.
    pub added: u64,
    /// In place of another content under the same id.
    pub replaced: u64,
    /// There already, with the same content.
    pub unchanged: u64,
    /// Read twice in this ingest, with the same content.
    pub repeated: u64,
    /// Left out: fewer turns than asked for.
    pub too_short: u64,
    /// Left out: the same turns as another dialogue.
    pub duplicates: u64,
    /// Not usable.
    pub rejected: u64,
    /// Files that could not be read to their end.
    pub damaged_files: u64,
    /// Turns of the dialogues that were added or replaced.
    pub turns: u64,
    /// What cleaning did.
    pub cleaned: Cleaned,
}

impl Tally {
    /// Whether every record is accounted for.
    pub fn adds_up(&self) -> bool {
        let sum = self.added + self.replaced + self.unchanged + self.repeated;
        self.records == sum + self.too_short + self.duplicates + self.rejected
    }
}

/// How an ingest ended.
#[derive(Debug, Clone, Default)]
pub struct Ingested {
    /// What became of the records.
    pub tally: Tally,
    /// The records that an earlier, interrupted run had done.
    pub resumed: u64,
    /// The first few rejects.
    pub first_rejects: Vec<Reject>,
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

/// Reads everything in a plan into a store.
pub fn ingest(
    store: &mut Store,
    plan: Plan,
    options: &IngestOptions,
    control: Control<'_>,
) -> Result<Ingested> {
    let fingerprint = fingerprint(&plan.sources, options);
    let mark = store.unfinished_ingest().filter(|m| fingerprint.as_ref() == Some(&m.fingerprint)).cloned();
    let mut run = Run {
        rejects: Rejects::open(options.rejects.clone(), mark.as_ref().map_or(0, |m| m.rejects_bytes))?,
        fingerprint: fingerprint.unwrap_or_default(),
        seen: HashMap::default(),
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
        run.texts.extend(run.store.view().text_keys());
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
        "{:?}{:?}{}{:?}{:?}{:?}{:?}{}",
        read.columns,
        read.strip_nicks,
        read.max_record,
        options.cleaning,
        options.id_prefix,
        options.source,
        options.language,
        env!("CARGO_PKG_VERSION")
    );
    hasher.update(how.as_bytes());
    Some(hasher.finalize().to_hex()[..32].to_owned())
}

/// A handful of records, all of one source.
#[derive(Default)]
struct Chunk {
    source: usize,
    items: Vec<Result<Dialogue, Problem>>,
}

/// A record after cleaning.
enum Ready {
    Dialogue(Box<Prepared>, DialogueId),
    TooShort,
    Problem(Problem),
}

struct Run<'a, 'c> {
    store: &'a mut Store,
    options: &'a IngestOptions,
    control: Control<'c>,
    fingerprint: String,
    rejects: Rejects,
    /// Every id of this ingest, with its content and the source it came from.
    seen: KeyMap<(IdKey, u32)>,
    /// Every text that is there, with its dialogue; filled only for finding duplicates.
    texts: KeyMap<IdKey>,
    names: Vec<String>,
    outcome: Ingested,
    /// Records that an earlier run had done.
    skip: u64,
    last_commit: Instant,
}

impl Run<'_, '_> {
    fn read_all(&mut self, sources: Vec<Source>) -> Result<()> {
        let (sender, receiver) = mpsc::sync_channel::<Chunk>(4);
        let read = self.options.read.clone();
        let gathered = Arc::<Mutex<Chunk>>::default();
        let gathering = gathered.clone();
        // Left behind after Ctrl-C on purpose: a thread that waits for standard input cannot be joined. It ends when
        // the receiver is gone.
        let reader = thread::Builder::new()
            .name("reader".into())
            .spawn(move || read_sources(sources, &read, &gathering, &sender))
            .map_err(|e| Error::Internal(format!("no thread for reading: {e}")))?;
        loop {
            if self.control.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted { hint: None });
            }
            match receiver.recv_timeout(Duration::from_millis(100)) {
                Ok(chunk) => {
                    self.chunk(chunk)?;
                    (self.control.progress)(&self.outcome.tally);
                }
                Err(RecvTimeoutError::Timeout) => {
                    // The reader may wait for a slow stream with less than a chunk in hand. While it is locked out,
                    // what it has sent comes before what it has gathered.
                    let late = {
                        let mut gathered = lock(&gathered);
                        receiver.try_recv().unwrap_or_else(|_| std::mem::take(&mut *gathered))
                    };
                    if !late.items.is_empty() {
                        self.chunk(late)?;
                        (self.control.progress)(&self.outcome.tally);
                    }
                    self.commit_if_due(BATCH_TIME)?;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let panicked = |_| Error::Internal("the reading thread ended early".into());
                    return reader.join().map_err(panicked);
                }
            }
        }
    }

    fn chunk(&mut self, chunk: Chunk) -> Result<()> {
        let options = self.options;
        let mut items = chunk.items;
        // What an earlier run has done only needs to be known by its ids.
        let done = usize::try_from(self.skip).unwrap_or(usize::MAX).min(items.len());
        let rest = items.split_off(done);
        self.skip -= done as u64;
        let done: Vec<_> = items.into_par_iter().map(|item| ready(item, options).0).collect();
        for item in done {
            if let Ready::Dialogue(prepared, _) = item {
                self.seen.insert(prepared.id, (prepared.content, chunk.source as u32));
            }
        }
        let ready: Vec<_> = rest.into_par_iter().map(|item| ready(item, options)).collect();
        for (item, cleaned) in ready {
            let before = self.outcome.tally;
            add(&mut self.outcome.tally.cleaned, cleaned);
            if let Err(e) = self.record(item, chunk.source) {
                // The record that ended the ingest is the first to be read when it goes on.
                self.outcome.tally = before;
                return Err(e);
            }
            if self.store.pending() >= BATCH_DIALOGUES || self.store.pending_bytes() >= BATCH_BYTES {
                self.commit()?;
            }
        }
        self.commit_if_due(BATCH_TIME)
    }

    fn record(&mut self, item: Ready, source: usize) -> Result<()> {
        let tally = &mut self.outcome.tally;
        tally.records += 1;
        let (prepared, id) = match item {
            Ready::Problem(problem) => return self.problem(problem, source),
            Ready::TooShort => {
                tally.too_short += 1;
                return Ok(());
            }
            Ready::Dialogue(prepared, id) => (prepared, id),
        };
        match self.seen.get(&prepared.id) {
            Some((content, _)) if *content == prepared.content => {
                tally.repeated += 1;
                return Ok(());
            }
            Some((_, earlier)) => {
                let earlier = self.names.get(*earlier as usize).cloned().unwrap_or_default();
                return self.reject(Reject {
                    path: self.names.get(source).cloned().unwrap_or_default(),
                    line: None,
                    id: Some(id.to_string()),
                    reason: format!(
                        "another dialogue with this id was read before, from {earlier}; \
                         give the files ids of their own with --id-prefix"
                    ),
                });
            }
            None => self.seen.insert(prepared.id, (prepared.content, source as u32)),
        };
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
        let stored = match self.store.put(&prepared)? {
            Put::Unchanged => {
                tally.unchanged += 1;
                return Ok(());
            }
            Put::Added => &mut tally.added,
            Put::Replaced => &mut tally.replaced,
        };
        *stored += 1;
        tally.turns += u64::from(prepared.turns);
        Ok(())
    }

    fn problem(&mut self, problem: Problem, source: usize) -> Result<()> {
        let mut reject = match problem {
            Problem::Record(reject) => reject,
            Problem::File(reject) => {
                self.outcome.tally.damaged_files += 1;
                reject
            }
        };
        if reject.path.is_empty() {
            reject.path = self.names.get(source).cloned().unwrap_or_default();
        }
        self.reject(reject)
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
        if self.store.pending() > 0 && self.last_commit.elapsed() >= after { self.commit() } else { Ok(()) }
    }

    fn commit(&mut self) -> Result<()> {
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

    /// Acknowledges what was gathered, whether the reading came to its end or not.
    fn finish(mut self, ended: Result<()>) -> Result<Ingested> {
        match ended {
            Ok(()) => {
                self.rejects.flush()?;
                let key = if self.fingerprint.is_empty() { "stdin" } else { &self.fingerprint };
                self.store.set_rejected(key, self.outcome.tally.rejected);
                self.store.commit(None)?;
                (self.control.acknowledged)(&self.outcome.tally);
                if !self.outcome.tally.adds_up() {
                    return Err(Error::Internal(format!(
                        "the tally does not add up: {:?}",
                        self.outcome.tally
                    )));
                }
                Ok(self.outcome)
            }
            // The write itself failed: what was gathered cannot be acknowledged.
            Err(e @ (Error::Io { .. } | Error::Internal(_) | Error::Corrupt { .. })) => Err(e),
            Err(e) => {
                self.commit()?;
                let records = self.outcome.tally.records;
                Err(match e {
                    Error::Interrupted { .. } if self.fingerprint.is_empty() => e.with_hint(format!(
                        "{records} records are in; run the same command again, what is there already is passed over"
                    )),
                    Error::Interrupted { .. } => {
                        e.with_hint(format!("run the same command again to go on after record {records}"))
                    }
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

/// The reading thread.
fn read_sources(
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
fn lock(chunk: &Mutex<Chunk>) -> MutexGuard<'_, Chunk> {
    chunk.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Cleans and prepares a record; done on all cores.
fn ready(item: Result<Dialogue, Problem>, options: &IngestOptions) -> (Ready, Cleaned) {
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
    if !options.cleaning.apply(&mut dialogue, &mut cleaned) {
        return (Ready::TooShort, cleaned);
    }
    match Prepared::new(&dialogue) {
        Ok(prepared) => (Ready::Dialogue(Box::new(prepared), dialogue.id), cleaned),
        Err(e) => (failed(&dialogue.id, &e), cleaned),
    }
}

/// The file of rejected records.
struct Rejects {
    file: Option<(PathBuf, BufWriter<File>)>,
    bytes: u64,
}

impl Rejects {
    /// Opens it, keeping the part that belongs to an earlier run of the same ingest.
    fn open(path: Option<PathBuf>, keep: u64) -> Result<Self> {
        let Some(path) = path else { return Ok(Rejects { file: None, bytes: 0 }) };
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(false).open(&path).at("create", &path)?;
        let keep = keep.min(file.metadata().at("read", &path)?.len());
        file.set_len(keep).at("write", &path)?;
        file.seek(SeekFrom::Start(keep)).at("write", &path)?;
        Ok(Rejects { file: Some((path, BufWriter::new(file))), bytes: keep })
    }

    fn write(&mut self, reject: &Reject) -> Result<()> {
        if let Some((path, file)) = &mut self.file {
            let mut line = serde_json::to_vec(reject).unwrap_or_default();
            line.push(b'\n');
            file.write_all(&line).at("write", path)?;
            self.bytes += line.len() as u64;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<u64> {
        if let Some((path, file)) = &mut self.file {
            file.flush().at("write", path)?;
        }
        Ok(self.bytes)
    }
}
