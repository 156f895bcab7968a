//! The append-only log, the source of truth of an index. It consists of segments of about 64 MB.
//!
//! A batch of frames ends with a commit frame. The batch is written in one call and flushed to disk. Only then is it
//! acknowledged. Full segments never change.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use memmap2::{Mmap, MmapOptions};

use crate::frame::{self, Frame, Kind};
use turnwise_core::{Error, IoContext, Result, Verified, files};

/// Default segment size in bytes. A segment of at least this size is full, and the next batch starts a new segment.
pub const SEGMENT_BYTES: u64 = 64_000_000;
/// Size of a segment's header in bytes. The first frame follows the header.
pub const SEGMENT_HEADER_BYTES: u64 = 16;
const SEGMENT_MAGIC: [u8; 8] = *b"TWLOG\0\0\x01";

/// A byte position in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Position {
    /// Segment number, starting at 1.
    pub segment: u32,
    /// Byte offset in the segment.
    pub offset: u64,
}

impl Position {
    /// Position of the first frame of the log.
    pub const START: Position = Position { segment: 1, offset: SEGMENT_HEADER_BYTES };
}

pub fn segment_path(log: &Path, segment: u32) -> PathBuf {
    log.join(format!("{segment:08}.log"))
}

/// Returns the numbers of the existing segments in ascending order. A gap in the numbers means damage.
pub fn segments(log: &Path) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(log).at("read", log)? {
        let name = entry.at("read", log)?.file_name();
        let number = name.to_str().and_then(|n| n.strip_suffix(".log")).and_then(|n| n.parse::<u32>().ok());
        found.extend(number);
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns a message for a log that has lost its last batches. Batch `last` is the last one in the log, but sled or a
/// checkpoint contains the later batch `committed`.
pub fn ends_early(last: u64, committed: u64) -> String {
    format!("the log ends with batch {last}, but batch {committed} had been committed")
}

fn header(segment: u32) -> [u8; SEGMENT_HEADER_BYTES as usize] {
    let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
    bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
    bytes[8..12].copy_from_slice(&segment.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..12]);
    bytes[12..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The bytes of a segment, memory-mapped or read into memory. Bytes appended later are not visible.
pub struct Segment {
    path: PathBuf,
    number: u32,
    /// File offset of the first byte in `bytes`.
    base: u64,
    bytes: Bytes,
    /// Records that were verified, by their offset divided by [`PUT_BYTES`].
    verified: Verified,
}

/// Minimum size of a put frame in bytes. Offsets of two put frames differ by at least this number.
const PUT_BYTES: u64 = (frame::HEADER_BYTES + frame::PUT_PREFIX_BYTES) as u64;

enum Bytes {
    Mapped(Mmap),
    Read(Vec<u8>),
}

impl Segment {
    /// Memory-maps the first `limit` bytes of a segment. Does not check the header of the segment. While a writer is
    /// active, `limit` must exclude uncommitted bytes, because the writer can truncate them.
    pub(super) fn map(log: &Path, number: u32, limit: u64) -> Result<Self> {
        let path = segment_path(log, number);
        let file = File::open(&path).at("open", &path)?;
        let length = file.metadata().at("read", &path)?.len().min(limit);
        // A crash can leave a new segment without a complete header. Such a segment has no frames.
        if length < SEGMENT_HEADER_BYTES {
            return Ok(Segment {
                path,
                number,
                base: 0,
                bytes: Bytes::Read(Vec::new()),
                verified: Verified::default(),
            });
        }
        // SAFETY: committed bytes never change. Callers map uncommitted bytes only while they hold the writer lock.
        let map = unsafe { MmapOptions::new().len(length as usize).map(&file) }.at("map", &path)?;
        let verified = Verified::new((length / PUT_BYTES) as usize + 1);
        Ok(Segment { path, number, base: 0, bytes: Bytes::Mapped(map), verified })
    }

    /// Returns an error if the segment's header is damaged. Accepts a segment that ends inside its header.
    pub(super) fn check_header(&self) -> Result<()> {
        match self.bytes().get(..SEGMENT_HEADER_BYTES as usize) {
            Some(start) if start != header(self.number) => {
                Err(Error::corrupt(&self.path, "the segment's header is damaged"))
            }
            _ => Ok(()),
        }
    }

    /// Reads a segment into memory, from offset `from` to its current end. Unlike a memory map, this is safe for bytes
    /// that a writer may still truncate.
    pub fn read(log: &Path, number: u32, from: u64) -> Result<Self> {
        let path = segment_path(log, number);
        let mut file = File::open(&path).at("open", &path)?;
        let mut start = [0; SEGMENT_HEADER_BYTES as usize];
        let mut bytes = Vec::new();
        if file.metadata().at("read", &path)?.len() >= SEGMENT_HEADER_BYTES {
            file.read_exact(&mut start).at("read", &path)?;
            if start != header(number) {
                return Err(Error::corrupt(path, "the segment's header is damaged"));
            }
            file.seek(SeekFrom::Start(from)).at("read", &path)?;
            file.read_to_end(&mut bytes).at("read", &path)?;
        }
        Ok(Segment { path, number, base: from, bytes: Bytes::Read(bytes), verified: Verified::default() })
    }

    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map,
            Bytes::Read(bytes) => bytes,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the offset in the segment file at which the loaded bytes end (exclusive).
    pub fn end(&self) -> u64 {
        self.base + self.bytes().len() as u64
    }

    /// Reads the frame at an offset. Returns [`Error::Corrupt`] if there is no valid frame.
    pub fn frame_at(&self, offset: u64) -> Result<Frame<'_>> {
        self.frame_with(offset, Frame::read)
    }

    /// Reads the put frame at an offset. Verifies its checksum only if this `Segment` has not verified it before.
    pub(super) fn record_at(&self, offset: u64) -> Result<Frame<'_>> {
        self.verified.once((offset / PUT_BYTES) as usize, || self.frame_at(offset).map(drop))?;
        self.frame_with(offset, Frame::read_unverified)
    }

    fn frame_with<'a>(
        &'a self,
        offset: u64,
        read: impl FnOnce(&'a [u8]) -> Result<Frame<'a>, &'static str>,
    ) -> Result<Frame<'a>> {
        let at = offset.checked_sub(self.base).and_then(|at| usize::try_from(at).ok());
        let bytes = at.and_then(|at| self.bytes().get(at..)).unwrap_or_default();
        read(bytes).map_err(|why| Error::corrupt(&self.path, format!("at byte {offset}: {why}")))
    }

    /// Returns an iterator over the frames from an offset to the end of the segment, with the offset of each frame. The
    /// iterator stops after an error.
    pub fn frames(&self, from: u64) -> Frames<'_> {
        Frames { segment: self, next: Some(from), end: self.end(), skips_damage: false }
    }

    /// Returns the offset of the next [`frame::MAGIC`] at or after an offset. Used to continue after a damaged frame.
    fn next_frame(&self, offset: u64) -> Option<u64> {
        let at = offset.saturating_sub(self.base) as usize;
        let rest = self.bytes().get(at..)?;
        memchr::memmem::find(rest, &frame::MAGIC).map(|found| self.base + (at + found) as u64)
    }

    /// Returns whether there is a readable commit frame at or after `offset`. Skips damaged frames.
    pub fn has_commit_after(&self, offset: u64) -> bool {
        let mut frames = self.frames(offset).skipping_damage();
        frames.any(|(_, frame)| frame.is_ok_and(|frame| frame.kind == Kind::Commit))
    }
}

/// Iterator over the frames of a segment. See [`Segment::frames`].
pub struct Frames<'a> {
    segment: &'a Segment,
    next: Option<u64>,
    end: u64,
    skips_damage: bool,
}

impl Frames<'_> {
    /// Makes the iterator continue after an error, at the next [`frame::MAGIC`].
    pub fn skipping_damage(self) -> Self {
        Frames { skips_damage: true, ..self }
    }

    /// Sets the offset at which the iterator stops (exclusive). The iterator yields an error if the segment is shorter.
    pub fn up_to(self, end: u64) -> Self {
        Frames { end, ..self }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = (u64, Result<Frame<'a>>);

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.next.filter(|offset| *offset < self.end)?;
        let frame = self.segment.frame_at(offset);
        self.next = match &frame {
            Ok(frame) => Some(offset + frame.bytes()),
            Err(_) if self.skips_damage => self.segment.next_frame(offset + 1),
            Err(_) => None,
        };
        Some((offset, frame))
    }
}

/// The log, open for appending.
#[derive(Debug)]
pub struct LogWriter {
    log: PathBuf,
    file: File,
    path: PathBuf,
    end: Position,
    segment_bytes: u64,
}

impl LogWriter {
    pub fn create(log: &Path) -> Result<Self> {
        fs::create_dir_all(log).at("create", log)?;
        LogWriter::begin(log, 1)
    }

    /// Opens the log for appending at `end`. Removes everything after `end`, which can only be an incomplete batch that
    /// was never acknowledged. Returns [`Error::Corrupt`] if the log ends before `end`.
    pub fn open(log: &Path, end: Position) -> Result<Self> {
        for later in segments(log)?.into_iter().filter(|&s| s > end.segment) {
            let path = segment_path(log, later);
            fs::remove_file(&path).at("remove", &path)?;
        }
        let path = segment_path(log, end.segment);
        let file = OpenOptions::new().write(true).open(&path).at("open", &path)?;
        let length = file.metadata().at("read", &path)?.len();
        if length < end.offset && end.offset > SEGMENT_HEADER_BYTES {
            let what =
                format!("the file ends at byte {length}, but the last checkpoint is at byte {}", end.offset);
            return Err(Error::corrupt(path, what));
        }
        if length < SEGMENT_HEADER_BYTES {
            return LogWriter::begin(log, end.segment);
        }
        if length > end.offset {
            file.set_len(end.offset).at("cut", &path)?;
            file.sync_all().at("flush", &path)?;
        }
        files::sync_folder(log)?;
        let mut writer = LogWriter { log: log.to_owned(), file, path, end, segment_bytes: SEGMENT_BYTES };
        writer.seek_to_end()?;
        Ok(writer)
    }

    fn begin(log: &Path, segment: u32) -> Result<Self> {
        let path = segment_path(log, segment);
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).open(&path).at("create", &path)?;
        file.write_all(&header(segment)).at("write", &path)?;
        file.sync_all().at("flush", &path)?;
        files::sync_folder(log)?;
        let end = Position { segment, offset: SEGMENT_HEADER_BYTES };
        Ok(LogWriter { log: log.to_owned(), file, path, end, segment_bytes: SEGMENT_BYTES })
    }

    fn seek_to_end(&mut self) -> Result<()> {
        self.file.seek(SeekFrom::Start(self.end.offset)).at("seek in", &self.path)?;
        Ok(())
    }

    /// Returns the position at which the next batch will start. Starts a new segment if the current segment is full.
    pub fn next_position(&mut self) -> Result<Position> {
        if self.is_full() {
            let segment_bytes = self.segment_bytes;
            *self = LogWriter { segment_bytes, ..LogWriter::begin(&self.log, self.end.segment + 1)? };
        }
        Ok(self.end)
    }

    /// Returns whether the current segment is full. If so, the next batch starts a new segment.
    pub fn is_full(&self) -> bool {
        self.end.offset >= self.segment_bytes
    }

    pub fn set_segment_bytes(&mut self, bytes: u64) {
        self.segment_bytes = bytes;
    }

    /// Appends a whole batch and flushes it to disk. On failure, for example a full disk, tries to truncate the log
    /// to its previous end.
    pub fn append(&mut self, batch: &[u8]) -> Result<()> {
        let written = self.file.write_all(batch).and_then(|()| self.file.sync_data());
        if written.is_err() {
            let _ = self.file.set_len(self.end.offset);
            self.seek_to_end()?;
        }
        written.at("write", &self.path)?;
        self.end.offset += batch.len() as u64;
        Ok(())
    }

    /// Returns the position after the last appended batch.
    pub fn end(&self) -> Position {
        self.end
    }
}

/// The memory-mapped segments of a log up to a position. They are mapped when a snapshot is opened, because a
/// compaction may later remove the files. A mapped file remains readable after it is removed.
pub(super) struct Segments {
    log: PathBuf,
    mapped: Mutex<HashMap<u32, Arc<Segment>>>,
    is_complete: bool,
}

impl Segments {
    /// Maps all segments up to `end`, the committed end of the log. Skips missing segments; [`Segments::get`] returns
    /// an error for them.
    pub(super) fn map(log: &Path, end: Position) -> Result<Self> {
        let mut mapped = HashMap::new();
        let mut is_complete = true;
        for number in 1..=end.segment {
            match open(log, number, end) {
                Ok(segment) => drop(mapped.insert(number, Arc::new(segment))),
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    is_complete = false
                }
                Err(e) => return Err(e),
            }
        }
        Ok(Segments { log: log.to_owned(), mapped: Mutex::new(mapped), is_complete })
    }

    /// Returns whether [`Segments::map`] found all segments.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns a segment and checks its header. Maps the segment if necessary. `end` is the committed end of the log.
    pub(super) fn get(&self, number: u32, end: Position) -> Result<Arc<Segment>> {
        let known = self.lock().get(&number).cloned();
        let segment = match known {
            Some(segment) => segment,
            None => {
                let segment = Arc::new(open(&self.log, number, end)?);
                self.lock().insert(number, segment.clone());
                segment
            }
        };
        segment.check_header()?;
        Ok(segment)
    }

    /// Removes a segment from the cache. Called after a commit to the segment, so that the next [`Segments::get`] maps
    /// it with the new frames.
    pub(super) fn forget(&self, number: u32) {
        self.lock().remove(&number);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Arc<Segment>>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Maps the committed part of a segment. `end` is the committed end of the log. Leaves out the uncommitted bytes,
/// because a writer may truncate them at any time.
fn open(log: &Path, number: u32, end: Position) -> Result<Segment> {
    Segment::map(log, number, if number == end.segment { end.offset } else { u64::MAX })
}
