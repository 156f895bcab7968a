//! Compaction: removes deleted and replaced records from disk.
//!
//! Writes a new log with the live records, then builds new tables and a new sled database from it. A new database is
//! needed because sled keeps deleted bytes in free pages.
//!
//! ```text
//! 1  log.compacting   the new log is written
//! 2  log-3            the new log is complete; tables-3 and records-3 are built from it
//! 3  manifest.json    is replaced and switches to the new log
//! 4                   log-2, tables-2 and records-2 are removed
//! ```
//!
//! After a crash before step 3, the old log remains in use; after step 3, the new log is in use. The next writer
//! removes the folders of the log that is not in use. Open readers continue to use the files they have mapped.
//!
//! Dialogues keep their order and sequence numbers, but get new positions. The log also gets a new id. Derived data
//! uses this id to detect the change.

use std::{fs, path::Path};

use serde::Serialize;

use crate::{
    Checkpoint, IndexPaths, Manifest, Position, Snapshot,
    directory::Directory,
    frame::{self, Commit, Kind},
    lock::WriterLock,
    log::LogWriter,
    repair,
    snapshot::missing_file_is_corrupt,
    tail::entry_of,
    writer,
};
use turnwise_core::{Error, IoContext, Result, files};

/// Minimum size in bytes of each batch in the new log, except the last batch. The log is flushed after each batch.
const BATCH_BYTES: usize = 8 << 20;

/// Result of compacting an index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Compacted {
    /// Number of frames removed from the log: the put frames of deleted and replaced records, and all delete frames. If
    /// the number is 0, the index is unchanged.
    pub dropped: u64,
    /// Number of dialogues, which a compaction does not change.
    pub dialogues: u64,
    /// Size of log, tables and records before the compaction, in bytes.
    pub bytes_before: u64,
    /// Size of log, tables and records after the compaction, in bytes.
    pub bytes: u64,
    /// Whether some old files could not be removed. The next writer tries again.
    pub left: bool,
}

/// Compacts an index.
///
/// `segment_bytes` is the size in bytes at which a log segment is full. `command` is stored in the lock file.
/// `progress` receives the number of steps done, two for each dialogue. The compaction stops with
/// [`Error::Interrupted`] if `stop` returns true.
///
/// The operation is atomic: after an error, a stop or a crash, the index is either unchanged or fully compacted.
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
    let (view, _) = Snapshot::load(root).map_err(missing_file_is_corrupt)?;
    let old = view.paths.clone();
    old.remove_others();
    // Truncate an incomplete batch at the end: it may contain text that must not stay on disk.
    LogWriter::open(&old.log(), view.state.at)?;
    let bytes = bytes_of(&old);
    let dialogues = view.totals().dialogues;
    // Every put and every delete has its own sequence number, so this is the number of put and delete frames in the
    // log.
    let in_log = view.state.seq.0.saturating_sub(view.manifest.numbers_gone);
    let dropped = in_log.saturating_sub(dialogues);
    let mut done = Compacted { dropped, dialogues, bytes_before: bytes, bytes, left: false };
    if dropped == 0 {
        return Ok(done);
    }
    let new = old.next();
    let mut work = Compaction { view: &view, new: &new, segment_bytes, stop, progress };
    let made = work.write_log().and_then(|(directory, state)| work.make_derived(directory, state));
    let mut manifest = made.inspect_err(|_| old.remove_others())?;
    manifest.write(root)?;
    drop(view);
    done.left = old.remove().is_err();
    done.bytes = bytes_of(&new);
    Ok(done)
}

/// Returns the total size of the log, tables and records folders in bytes.
pub fn bytes_of(paths: &IndexPaths) -> u64 {
    [paths.log(), paths.tables(), paths.records()].iter().map(|folder| files::folder_bytes(folder)).sum()
}

struct Compaction<'a> {
    view: &'a Snapshot,
    new: &'a IndexPaths,
    segment_bytes: u64,
    stop: &'a dyn Fn() -> bool,
    progress: &'a mut dyn FnMut(u64),
}

impl Compaction<'_> {
    /// Writes the live dialogues to a new log and renames the log when it is complete. Returns the directory and the
    /// state of the new log.
    fn write_log(&mut self) -> Result<(Directory, Checkpoint)> {
        let unfinished = self.new.unfinished_log();
        let mut out = LogWriter::create(&unfinished)?;
        out.set_segment_bytes(self.segment_bytes);
        let mut directory = Directory::default();
        let mut state = Checkpoint::start();
        let mut rejected = self.view.manifest.rejected.clone();
        let (mut totals, mut seq) = (state.totals, state.seq);
        let mut start = out.next_position()?;
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
                totals.add(frame.turns());
            }
            if !ended && batch.len() < BATCH_BYTES {
                continue;
            }
            let commit = Commit {
                batch: state.batch + 1,
                totals,
                // Keep the progress of an unfinished ingest, so that it can resume.
                ingest: self.view.state.ingest.clone().filter(|_| ended),
                rejected: std::mem::take(&mut rejected),
            };
            // The last commit must cover all assigned sequence numbers, so that none is assigned again.
            seq = if ended { self.view.state.seq } else { seq };
            frame::write_commit(&mut batch, seq, &commit)?;
            out.append(&batch)?;
            batch.clear();
            state.advance(commit, seq, out.end());
            self.step(totals.dialogues)?;
            if ended {
                break;
            }
            start = out.next_position()?;
        }
        // Do not replace the log if the parts of the index disagree: that could lose data.
        if totals != self.view.totals() {
            let what = format!(
                "it counts {} dialogues, but the log contains {}",
                self.view.totals().dialogues,
                totals.dialogues
            );
            return Err(Error::corrupt(self.view.root.join("manifest.json"), what));
        }
        fs::rename(&unfinished, self.new.log()).at("rename", &unfinished)?;
        files::sync_folder(&self.view.root)?;
        Ok((directory, state))
    }

    /// Builds the tables and sled from the new log. Returns the new manifest, which the caller must write.
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
        if (self.stop)() {
            let hint = Some("nothing was changed; run the same command again".into());
            return Err(Error::Interrupted { hint });
        }
        Ok(())
    }
}

/// Sizes of the put and delete frames in the log. Live frames contain the current versions of dialogues; a compaction
/// removes all other, dead frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LogUsage {
    /// Size of the live put frames in bytes.
    pub live_bytes: u64,
    /// Size in bytes of the delete frames and of the put frames of deleted or replaced dialogues.
    pub dead_bytes: u64,
    /// Number of frames counted in `dead_bytes`.
    pub dead_frames: u64,
}

impl Snapshot {
    /// Measures how many bytes of the log are live and dead. Reads the whole log. `progress` receives the number of
    /// live dialogues read so far.
    pub fn log_usage(&self, progress: &mut dyn FnMut(u64)) -> Result<LogUsage> {
        let mut usage = LogUsage::default();
        let mut walk = self.walk(Position::START);
        let mut live = 0;
        while let Some(found) = walk.find(|frame| frame.kind != Kind::Commit) {
            let (frame, ..) = found?;
            if self.is_live(&frame) {
                usage.live_bytes += frame.bytes();
                live += 1;
                progress(live);
            } else {
                usage.dead_bytes += frame.bytes();
                usage.dead_frames += 1;
            }
        }
        Ok(usage)
    }
}

#[cfg(test)]
mod tests;
