//! What a reader sees: the state of an index at one batch, whatever a writer does meanwhile.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use crate::{
    directory::Directory,
    frame::{Frame, Kind, Totals},
    log::{self, Position, Segment},
    manifest::{Checkpoint, Manifest},
    places::Places,
    segments::Segments,
    tail::{Reading, Tail},
};
use turnwise_core::{
    error::{Error, Result},
    ids::{DialogueId, IdKey, Seq},
};
use turnwise_corpus::Dialogue;

/// The state of an index at one batch. Any number of them, in any number of processes.
pub struct Snapshot {
    pub(super) root: PathBuf,
    pub(super) places: Places,
    pub(super) segments: Segments,
    pub(super) manifest: Manifest,
    pub(super) directory: Directory,
    pub(super) state: Checkpoint,
}

impl Snapshot {
    /// Opens an index for reading.
    pub fn open(root: &Path) -> Result<Self> {
        const TRIES: usize = 20;
        for _ in 0..TRIES {
            // A writer may replace the manifest and remove files in between; the new manifest names others.
            match Snapshot::load(root) {
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    thread::sleep(Duration::from_millis(5));
                }
                Ok((snapshot, _)) if !snapshot.segments.all_there() && snapshot.is_of_another_log() => {}
                other => return other.map(|(snapshot, _)| snapshot),
            }
        }
        Snapshot::load(root).map(|(snapshot, _)| snapshot).map_err(missing_is_damage)
    }

    pub(super) fn load(root: &Path) -> Result<(Self, Tail)> {
        let manifest = Manifest::read(root)?;
        let places = Places::of(root, &manifest);
        let directory = Directory::open(&places.tables(), &manifest.tables)?;
        let (read, tail) = Reading::new(manifest, directory).read(&places.log())?;
        Ok((Snapshot::assemble(root, read.manifest, read.directory, read.state)?, tail))
    }

    /// The snapshot of a state whose files are all there.
    pub(super) fn assemble(
        root: &Path,
        manifest: Manifest,
        directory: Directory,
        state: Checkpoint,
    ) -> Result<Self> {
        let places = Places::of(root, &manifest);
        let segments = Segments::map(&places.log(), state.at)?;
        Ok(Snapshot { root: root.to_owned(), places, segments, manifest, directory, state })
    }

    /// Whether the index has come to another log since this was opened.
    fn is_of_another_log(&self) -> bool {
        Manifest::read(&self.root).is_ok_and(|now| now.log != self.manifest.log)
    }

    /// A segment of the log, up to what is committed.
    pub(super) fn segment(&self, number: u32) -> Result<Arc<Segment>> {
        self.segments.get(number, self.state.at)
    }

    /// Where its log, tables and records lie.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Where the index lies.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The last batch that is seen.
    pub fn batch(&self) -> u64 {
        self.state.batch
    }

    /// Counts the manifests of this index.
    pub fn generation(&self) -> u64 {
        self.manifest.generation
    }

    /// When the index was made.
    pub fn created(&self) -> turnwise_corpus::Time {
        self.manifest.created
    }

    /// How many dialogues and turns there are.
    pub fn totals(&self) -> Totals {
        self.state.totals
    }

    /// How many records were rejected by the ingests of this index.
    pub fn rejected(&self) -> u64 {
        self.manifest.rejected.values().sum()
    }

    /// A dialogue.
    pub fn get(&self, id: &DialogueId) -> Result<Option<Dialogue>> {
        Ok(self.record(id.key())?.map(|(_, dialogue)| dialogue))
    }

    /// The dialogue of a key, with its place in the order of ingestion.
    pub fn record(&self, key: IdKey) -> Result<Option<(Seq, Dialogue)>> {
        let Some(entry) = self.directory.get(key) else { return Ok(None) };
        let segment = self.segment(entry.at.segment)?;
        let frame = segment.frame_at(entry.at.offset)?;
        parse(frame.json(), segment.path(), entry.at.offset).map(|dialogue| Some((entry.seq, dialogue)))
    }

    /// The place of a key's dialogue in the order of ingestion, if it is there.
    pub fn seq_of(&self, key: IdKey) -> Option<Seq> {
        self.directory.get(key).map(|entry| entry.seq)
    }

    /// The keys under which a dialogue's text is known, for telling duplicates.
    pub fn text_keys(&self) -> impl Iterator<Item = (IdKey, IdKey)> + '_ {
        self.directory.live().map(|entry| (entry.text, entry.id))
    }

    /// The end of the log as it is seen.
    pub fn end(&self) -> Position {
        self.state.at
    }

    /// Names the log; another log, after a repair or a restore, has another name.
    pub fn log_id(&self) -> &str {
        &self.manifest.log
    }

    /// The records in the order of their ingestion.
    pub fn records(&self) -> Live<'_> {
        Live { walk: self.walk(Position::START) }
    }

    /// The records from a place on that [`Live::position`] or [`Snapshot::behind`] gave.
    pub fn records_from(&self, from: Position) -> Live<'_> {
        Live { walk: self.walk(from) }
    }

    /// The place behind a dialogue in the order of ingestion, if it is there.
    pub fn behind(&self, id: &DialogueId) -> Result<Option<Position>> {
        let Some(entry) = self.directory.get(IdKey::of(id.as_str())) else { return Ok(None) };
        let mut live = self.records_from(entry.at);
        live.next_record().transpose()?;
        Ok(Some(live.position()))
    }

    /// What happened in the log from a place on, for an index that has come so far.
    pub fn changes(&self, from: Position) -> Changes<'_> {
        Changes { walk: self.walk(from) }
    }

    /// How many of the dialogues that came from a place of the log on are still there as they came.
    pub fn live_since(&self, from: Position) -> Result<u64> {
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

    pub(super) fn walk(&self, from: Position) -> Walk<'_> {
        Walk { snapshot: self, at: from, segment: None }
    }

    pub(super) fn is_live(&self, frame: &Frame<'_>) -> bool {
        frame.kind == Kind::Put && self.directory.get(frame.id_key()).is_some_and(|e| e.seq == frame.seq)
    }

    /// The dialogues in the order of their ingestion.
    pub fn dialogues(&self) -> impl Iterator<Item = Result<Dialogue>> + '_ {
        let mut live = self.records();
        std::iter::from_fn(move || match live.next_record()? {
            Ok(record) => Some(record.dialogue()),
            Err(e) => Some(Err(e)),
        })
    }
}

/// A record as it lies in the log.
pub struct Record<'a> {
    /// Its place in the order of ingestion.
    pub seq: Seq,
    /// The canonical JSON.
    pub json: &'a [u8],
    path: &'a Path,
    offset: u64,
}

impl Record<'_> {
    /// Parses it.
    pub fn dialogue(&self) -> Result<Dialogue> {
        parse(self.json, self.path, self.offset)
    }
}

/// Walks the log over the records that are there. Not an [`Iterator`], because it lends the mapped bytes.
pub struct Live<'a> {
    walk: Walk<'a>,
}

impl Live<'_> {
    /// The place behind the last record that was given: where to go on another time.
    pub fn position(&self) -> Position {
        self.walk.at
    }

    /// So many of the next records as they are kept, for parsing on all cores; none at the snapshot's end.
    pub fn next_chunk(&mut self, most: usize) -> Result<Vec<Vec<u8>>> {
        let mut chunk = Vec::with_capacity(most);
        while chunk.len() < most
            && let Some(record) = self.next_record()
        {
            chunk.push(record?.json.to_vec());
        }
        Ok(chunk)
    }

    /// The next record, or `None` at the snapshot's end.
    pub fn next_record(&mut self) -> Option<Result<Record<'_>>> {
        let snapshot = self.walk.snapshot;
        match self.walk.find(|frame| snapshot.is_live(frame))? {
            Ok((frame, path, offset)) => {
                Some(Ok(Record { seq: frame.seq, json: frame.json(), path, offset }))
            }
            Err(e) => Some(Err(e)),
        }
    }
}

/// One step of the log.
#[derive(Debug)]
pub enum Change<'a> {
    /// A dialogue came.
    Put {
        /// Which.
        dialogue: Box<Dialogue>,
        /// Whether it is still there as it came.
        live: bool,
    },
    /// A dialogue went.
    Deleted(&'a str),
}

/// Walks the log over everything that happened.
pub struct Changes<'a> {
    walk: Walk<'a>,
}

impl Changes<'_> {
    /// The place behind the last change that was given: where to go on another time.
    pub fn position(&self) -> Position {
        self.walk.at
    }

    /// The next change, or `None` at the snapshot's end.
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

/// Walks over the committed frames from a place on.
pub(super) struct Walk<'a> {
    snapshot: &'a Snapshot,
    at: Position,
    segment: Option<Arc<Segment>>,
}

impl Walk<'_> {
    /// The next frame that is wanted, with its file and offset.
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
            // Behind the last segment's committed part nothing may be looked at.
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
    serde_json::from_slice(json)
        .map_err(|e| Error::corrupt(path, format!("at byte {offset}: the record is unreadable: {e}")))
}

/// A file that the manifest names and nobody is replacing must be there.
pub(super) fn missing_is_damage(e: Error) -> Error {
    match e {
        Error::Io { path, source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Error::corrupt(path, "this file of the index is missing")
        }
        other => other,
    }
}
