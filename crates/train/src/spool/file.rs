//! Temporary file of records, addressed by byte offset.
//!
//! The file is removed from its folder as soon as it is open. Other processes cannot open it by path, and the operating
//! system frees its space when the process ends. The file is read by system calls, not memory-mapped, so that a disk
//! failure returns an error and does not kill the process.

use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    process,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use turnwise_core::error::{Error, IoContext, Result};

/// Size of a record header in bytes: the length and the checksum, four bytes each.
const HEAD: usize = 8;
/// Buffer size for writes and sequential reads, in bytes.
const BLOCK: usize = 1 << 18;

/// Number of files that this process has created, for unique file names.
static CREATED: AtomicU64 = AtomicU64::new(0);

/// Temporary file of records, with a checksum for each record.
pub struct Spool {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    file: File,
    /// Number of bytes in the file.
    written: u64,
    /// Write buffer: bytes that are not yet in the file.
    waiting: Vec<u8>,
}

impl Spool {
    /// Creates an empty temporary file in `folder`.
    pub fn new(folder: &Path) -> Result<Self> {
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        // Processes in different containers can have the same id, so the name also contains the time.
        let moment = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
        let path = folder.join(format!(".spool-{}-{moment:x}-{number}", process::id()));
        let open = File::options().read(true).write(true).create_new(true).open(&path);
        let file = open.at("create", &path)?;
        fs::remove_file(&path).at("unlink", &path)?;
        Ok(Spool { path, state: Mutex::new(State { file, written: 0, waiting: Vec::new() }) })
    }

    /// Appends a record. Returns its offset.
    pub fn push(&self, record: &[u8]) -> Result<u64> {
        let length = u32::try_from(record.len()).map_err(|_| {
            Error::data(format!("a record of {} bytes is too long: the maximum is 4 GiB", record.len()))
        })?;
        let mut state = self.state();
        let offset = state.written + state.waiting.len() as u64;
        state.waiting.extend(length.to_le_bytes());
        state.waiting.extend(crc32fast::hash(record).to_le_bytes());
        state.waiting.extend(record);
        if state.waiting.len() >= BLOCK {
            self.flush(&mut state)?;
        }
        Ok(offset)
    }

    /// Offset that the next appended record will have.
    pub fn end(&self) -> u64 {
        let state = self.state();
        state.written + state.waiting.len() as u64
    }

    /// Reads the record at an offset. Returns an error if the record is damaged.
    pub fn read(&self, offset: u64) -> Result<Vec<u8>> {
        let mut head = [0; HEAD];
        self.fill(offset, &mut head)?;
        let (length, sum) = parse_head(head);
        // Check the length before the allocation, because it could be corrupt.
        if offset + (HEAD + length) as u64 > self.end() {
            return Err(self.damaged(offset));
        }
        let mut record = vec![0; length];
        self.fill(offset + HEAD as u64, &mut record)?;
        self.verified(record, sum, offset)
    }

    /// Returns the record if its checksum is `sum`, otherwise an error.
    fn verified(&self, record: Vec<u8>, sum: u32, offset: u64) -> Result<Vec<u8>> {
        match crc32fast::hash(&record) == sum {
            true => Ok(record),
            false => Err(self.damaged(offset)),
        }
    }

    /// Returns a reader of the records between two offsets.
    pub fn records(&self, from: u64, to: u64) -> Records<'_> {
        Records { spool: self, block: Vec::new(), at: 0, next: from, end: to }
    }

    /// Reads bytes from the file, starting at an offset, until `bytes` is full. If some of these bytes are still in the
    /// write buffer, flushes the buffer first.
    fn fill(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let mut state = self.state();
        if offset + bytes.len() as u64 > state.written {
            self.flush(&mut state)?;
        }
        state.file.seek(SeekFrom::Start(offset)).at("read", &self.path)?;
        state.file.read_exact(bytes).at("read", &self.path)
    }

    fn flush(&self, state: &mut State) -> Result<()> {
        let State { file, written, waiting } = state;
        file.seek(SeekFrom::Start(*written)).at("write", &self.path)?;
        file.write_all(waiting).at("write", &self.path)?;
        *written += waiting.len() as u64;
        waiting.clear();
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn damaged(&self, offset: u64) -> Error {
        let what = format!("the checksum of the record at byte {offset} does not match");
        Error::corrupt(&self.path, what)
            .with_hint("the disk returned wrong data: check the disk, then run the same command again")
    }

    /// Corrupts the record at an offset.
    #[cfg(test)]
    pub(super) fn damage(&self, offset: u64) {
        let mut head = [0; HEAD + 1];
        self.fill(offset, &mut head).unwrap();
        let mut state = self.state();
        state.file.seek(SeekFrom::Start(offset + HEAD as u64)).unwrap();
        state.file.write_all(&[!head[HEAD]]).unwrap();
    }
}

/// Returns the length of a record and its checksum.
fn parse_head(head: [u8; HEAD]) -> (usize, u32) {
    let [a, b, c, d, sum @ ..] = head;
    (u32::from_le_bytes([a, b, c, d]) as usize, u32::from_le_bytes(sum))
}

/// Sequential reader of records.
pub struct Records<'s> {
    spool: &'s Spool,
    /// Bytes that were read from the file.
    block: Vec<u8>,
    /// Read position in the block.
    at: usize,
    /// Offset of the next block.
    next: u64,
    /// Offset of the end of the last record.
    end: u64,
}

impl Records<'_> {
    /// Reads the next record. Returns `None` at the end.
    pub fn read_next(&mut self) -> Result<Option<Vec<u8>>> {
        if self.at == self.block.len() && self.next == self.end {
            return Ok(None);
        }
        let offset = self.next - (self.block.len() - self.at) as u64;
        let mut head = [0; HEAD];
        head.copy_from_slice(self.take(offset, HEAD)?);
        let (length, sum) = parse_head(head);
        let record = self.take(offset, length)?.to_vec();
        self.spool.verified(record, sum, offset).map(Some)
    }

    /// Returns the next `count` bytes of the record at `offset`.
    fn take(&mut self, offset: u64, count: usize) -> Result<&[u8]> {
        let rest = self.block.len() - self.at;
        if rest < count {
            let more = (self.end - self.next).min(BLOCK.max(count - rest) as u64) as usize;
            if rest + more < count {
                return Err(self.spool.damaged(offset));
            }
            self.block.drain(..self.at);
            self.at = 0;
            self.block.resize(rest + more, 0);
            self.spool.fill(self.next, &mut self.block[rest..])?;
            self.next += more as u64;
        }
        self.at += count;
        Ok(&self.block[self.at - count..self.at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_in_any_order_and_leave_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::new(folder.path()).unwrap();
        let record = |n: usize| vec![n as u8; n * 37 % 5_000];
        let offsets: Vec<u64> = (0..1_000).map(|n| spool.push(&record(n)).unwrap()).collect();
        for n in [999, 0, 500, 3, 998] {
            assert_eq!(spool.read(offsets[n]).unwrap(), record(n));
        }
        let mut records = spool.records(offsets[10], offsets[900]);
        for n in 10..900 {
            assert_eq!(records.read_next().unwrap(), Some(record(n)));
        }
        assert_eq!(records.read_next().unwrap(), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_the_damaged_record_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::new(folder.path()).unwrap();
        let offsets: Vec<u64> = (0..9).map(|n| spool.push(&[n; 100]).unwrap()).collect();
        spool.damage(offsets[4]);
        let e = spool.read(offsets[4]).unwrap_err();
        assert!(e.to_string().contains("does not match"), "{e}");
        assert!(spool.read(offsets[5]).is_ok());
        let mut records = spool.records(offsets[3], spool.end());
        assert!(records.read_next().is_ok() && records.read_next().is_err());
    }
}
