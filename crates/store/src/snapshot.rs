//! Snapshots: read-only views of the state of an index after one batch. Concurrent writes do not change a snapshot.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use crate::{
    Checkpoint, IndexPaths, Manifest, Position, Totals,
    directory::Directory,
    frame::{Frame, Kind},
    log::{self, Segment, Segments},
    tail::{Tail, TailReader},
};
use turnwise_core::{DialogueId, Error, IdKey, Result, Seq, TurnNo, UtteranceId};
use turnwise_corpus::{Dialogue, SpokenDialogue};

/// Read-only view of the state of an index after one batch. Any number of snapshots can be open, in any number of
/// processes.
pub struct Snapshot {
    pub(super) root: PathBuf,
    pub(super) paths: IndexPaths,
    pub(super) segments: Segments,
    pub(super) manifest: Manifest,
    pub(super) directory: Directory,
    pub(super) state: Checkpoint,
}

impl Snapshot {
    /// Opens an index for reading. Returns [`Error::NoIndex`] if there is no index, and [`Error::Corrupt`] if damage
    /// prevents opening. Does not read all data; use [`crate::verify`] to find all damage.
    pub fn open(root: &Path) -> Result<Self> {
        const TRIES: usize = 20;
        for _ in 0..TRIES {
            // A writer may have replaced the manifest and removed the old files. Read the new manifest and try again.
            match Snapshot::load(root) {
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    thread::sleep(Duration::from_millis(5));
                }
                Ok((snapshot, _)) if !snapshot.segments.is_complete() && snapshot.log_was_replaced() => {}
                other => return other.map(|(snapshot, _)| snapshot),
            }
        }
        Snapshot::load(root).map(|(snapshot, _)| snapshot).map_err(missing_file_is_corrupt)
    }

    pub(super) fn load(root: &Path) -> Result<(Self, Tail)> {
        let manifest = Manifest::read(root)?;
        let paths = IndexPaths::of(root, &manifest);
        let directory = Directory::open(&paths.tables(), &manifest.tables)?;
        let (read, tail) = TailReader::new(manifest, directory).read(&paths.log())?;
        Ok((Snapshot::assemble(root, read.manifest, read.directory, read.state)?, tail))
    }

    /// Creates a snapshot from a state that is already loaded. Memory-maps the segments of the log.
    pub(super) fn assemble(
        root: &Path,
        manifest: Manifest,
        directory: Directory,
        state: Checkpoint,
    ) -> Result<Self> {
        let paths = IndexPaths::of(root, &manifest);
        let segments = Segments::map(&paths.log(), state.at)?;
        Ok(Snapshot { root: root.to_owned(), paths, segments, manifest, directory, state })
    }

    /// Writes the state of this snapshot to the directory tables and the manifest.
    pub(super) fn write_checkpoint(&mut self) -> Result<()> {
        self.directory.write_delta(&self.paths.tables(), self.state.batch)?;
        self.manifest.tables = self.directory.table_names();
        self.manifest.checkpoint = self.state.clone();
        self.manifest.write(&self.root)
    }

    /// Returns whether the manifest has switched to a different log since this snapshot was opened.
    fn log_was_replaced(&self) -> bool {
        Manifest::read(&self.root).is_ok_and(|now| now.log != self.manifest.log)
    }

    /// Returns the committed part of a log segment.
    pub(super) fn segment(&self, number: u32) -> Result<Arc<Segment>> {
        self.segments.get(number, self.state.at)
    }

    /// Returns the paths of the log, tables and records folders.
    pub fn paths(&self) -> &IndexPaths {
        &self.paths
    }

    /// Returns the path of the index folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the number of the last batch that this snapshot contains, or 0 if the index has no batch.
    pub fn batch(&self) -> u64 {
        self.state.batch
    }

    /// Returns the generation number of the manifest, which increases each time the manifest is replaced.
    pub fn generation(&self) -> u64 {
        self.manifest.generation
    }

    /// Returns the creation time of the index.
    pub fn created(&self) -> turnwise_corpus::Time {
        self.manifest.created
    }

    /// Returns the numbers of live dialogues and of their turns.
    pub fn totals(&self) -> Totals {
        self.state.totals
    }

    /// Returns the number of records rejected by completed ingests: the sum of [`Manifest::rejected`].
    pub fn rejected(&self) -> u64 {
        self.manifest.rejected.values().sum()
    }

    /// Returns a dialogue by its id, or `None` if it does not exist.
    pub fn get(&self, id: &DialogueId) -> Result<Option<Dialogue>> {
        Ok(self.record(id.key())?.map(|(_, dialogue)| dialogue))
    }

    /// Finds a dialogue by the key of its id. Returns its sequence number and the dialogue, or `None` if it does not
    /// exist.
    pub fn record(&self, key: IdKey) -> Result<Option<(Seq, Dialogue)>> {
        let Some(entry) = self.directory.get(key) else { return Ok(None) };
        let segment = self.segment(entry.at.segment)?;
        let frame = segment.record_at(entry.at.offset)?;
        parse(frame.json(), segment.path(), entry.at.offset).map(|dialogue| Some((entry.seq, dialogue)))
    }

    /// Calls `read` with the sequence number and the turns of the dialogue with the id key `key`. Faster than
    /// [`Snapshot::record`]. Does nothing if there is no such dialogue.
    pub fn read_spoken<T>(
        &self,
        key: IdKey,
        read: impl FnOnce(Seq, &SpokenDialogue<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let Some(entry) = self.directory.get(key) else { return Ok(None) };
        let segment = self.segment(entry.at.segment)?;
        let frame = segment.record_at(entry.at.offset)?;
        let spoken = SpokenDialogue::parse(frame.json())
            .map_err(|e| unreadable(segment.path(), entry.at.offset, &e))?;
        read(entry.seq, &spoken).map(Some)
    }

    /// Returns the sequence number of the dialogue with the id key `key`, or `None` if there is no such dialogue.
    pub fn seq_of(&self, key: IdKey) -> Option<Seq> {
        self.directory.get(key).map(|entry| entry.seq)
    }

    /// Iterates over the sequence numbers and id keys of all dialogues, in no particular order. Reads no records.
    pub fn live(&self) -> impl Iterator<Item = (Seq, IdKey)> + '_ {
        self.directory.live().map(|entry| (entry.seq, entry.id))
    }

    /// Returns the log position after the last batch that this snapshot contains.
    pub fn end(&self) -> Position {
        self.state.at
    }

    /// Returns the id of the log. A repair, restore or compaction changes this id.
    pub fn log_id(&self) -> &str {
        &self.manifest.log
    }

    /// Returns a cursor over the current versions of all dialogues, in the order in which these versions were written.
    pub fn records(&self) -> LiveRecords<'_> {
        LiveRecords { walk: self.walk(Position::START) }
    }

    /// Returns a cursor over the live records at or after the log position `from`. This position must be a result of
    /// [`LiveRecords::position`] or [`Snapshot::position_after`].
    pub fn records_from(&self, from: Position) -> LiveRecords<'_> {
        LiveRecords { walk: self.walk(from) }
    }

    /// Returns the log position after the current version of a dialogue, or `None` if the dialogue does not exist.
    pub fn position_after(&self, id: &DialogueId) -> Result<Option<Position>> {
        let Some(entry) = self.directory.get(id.key()) else { return Ok(None) };
        let mut live = self.records_from(entry.at);
        live.next_record().transpose()?;
        Ok(Some(live.position()))
    }

    /// Returns a cursor over the committed changes at or after the log position `from`. Used to bring derived data up
    /// to date.
    pub fn changes(&self, from: Position) -> Changes<'_> {
        Changes { walk: self.walk(from) }
    }

    /// Counts the live dialogues whose current versions were written at or after a log position.
    pub fn count_live_since(&self, from: Position) -> Result<u64> {
        if from == Position::START {
            return Ok(self.totals().dialogues);
        }
        let mut walk = self.walk(from);
        let mut count = 0;
        while let Some(found) = walk.find(|frame| self.is_live(frame)) {
            found?;
            count += 1;
        }
        Ok(count)
    }

    pub(super) fn walk(&self, from: Position) -> FrameCursor<'_> {
        FrameCursor { snapshot: self, at: from, segment: None }
    }

    pub(super) fn is_live(&self, frame: &Frame<'_>) -> bool {
        frame.kind == Kind::Put && self.directory.get(frame.id_key()).is_some_and(|e| e.seq == frame.seq)
    }

    /// Returns an iterator over the dialogues, in the order in which their current versions were written.
    pub fn dialogues(&self) -> impl Iterator<Item = Result<Dialogue>> + '_ {
        let mut live = self.records();
        std::iter::from_fn(move || Some(live.next_record()?.and_then(|record| record.dialogue())))
    }

    /// Finds a dialogue by its id, or by the id of one of its utterances (`dialogue#turn`). For an utterance id, also
    /// returns the turn number. A dialogue id may itself end in `#` and a number, so `id` is first looked up as a
    /// dialogue id. Returns an error if nothing is found.
    pub fn find(&self, id: &str) -> Result<(Dialogue, Option<TurnNo>)> {
        find_by(id, |dialogue| self.get(dialogue))?.ok_or_else(|| {
            Error::input(format!("{} holds no dialogue `{id}`", self.root().display()))
                .with_hint("`turnwise search` finds ids; `turnwise corpus export` lists all dialogues")
        })
    }
}

/// The current version of a dialogue in the log. Its JSON is not parsed yet.
pub struct Record<'a> {
    /// Sequence number of the put. Each put and each delete gets the next number.
    pub seq: Seq,
    /// Canonical JSON of the dialogue.
    pub json: &'a [u8],
    path: &'a Path,
    offset: u64,
}

impl Record<'_> {
    /// Parses the JSON.
    pub fn dialogue(&self) -> Result<Dialogue> {
        parse(self.json, self.path, self.offset)
    }
}

/// Cursor over the live records in the log. Not an [`Iterator`], because each record borrows from the cursor.
pub struct LiveRecords<'a> {
    walk: FrameCursor<'a>,
}

impl LiveRecords<'_> {
    /// Returns the position after the last returned record. Pass it to [`Snapshot::records_from`] to continue later.
    pub fn position(&self) -> Position {
        self.walk.at
    }

    /// Returns the JSON of the next records, at most `limit`, so that the caller can parse them in parallel. The result
    /// is empty at the end of the snapshot.
    pub fn next_chunk(&mut self, limit: usize) -> Result<Vec<Vec<u8>>> {
        let mut chunk = Vec::with_capacity(limit);
        while chunk.len() < limit
            && let Some(record) = self.next_record()
        {
            chunk.push(record?.json.to_vec());
        }
        Ok(chunk)
    }

    /// Returns the next record, or `None` at the end of the snapshot.
    pub fn next_record(&mut self) -> Option<Result<Record<'_>>> {
        let snapshot = self.walk.snapshot;
        let found = self.walk.find(|frame| snapshot.is_live(frame))?;
        Some(found.map(|(frame, path, offset)| Record { seq: frame.seq, json: frame.json(), path, offset }))
    }
}

/// A change in the log.
#[derive(Debug)]
pub enum Change<'a> {
    /// A dialogue was added or replaced.
    Put {
        /// The dialogue after the change.
        dialogue: Box<Dialogue>,
        /// Whether this version of the dialogue is the current one in the snapshot.
        live: bool,
    },
    /// The dialogue with this id was deleted.
    Deleted(&'a str),
}

/// Cursor over the changes in the log.
pub struct Changes<'a> {
    walk: FrameCursor<'a>,
}

impl Changes<'_> {
    /// Returns the position after the last returned change. Pass it to [`Snapshot::changes`] to continue later.
    pub fn position(&self) -> Position {
        self.walk.at
    }

    /// Returns the next change, or `None` at the end of the snapshot.
    pub fn next_change(&mut self) -> Option<Result<Change<'_>>> {
        let snapshot = self.walk.snapshot;
        let (frame, path, offset) = match self.walk.find(|frame| frame.kind != Kind::Commit)? {
            Ok(found) => found,
            Err(e) => return Some(Err(e)),
        };
        Some(match frame.kind {
            Kind::Delete => match frame.deleted_id() {
                Some(id) => Ok(Change::Deleted(id)),
                None => Err(Error::corrupt(path, format!("at byte {offset}: the deleted id is unreadable"))),
            },
            _ => parse(frame.json(), path, offset)
                .map(|dialogue| Change::Put { dialogue: Box::new(dialogue), live: snapshot.is_live(&frame) }),
        })
    }
}

/// Cursor over the committed frames at or after a log position.
pub(super) struct FrameCursor<'a> {
    snapshot: &'a Snapshot,
    at: Position,
    segment: Option<Arc<Segment>>,
}

impl FrameCursor<'_> {
    /// Returns the next frame for which `wanted` returns true, with the path of its segment file and the offset in this
    /// file.
    pub(super) fn find(
        &mut self,
        wanted: impl Fn(&Frame<'_>) -> bool,
    ) -> Option<Result<(Frame<'_>, &Path, u64)>> {
        let offset = match self.seek(wanted) {
            Ok(offset) => offset?,
            Err(e) => {
                self.at = self.snapshot.state.at;
                return Some(Err(e));
            }
        };
        let segment = self.segment.as_ref()?;
        Some(segment.frame_at(offset).map(|frame| (frame, segment.path(), offset)))
    }

    fn seek(&mut self, wanted: impl Fn(&Frame<'_>) -> bool) -> Result<Option<u64>> {
        let end = self.snapshot.state.at;
        while self.at < end {
            let segment = match self.segment.take() {
                Some(segment) if segment.number() == self.at.segment => segment,
                _ => self.snapshot.segment(self.at.segment)?,
            };
            let segment = self.segment.insert(segment);
            // In the last segment, never read past the committed end.
            if self.at.segment < end.segment && self.at.offset >= segment.end() {
                self.at = Position { segment: self.at.segment + 1, offset: log::SEGMENT_HEADER_BYTES };
                continue;
            }
            let offset = self.at.offset;
            let frame = segment.frame_at(offset)?;
            self.at.offset += frame.bytes();
            if wanted(&frame) {
                return Ok(Some(offset));
            }
        }
        Ok(None)
    }
}

fn parse(json: &[u8], path: &Path, offset: u64) -> Result<Dialogue> {
    serde_json::from_slice(json).map_err(|e| unreadable(path, offset, &e))
}

fn unreadable(path: &Path, offset: u64, e: &serde_json::Error) -> Error {
    Error::corrupt(path, format!("at byte {offset}: the record is unreadable: {e}"))
}

/// Converts a "file not found" error to [`Error::Corrupt`]. Used when no writer can have removed the file.
pub(super) fn missing_file_is_corrupt(e: Error) -> Error {
    match e {
        Error::Io { path, source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Error::corrupt(path, "this index file is missing")
        }
        other => other,
    }
}

/// Finds a dialogue by its id, or by the id of one of its utterances, in any source of dialogues. `get` loads a
/// dialogue by its id. For an utterance id, also returns the turn number. Returns `None` if the dialogue does not
/// exist. Returns an error if the dialogue exists but has no such turn.
pub fn find_by(
    id: &str,
    get: impl Fn(&DialogueId) -> Result<Option<Dialogue>>,
) -> Result<Option<(Dialogue, Option<TurnNo>)>> {
    if let Some(dialogue) = get(&DialogueId::new(id)?)? {
        return Ok(Some((dialogue, None)));
    }
    let Ok(utterance) = id.parse::<UtteranceId>() else { return Ok(None) };
    let Some(dialogue) = get(&utterance.dialogue)? else { return Ok(None) };
    if dialogue.turns.iter().any(|turn| turn.number == utterance.turn) {
        return Ok(Some((dialogue, Some(utterance.turn))));
    }
    let last = dialogue.turns.last().map_or(0, |turn| turn.number.0);
    Err(Error::input(format!(
        "{} has no turn {}; its last turn is {last}",
        utterance.dialogue, utterance.turn
    )))
}
