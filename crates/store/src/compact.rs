//! Making what was deleted or replaced gone from the bytes: a new log of what is there, with new tables and a new sled
//! (which keeps old bytes in its free pages).
//!
//! ```text
//! 1  log.compacting   the new log, while it is written
//! 2  log-3            it is complete; tables-3 and records-3 are made from it
//! 3  manifest.json    replaced: this is the switch
//! 4                   log-2, tables-2 and records-2 are removed
//! ```
//!
//! A kill before the third step leaves the old log in use, one after it the new log; what no manifest names is removed
//! by the next writer. Readers have mapped what they read. Dialogues keep their order and their sequence numbers; their
//! places are new, and so is the log's name, by which everything that follows it is told.

use std::{fs, path::Path};

use serde::Serialize;

use crate::{
    directory::Directory,
    frame::{self, Commit, Kind},
    lock::WriterLock,
    log::{LogWriter, Position},
    manifest::{Checkpoint, Manifest},
    places::Places,
    repair,
    snapshot::{Snapshot, missing_is_damage},
    tail::entry_of,
    writer,
};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};

/// The new log is flushed each time it has grown by so much.
const BATCH_BYTES: usize = 8 << 20;

/// What a compaction did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Compacted {
    /// Records that were deleted or replaced, and deletes, that are gone now. Without any, nothing was done.
    pub dropped: u64,
    /// Dialogues that are there, as before.
    pub dialogues: u64,
    /// Bytes of log, tables and records before.
    pub bytes_before: u64,
    /// And now.
    pub bytes: u64,
    /// Whether something of the old log could not be removed yet; the next writer tries again.
    pub left: bool,
}

/// Drops what was deleted or replaced. `segment_bytes` is the length at which the log begins another file; `progress`
/// is told the steps done, two for every dialogue; `stop` is asked now and then.
///
/// Whatever ends it, the index is as it was before or as it is after, with the same dialogues.
pub fn compact(
    root: &Path,
    segment_bytes: u64,
    command: &str,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(u64),
) -> Result<Compacted> {
    Manifest::read(root)?;
    let _lock = WriterLock::acquire(root, command)?;
    repair::refuse_unfinished(root)?;
    let (view, _) = Snapshot::load(root).map_err(missing_is_damage)?;
    let old = view.places.clone();
    old.remove_others();
    // The torn end of a batch that was never acknowledged is text, too.
    LogWriter::open(&old.log(), view.state.at)?;
    let bytes = bytes_of(&old);
    let dialogues = view.totals().dialogues;
    // Every put and every delete has a number of its own.
    let in_log = view.state.seq.0.saturating_sub(view.manifest.numbers_gone);
    let dropped = in_log.saturating_sub(dialogues);
    let mut done = Compacted { dropped, dialogues, bytes_before: bytes, bytes, left: false };
    if dropped == 0 {
        return Ok(done);
    }
    let new = old.next();
    let mut work = Work { view: &view, new: &new, segment_bytes, stop, progress };
    let made = work.write_log().and_then(|(directory, state)| work.make_derived(directory, state));
    let mut manifest = made.inspect_err(|_| old.remove_others())?;
    manifest.write(root)?;
    drop(view);
    done.left = old.remove().is_err();
    done.bytes = bytes_of(&new);
    Ok(done)
}

/// The bytes of log, tables and records.
pub fn bytes_of(places: &Places) -> u64 {
    [places.log(), places.tables(), places.records()].iter().map(|folder| files::folder_bytes(folder)).sum()
}

struct Work<'a> {
    view: &'a Snapshot,
    new: &'a Places,
    segment_bytes: u64,
    stop: &'a dyn Fn() -> bool,
    progress: &'a mut dyn FnMut(u64),
}

impl Work<'_> {
    /// Writes the live dialogues as a new log, which gets its name when it is complete.
    fn write_log(&mut self) -> Result<(Directory, Checkpoint)> {
        let unfinished = self.new.unfinished_log();
        let mut out = LogWriter::create(&unfinished)?;
        out.set_segment_bytes(self.segment_bytes);
        let mut directory = Directory::default();
        let mut state = Checkpoint::start();
        let mut rejected = self.view.manifest.rejected.clone();
        let (mut totals, mut seq) = (state.totals, state.seq);
        let mut start = out.place()?;
        let mut batch = Vec::new();
        let mut walk = self.view.walk(Position::START);
        loop {
            let found = walk.find(|frame| self.view.is_live(frame)).transpose()?;
            let ended = found.is_none();
            if let Some((frame, ..)) = found {
                seq = frame.seq;
                let at = Position { offset: start.offset + batch.len() as u64, ..start };
                frame::write(&mut batch, Kind::Put, seq, &[frame.payload])?;
                directory.insert(entry_of(&frame, at));
                totals.dialogues += 1;
                totals.turns += u64::from(frame.turns());
            }
            if !ended && batch.len() < BATCH_BYTES {
                continue;
            }
            let commit = Commit {
                batch: state.batch + 1,
                totals,
                // An ingest that waits to be gone on with is not forgotten.
                ingest: self.view.state.ingest.clone().filter(|_| ended),
                rejected: std::mem::take(&mut rejected),
            };
            let payload = serde_json::to_vec(&commit).map_err(|e| Error::Internal(e.to_string()))?;
            // A number is never given twice, even if the last ones are gone.
            seq = if ended { self.view.state.seq } else { seq };
            frame::write(&mut batch, Kind::Commit, seq, &[&payload])?;
            out.append(&batch)?;
            batch.clear();
            state.advance(commit, seq, out.end());
            self.step(totals.dialogues)?;
            if ended {
                break;
            }
            start = out.place()?;
        }
        // Nothing may get lost because two parts of the index contradict each other.
        if totals != self.view.totals() {
            let what =
                format!("it counts {} dialogues, the log {}", self.view.totals().dialogues, totals.dialogues);
            return Err(Error::corrupt(self.view.root.join("manifest.json"), what));
        }
        fs::rename(&unfinished, self.new.log()).at("rename", &unfinished)?;
        files::sync_folder(&self.view.root)?;
        Ok((directory, state))
    }

    /// Makes tables and sled from the new log. The manifest that is given names all of it, and is not written yet.
    fn make_derived(&mut self, mut directory: Directory, state: Checkpoint) -> Result<Manifest> {
        let tables = self.new.tables();
        fs::create_dir_all(&tables).at("create", &tables)?;
        directory.write_delta(&tables, state.batch)?;
        let manifest = Manifest {
            log: Manifest::new_log_id(),
            compacted: self.new.number(),
            numbers_gone: state.seq.0.saturating_sub(state.totals.dialogues),
            checkpoint: state.clone(),
            tables: directory.table_names(),
            ..self.view.manifest.clone()
        };
        let new = Snapshot::assemble(&self.view.root, manifest, directory, state)?;
        let before = new.totals().dialogues;
        drop(writer::rebuild_records(&new, &mut |records| self.step(before + records))?);
        files::sync_folder(&self.view.root)?;
        Ok(new.manifest)
    }

    fn step(&mut self, done: u64) -> Result<()> {
        (self.progress)(done);
        match (self.stop)() {
            true => Err(Error::Interrupted {
                hint: Some("nothing was changed; run the same command again".into()),
            }),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
