//! The writer of an index. Only one writer can be open at a time.

use std::{collections::BTreeMap, fs, ops::Range, path::Path};

use crate::{
    Checkpoint, IndexPaths, IngestMark, Manifest, Position, Prepared, Snapshot, Totals,
    frame::{self, Commit, Kind},
    lock::WriterLock,
    log::{self, LogWriter},
    records::{Records, SyncState},
    repair,
    snapshot::missing_file_is_corrupt,
    table::Entry,
    tail::Tail,
};
use turnwise_core::{DialogueId, Error, IoContext, Result, Seq, files};
use turnwise_corpus::Dialogue;

/// Result of putting a dialogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutOutcome {
    /// The dialogue was added: its id is new.
    Added,
    /// A dialogue with the same id and different content was replaced.
    Replaced,
    /// The index already contains the same dialogue; nothing was written.
    Unchanged,
}

/// An index, open for writing.
pub struct Store {
    // Fields are dropped in this order. The lock is last because it must be held until sled is closed.
    records: Records,
    log: LogWriter,
    view: Snapshot,
    pending: PendingBatch,
    notices: Vec<String>,
    /// Whether a write has failed. Memory and disk can then differ until the index is opened again.
    broken: bool,
    _lock: WriterLock,
}

/// The changes since the last commit. The next commit writes them as one batch.
#[derive(Default)]
struct PendingBatch {
    start: Option<Position>,
    frames: Vec<u8>,
    puts: Vec<(Seq, Range<usize>)>,
    removed: Vec<Seq>,
    totals: Option<Totals>,
    seq: Option<Seq>,
    rejected: BTreeMap<String, u64>,
}

impl Store {
    /// Opens an index, or creates it if there is none. `command` is stored in the lock file to identify the holder.
    ///
    /// Returns [`Error::Busy`] if another writer has the index open. Returns an error if there is no index but the
    /// folder contains other files.
    pub fn open_or_create(root: &Path, command: &str) -> Result<Self> {
        if !Manifest::exists(root) {
            check_no_foreign_files(root)?;
            fs::create_dir_all(root).at("create", root)?;
        }
        let lock = WriterLock::acquire(root, command)?;
        // Check again under the lock: another process may have created the index in the meantime.
        if !Manifest::exists(root) {
            create_empty(root)?;
        }
        Store::with_lock(root, lock)
    }

    /// Opens an existing index. `command` is stored in the lock file to identify the holder.
    ///
    /// Returns [`Error::NoIndex`] if there is no index, and [`Error::Busy`] if another writer has the index open.
    pub fn open(root: &Path, command: &str) -> Result<Self> {
        Manifest::read(root)?;
        let lock = WriterLock::acquire(root, command)?;
        Store::with_lock(root, lock)
    }

    pub(super) fn with_lock(root: &Path, lock: WriterLock) -> Result<Self> {
        repair::refuse_unfinished(root)?;
        let (view, tail) = Snapshot::load(root).map_err(missing_file_is_corrupt)?;
        view.paths.remove_others();
        let mut notices = Vec::new();
        let records = match open_records(&view, &tail) {
            Ok(records) => records,
            // Damage of the log must not be copied to sled.
            Err(Error::Corrupt { path, what, .. }) if path == view.paths.records() => {
                notices.push(format!("{}: {what}; rebuilt from the log", path.display()));
                rebuild_records(&view, &mut |_| Ok(()))?
            }
            Err(e) => return Err(e),
        };
        // This truncates an incomplete batch, so the end of the log must have been checked before.
        let log = LogWriter::open(&view.paths.log(), view.state.at)?;
        Ok(Store {
            records,
            log,
            view,
            pending: PendingBatch::default(),
            notices,
            broken: false,
            _lock: lock,
        })
    }

    /// Returns messages about data that was rebuilt when the index was opened.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Removes and returns the messages of [`Store::notices`].
    pub fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    /// Returns a snapshot of the index after the last commit. To read a dialogue by its id, use [`Store::get`] instead:
    /// the lookup by id in this snapshot already finds uncommitted changes, but cannot read them.
    pub fn view(&self) -> &Snapshot {
        &self.view
    }

    /// Returns the progress of an unfinished ingest, as stored by the last commit. Returns `None` if no ingest is
    /// unfinished.
    pub fn unfinished_ingest(&self) -> Option<&IngestMark> {
        self.view.state.ingest.as_ref()
    }

    /// Sets the size in bytes at which a log segment is full. The default is 64 MB.
    pub fn set_segment_bytes(&mut self, bytes: u64) {
        self.log.set_segment_bytes(bytes);
    }

    /// Returns the number of uncommitted changes, that is, of dialogues added, replaced or deleted since the last
    /// commit. A replacement counts twice.
    pub fn pending(&self) -> usize {
        self.pending.puts.len() + self.pending.removed.len()
    }

    /// Returns the size in bytes of the uncommitted changes, as they will be written to the log.
    pub fn pending_bytes(&self) -> usize {
        self.pending.frames.len()
    }

    /// Returns a dialogue by its id, or `None` if it does not exist. Uncommitted changes are visible.
    pub fn get(&self, id: &DialogueId) -> Result<Option<Dialogue>> {
        let Some(entry) = self.view.directory.get(id.key()) else { return Ok(None) };
        match self.pending.puts.binary_search_by_key(&entry.seq, |(seq, _)| *seq) {
            Ok(n) => serde_json::from_slice(&self.pending.frames[self.pending.puts[n].1.clone()])
                .map(Some)
                .map_err(|e| Error::Internal(format!("an uncommitted record is unreadable: {e}"))),
            Err(_) => self.view.get(id),
        }
    }

    /// Adds a dialogue, or replaces the dialogue with the same id. Takes effect with the next commit.
    pub fn put(&mut self, prepared: &Prepared) -> Result<PutOutcome> {
        let old = self.view.directory.get(prepared.id);
        if old.is_some_and(|entry| entry.content == prepared.content) {
            return Ok(PutOutcome::Unchanged);
        }
        let (seq, at) = self.next_position()?;
        let from = self.pending.frames.len();
        frame::write(&mut self.pending.frames, Kind::Put, seq, &[&prepared.prefix(), &prepared.json])?;
        let json = from + frame::HEADER_BYTES + frame::PUT_PREFIX_BYTES..self.pending.frames.len();
        self.pending.puts.push((seq, json));
        self.insert_entry(Entry {
            id: prepared.id,
            text: prepared.text,
            content: prepared.content,
            seq,
            at,
            turns: prepared.turns,
            deleted: false,
        });
        Ok(if old.is_some() { PutOutcome::Replaced } else { PutOutcome::Added })
    }

    /// Deletes a dialogue and returns whether it existed. Takes effect with the next commit.
    pub fn delete(&mut self, id: &DialogueId) -> Result<bool> {
        let Some(old) = self.view.directory.get(id.key()) else { return Ok(false) };
        let (seq, at) = self.next_position()?;
        frame::write(&mut self.pending.frames, Kind::Delete, seq, &[&old.id.0, id.as_str().as_bytes()])?;
        self.insert_entry(Entry { seq, at, turns: 0, deleted: true, ..old });
        Ok(true)
    }

    fn next_position(&mut self) -> Result<(Seq, Position)> {
        let start = self.start_batch()?;
        let seq = self.pending.seq.unwrap_or(self.view.state.seq).next();
        self.pending.seq = Some(seq);
        Ok((seq, Position { offset: start.offset + self.pending.frames.len() as u64, ..start }))
    }

    fn check_usable(&self) -> Result<()> {
        if !self.broken {
            return Ok(());
        }
        let message = format!("an earlier write to {} failed", self.view.root.display());
        Err(Error::unavailable(message).with_hint("open the index again: all committed records are kept"))
    }

    /// Returns the log position at which the current batch starts. Returns an error if an earlier write failed.
    fn start_batch(&mut self) -> Result<Position> {
        self.check_usable()?;
        match self.pending.start {
            Some(start) => Ok(start),
            None => Ok(*self.pending.start.insert(self.log.next_position()?)),
        }
    }

    fn insert_entry(&mut self, entry: Entry) {
        let mut totals = self.pending.totals.unwrap_or(self.view.state.totals);
        if let Some(old) = self.view.directory.insert(entry) {
            self.pending.removed.push(old.seq);
            totals.subtract(old.turns);
        }
        if !entry.deleted {
            totals.add(entry.turns);
        }
        self.pending.totals = Some(totals);
    }

    /// Sets the number of records rejected by the ingest with the fingerprint `ingest`. Takes effect with the next
    /// commit.
    pub fn set_rejected(&mut self, ingest: &str, count: u64) {
        if self.view.manifest.rejected.get(ingest).copied().unwrap_or(0) != count {
            self.pending.rejected.insert(ingest.to_owned(), count);
        }
    }

    /// Commits the pending changes as one batch and flushes the batch to disk. `ingest` is the progress of a running
    /// ingest. `None` clears the stored progress of an unfinished ingest. If there are no pending changes and no
    /// progress to clear, writes nothing.
    ///
    /// After an error, the store refuses all further changes until the index is opened again.
    pub fn commit(&mut self, ingest: Option<IngestMark>) -> Result<()> {
        self.check_usable()?;
        let changed = self.pending.start.is_some() || !self.pending.rejected.is_empty();
        let ends_ingest = ingest.is_none() && self.view.state.ingest.is_some();
        if !changed && !ends_ingest {
            return Ok(());
        }
        let committed = self.write_batch(ingest);
        self.broken = committed.is_err();
        committed?;
        if self.log.is_full() { self.checkpoint() } else { Ok(()) }
    }

    fn write_batch(&mut self, ingest: Option<IngestMark>) -> Result<()> {
        self.start_batch()?;
        let commit = Commit {
            batch: self.view.state.batch + 1,
            totals: self.pending.totals.unwrap_or(self.view.state.totals),
            ingest,
            rejected: std::mem::take(&mut self.pending.rejected),
        };
        let seq = self.pending.seq.unwrap_or(self.view.state.seq);
        frame::write_commit(&mut self.pending.frames, seq, &commit)?;
        self.log.append(&self.pending.frames)?;
        // The batch is on disk. Everything that the code below writes can be rebuilt from the log.
        let pending = std::mem::take(&mut self.pending);
        let puts = pending.puts.iter().map(|(seq, json)| (*seq, &pending.frames[json.clone()]));
        self.records.apply(SyncState::Batch(commit.batch), puts, pending.removed.iter().copied())?;
        self.view.manifest.rejected.extend(commit.rejected.clone());
        self.view.state.advance(commit, seq, self.log.end());
        self.view.segments.forget(self.log.end().segment);
        // Reuse the buffer for the next batch.
        self.pending.frames = pending.frames;
        self.pending.frames.clear();
        Ok(())
    }

    /// Flushes the sled database. Then writes the state after the last commit to the directory tables and the manifest.
    /// As a result, the next opening need not replay the log.
    ///
    /// Does nothing while there are uncommitted changes, because the tables must not contain them. Also does nothing
    /// after a failed write.
    pub fn checkpoint(&mut self) -> Result<()> {
        let is_current =
            self.view.state == self.view.manifest.checkpoint && self.view.directory.delta_len() == 0;
        if self.broken || self.pending.start.is_some() || is_current {
            return Ok(());
        }
        let written = self.records.flush().and_then(|()| self.view.write_checkpoint());
        self.broken = written.is_err();
        written?;
        self.view.directory.remove_unused(&self.view.paths.tables());
        Ok(())
    }

    /// Writes a checkpoint and closes the index. If there are uncommitted changes, discards them and writes no
    /// checkpoint.
    ///
    /// Dropping the store is also safe, but makes the next opening slower.
    pub fn close(mut self) -> Result<()> {
        self.checkpoint()
    }
}

/// Returns an error if the folder contains files that are not part of an index, or a log without a manifest.
fn check_no_foreign_files(root: &Path) -> Result<()> {
    let first_segment = IndexPaths::newest(root).map(|paths| log::segment_path(&paths.log(), 1));
    if first_segment.is_some_and(|path| path.metadata().is_ok_and(|m| m.len() > log::SEGMENT_HEADER_BYTES)) {
        return Err(Error::corrupt(root, "the index has a log but no manifest"));
    }
    let foreign =
        |name: &String| !["log", "lock", "tables", "records", "manifest.json.tmp"].contains(&name.as_str());
    let mut entries = match fs::read_dir(root) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries.at("read", root)?,
    };
    match entries.find_map(|entry| entry.ok()?.file_name().into_string().ok().filter(foreign)) {
        Some(name) => {
            let message = format!("{} is not an index and is not empty (it contains {name})", root.display());
            Err(Error::input(message).with_hint("choose another name with -i"))
        }
        None => Ok(()),
    }
}

/// Creates an empty index. Writes the manifest last, because a folder is an index only if it has a manifest.
pub(super) fn create_empty(root: &Path) -> Result<()> {
    let paths = IndexPaths::first(root);
    let tables = paths.tables();
    fs::create_dir_all(&tables).at("create", &tables)?;
    LogWriter::create(&paths.log())?;
    Manifest::default().write(root)?;
    root.parent().filter(|p| !p.as_os_str().is_empty()).map_or(Ok(()), files::sync_folder)
}

/// Opens the sled database and applies the batches of `tail` that the database does not contain yet. Returns an error
/// if the database contains later batches than the log, because the log has then lost batches.
fn open_records(view: &Snapshot, tail: &Tail) -> Result<Records> {
    let folder = view.paths.records();
    let records = Records::open(&folder)?;
    let known = view.manifest.checkpoint.batch..=view.state.batch;
    let applied = match records.sync_state()? {
        SyncState::Batch(batch) if known.contains(&batch) => batch,
        SyncState::Batch(batch) if batch > view.state.batch => {
            return Err(Error::corrupt(view.paths.log(), log::ends_early(view.state.batch, batch)));
        }
        SyncState::Batch(batch) => {
            let what = format!("it is at batch {batch}, but the log is at batch {}", view.state.batch);
            return Err(Error::corrupt(folder, what));
        }
        SyncState::Rebuilding => return Err(Error::corrupt(folder, "an earlier rebuild was interrupted")),
    };
    for batch in tail.batches.iter().filter(|b| b.number > applied) {
        let mut puts = Vec::with_capacity(batch.puts.len());
        for &(seq, at) in &batch.puts {
            puts.push((seq, view.segment(at.segment)?.frame_at(at.offset)?.json().to_vec()));
        }
        let puts = puts.iter().map(|(seq, json)| (*seq, json.as_slice()));
        records.apply(SyncState::Batch(batch.number), puts, batch.removed.iter().copied())?;
    }
    Ok(records)
}

/// Rebuilds the sled database from the log. `progress` receives the number of records written so far. If `progress`
/// returns an error, the rebuild stops with this error.
pub(super) fn rebuild_records(
    view: &Snapshot,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Records> {
    const BATCH: usize = 1000;
    let folder = view.paths.records();
    files::remove_folder(&folder)?;
    let records = Records::open(&folder)?;
    let mut live = view.records();
    let mut puts: Vec<(Seq, Vec<u8>)> = Vec::with_capacity(BATCH);
    let mut done = 0;
    loop {
        let next = live.next_record().transpose()?;
        let ended = next.is_none();
        puts.extend(next.map(|record| (record.seq, record.json.to_vec())));
        if ended || puts.len() == BATCH {
            // Only the last step may mark the rebuild as complete.
            let state = if ended { SyncState::Batch(view.state.batch) } else { SyncState::Rebuilding };
            let borrowed = puts.iter().map(|(seq, json)| (*seq, json.as_slice()));
            records.apply(state, borrowed, std::iter::empty())?;
            done += puts.len() as u64;
            puts.clear();
            progress(done)?;
        }
        if ended {
            records.flush()?;
            return Ok(records);
        }
    }
}

/// Resets the manifest to the state before the first batch and removes the tables. The next opening then reads the
/// whole log. Assigns a new log id, because log positions stored in derived data may no longer be valid.
pub(super) fn forget_derived(root: &Path, mut manifest: Manifest) -> Result<()> {
    manifest.tables.clear();
    manifest.checkpoint = Checkpoint::start();
    manifest.rejected.clear();
    manifest.log = Manifest::new_log_id();
    manifest.write(root)?;
    let tables = IndexPaths::of(root, &manifest).tables();
    files::remove_folder(&tables)?;
    fs::create_dir_all(&tables).at("create", &tables)
}

/// Rebuilds the directory tables, the sled database and the manifest from the log. Ignores an incomplete batch at the
/// end of the log.
pub(super) fn rebuild_derived(root: &Path, manifest: Manifest) -> Result<Snapshot> {
    forget_derived(root, manifest)?;
    let (mut view, _) = Snapshot::load(root)?;
    // Count the sequence numbers whose frames an earlier compaction or damage has removed.
    let frames = view.totals().dialogues + view.log_usage(&mut |_| {})?.dead_frames;
    view.manifest.numbers_gone = view.state.seq.0.saturating_sub(frames);
    drop(rebuild_records(&view, &mut |_| Ok(()))?);
    view.write_checkpoint()?;
    Ok(view)
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_corpus::Role;

    fn put(store: &mut Store, id: &str) -> Result<PutOutcome> {
        let mut dialogue = Dialogue::new(DialogueId::new(id).unwrap());
        dialogue.push("ann", Role::User, "text");
        dialogue.check().unwrap();
        store.put(&Prepared::new(&dialogue).unwrap())
    }

    #[test]
    fn after_a_failed_write_the_store_refuses_changes_until_it_is_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open_or_create(dir.path(), "test").unwrap();
        put(&mut store, "a").unwrap();
        store.commit(None).unwrap();
        put(&mut store, "b").unwrap();
        store.records.fails = true;
        assert!(matches!(store.commit(None), Err(Error::Corrupt { .. })));
        store.records.fails = false;
        let manifest = fs::read(dir.path().join("manifest.json")).unwrap();
        let log = fs::read(dir.path().join("log/00000001.log")).unwrap();
        let id = DialogueId::new("a").unwrap();
        for e in [put(&mut store, "c").err(), store.delete(&id).err(), store.commit(None).err()] {
            let e = e.unwrap();
            assert!(e.to_string().starts_with("an earlier write to "), "{e}");
            assert!(e.hint().unwrap().contains("open the index again"));
        }
        store.checkpoint().unwrap();
        store.close().unwrap();
        assert_eq!(fs::read(dir.path().join("manifest.json")).unwrap(), manifest);
        assert_eq!(fs::read(dir.path().join("log/00000001.log")).unwrap(), log);
        // The batch was flushed to the log before sled failed, so it is committed.
        let store = Store::open(dir.path(), "test").unwrap();
        assert!(store.notices().is_empty());
        assert_eq!((store.view().batch(), store.view().totals().dialogues), (2, 2));
        store.close().unwrap();
        let report = crate::verify::verify(dir.path(), "test", &mut |_| {}).unwrap();
        assert!(report.damage.is_empty(), "{:?}", report.damage);
    }
}
