//! The tail of the log: the batches after the last checkpoint.

use std::{io, path::Path};

use crate::{
    Checkpoint, Manifest, Position,
    directory::Directory,
    frame::{Frame, Kind},
    log::{self, Segment},
    table::Entry,
};
use turnwise_core::{Error, IdKey, Result, Seq};

/// Batches of the log after the last checkpoint. When a writer opens the index, it applies the batches that the sled
/// database does not contain yet.
#[derive(Default)]
pub(super) struct Tail {
    pub(super) batches: Vec<TailBatch>,
}

#[derive(Default)]
pub(super) struct TailBatch {
    pub(super) number: u64,
    pub(super) puts: Vec<(Seq, Position)>,
    pub(super) removed: Vec<Seq>,
}

/// Reader of the tail. It starts with the state of the index at the last checkpoint and advances this state to the last
/// commit.
pub(super) struct TailReader {
    pub(super) manifest: Manifest,
    pub(super) directory: Directory,
    pub(super) state: Checkpoint,
    tail: Tail,
}

impl TailReader {
    /// Creates a reader that starts at the checkpoint of the manifest.
    pub(super) fn new(manifest: Manifest, directory: Directory) -> Self {
        let state = manifest.checkpoint.clone();
        TailReader { manifest, directory, state, tail: Tail::default() }
    }

    /// Reads the log up to the last commit. Ignores an incomplete batch at the end. Returns an error if a damaged
    /// frame precedes a commit.
    pub(super) fn read(mut self, log: &Path) -> Result<(Self, Tail)> {
        let mut from = self.state.at;
        let segments: Vec<u32> = log::segments(log)?.into_iter().filter(|&s| s >= from.segment).collect();
        if segments.first() != Some(&from.segment) {
            // The log is damaged, or a compaction has just removed it. The caller determines which.
            let source = io::Error::from(io::ErrorKind::NotFound);
            return Err(Error::Io { action: "open", path: log::segment_path(log, from.segment), source });
        }
        for (n, &number) in segments.iter().enumerate() {
            from = Position {
                segment: number,
                offset: if n == 0 { from.offset } else { log::SEGMENT_HEADER_BYTES },
            };
            let segment = Segment::read(log, number, from.offset)?;
            let torn = self.read_segment(&segment, from.offset)?;
            let last = n + 1 == segments.len();
            if let Some(offset) = torn
                && (segment.has_commit_after(offset) || !last && later_commit(log, &segments[n + 1..])?)
            {
                return Err(Error::corrupt(
                    segment.path(),
                    format!("at byte {offset}: a frame is damaged, and committed frames follow it"),
                ));
            }
        }
        let tail = std::mem::take(&mut self.tail);
        Ok((self, tail))
    }

    /// Applies the batches of a segment to the state. Stops at the first unreadable frame and returns its offset.
    /// Returns `None` if all frames are readable.
    fn read_segment(&mut self, segment: &Segment, from: u64) -> Result<Option<u64>> {
        let mut entries: Vec<Entry> = Vec::new();
        for (offset, frame) in segment.frames(from) {
            let Ok(frame) = frame else { return Ok(Some(offset)) };
            let at = Position { segment: segment.number(), offset };
            if frame.kind != Kind::Commit {
                entries.push(entry_of(&frame, at));
                continue;
            }
            let commit = frame.commit().map_err(|e| {
                Error::corrupt(segment.path(), format!("at byte {offset}: the commit is unreadable: {e}"))
            })?;
            let mut batch = TailBatch { number: commit.batch, ..TailBatch::default() };
            for entry in entries.drain(..) {
                batch.removed.extend(self.directory.insert(entry).map(|old| old.seq));
                if !entry.deleted {
                    batch.puts.push((entry.seq, entry.at));
                }
            }
            self.tail.batches.push(batch);
            self.manifest.rejected.extend(commit.rejected.clone());
            self.state.advance(commit, frame.seq, Position { offset: offset + frame.bytes(), ..at });
        }
        Ok(None)
    }
}

fn later_commit(log: &Path, segments: &[u32]) -> Result<bool> {
    for &number in segments {
        if Segment::read(log, number, log::SEGMENT_HEADER_BYTES)?.has_commit_after(log::SEGMENT_HEADER_BYTES)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the directory entry for a put or delete frame at log position `at`.
pub(super) fn entry_of(frame: &Frame<'_>, at: Position) -> Entry {
    let (id, seq, none) = (frame.id_key(), frame.seq, IdKey::default());
    if frame.kind == Kind::Delete {
        return Entry { id, text: none, content: none, seq, at, turns: 0, deleted: true };
    }
    let (text, content, turns) = (frame.text_key(), frame.content_key(), frame.turns());
    Entry { id, text, content, seq, at, turns, deleted: false }
}
