//! What a reader sees: the state of an index at one batch, whatever a writer does meanwhile.

use std::path::{Path, PathBuf};

use crate::{
    corpus::Dialogue,
    error::{Error, Result},
    ids::{DialogueId, IdKey, Seq},
    store::{
        directory::Directory,
        frame::{Frame, Kind, Totals},
        log::{self, Position, Segment},
        manifest::{Checkpoint, Manifest},
        table::Entry,
    },
};

/// The state of an index at one batch. Any number of them, in any number of processes.
pub struct Snapshot {
    pub(super) root: PathBuf,
    pub(super) manifest: Manifest,
    pub(super) directory: Directory,
    pub(super) state: Checkpoint,
}

/// The batches that came after the last checkpoint, for bringing sled up to date.
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

impl Snapshot {
    /// Opens an index for reading.
    pub fn open(root: &Path) -> Result<Self> {
        let mut tries = 0;
        loop {
            match Snapshot::load(root) {
                // A writer may replace the manifest and remove a table in between; the new manifest names others.
                Err(Error::Io { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound && tries < 20 =>
                {
                    tries += 1;
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                other => return other.map(|(snapshot, _)| snapshot).map_err(missing_is_damage),
            }
        }
    }

    pub(super) fn load(root: &Path) -> Result<(Self, Tail)> {
        let manifest = Manifest::read(root)?;
        let directory = Directory::open(&tables_folder(root), &manifest.tables)?;
        let state = manifest.checkpoint.clone();
        let mut snapshot = Snapshot { root: root.to_owned(), manifest, directory, state };
        let tail = snapshot.read_tail()?;
        Ok((snapshot, tail))
    }

    /// Reads what the log holds behind the checkpoint, up to the last commit.
    fn read_tail(&mut self) -> Result<Tail> {
        let log = log_folder(&self.root);
        let mut tail = Tail::default();
        let mut from = self.state.at;
        let segments: Vec<u32> = log::segments(&log)?.into_iter().filter(|&s| s >= from.segment).collect();
        if segments.first() != Some(&from.segment) {
            return Err(Error::corrupt(
                log::segment_path(&log, from.segment),
                "this segment of the log is missing",
            ));
        }
        for (n, &number) in segments.iter().enumerate() {
            from = Position {
                segment: number,
                offset: if n == 0 { from.offset } else { log::SEGMENT_HEADER_BYTES },
            };
            let segment = Segment::read(&log, number, from.offset)?;
            let torn = self.read_tail_segment(&segment, from.offset, &mut tail)?;
            let last = n + 1 == segments.len();
            if let Some(offset) = torn
                && (segment.has_commit_after(offset) || !last && later_commit(&log, &segments[n + 1..])?)
            {
                return Err(Error::corrupt(
                    segment.path(),
                    format!("at byte {offset}: a frame is damaged, and committed ones follow it"),
                ));
            }
        }
        Ok(tail)
    }

    /// Gives where an unreadable frame begins, if there is one.
    fn read_tail_segment(&mut self, segment: &Segment, from: u64, tail: &mut Tail) -> Result<Option<u64>> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut end = from;
        for item in segment.frames(from) {
            let Ok((offset, frame)) = item else { return Ok(Some(end)) };
            end = offset + frame.bytes();
            match frame.kind {
                Kind::Put | Kind::Delete => {
                    entries.push(entry_of(&frame, Position { segment: segment.number(), offset }));
                }
                Kind::Commit => {
                    let commit = frame.commit().map_err(|e| {
                        Error::corrupt(
                            segment.path(),
                            format!("at byte {offset}: the commit is unreadable: {e}"),
                        )
                    })?;
                    let mut batch = TailBatch { number: commit.batch, ..TailBatch::default() };
                    for entry in entries.drain(..) {
                        batch.removed.extend(self.directory.insert(entry).map(|old| old.seq));
                        if !entry.deleted {
                            batch.puts.push((entry.seq, entry.at));
                        }
                    }
                    tail.batches.push(batch);
                    self.manifest.rejected.extend(commit.rejected.clone());
                    self.state.advance(
                        commit,
                        frame.seq,
                        Position { segment: segment.number(), offset: end },
                    );
                }
            }
        }
        Ok(None)
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
    pub fn created(&self) -> crate::corpus::Time {
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
        let segment = Segment::map(&log_folder(&self.root), entry.at.segment)?;
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

    fn walk(&self, from: Position) -> Walk<'_> {
        Walk { snapshot: self, at: from, segment: None }
    }

    fn is_live(&self, frame: &Frame<'_>) -> bool {
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
struct Walk<'a> {
    snapshot: &'a Snapshot,
    at: Position,
    segment: Option<Segment>,
}

impl Walk<'_> {
    /// The next frame that is wanted, with its file and offset.
    fn find(&mut self, wanted: impl Fn(&Frame<'_>) -> bool) -> Option<Result<(Frame<'_>, &Path, u64)>> {
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
                _ => Segment::map(&log_folder(&self.snapshot.root), self.at.segment)?,
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

fn later_commit(log: &Path, segments: &[u32]) -> Result<bool> {
    for &number in segments {
        if Segment::read(log, number, log::SEGMENT_HEADER_BYTES)?.has_commit_after(log::SEGMENT_HEADER_BYTES)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn entry_of(frame: &Frame<'_>, at: Position) -> Entry {
    let deleted = frame.kind == Kind::Delete;
    Entry {
        id: frame.id_key(),
        text: if deleted { IdKey::default() } else { frame.text_key() },
        content: if deleted { IdKey::default() } else { frame.content_key() },
        seq: frame.seq,
        at,
        turns: if deleted { 0 } else { frame.turns() },
        deleted,
    }
}

pub(super) fn log_folder(root: &Path) -> PathBuf {
    root.join("log")
}

pub(super) fn tables_folder(root: &Path) -> PathBuf {
    root.join("tables")
}

pub(super) fn records_folder(root: &Path) -> PathBuf {
    root.join("records")
}
