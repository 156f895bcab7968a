//! A file of records, each found by the place where it begins.
//!
//! The file has no name any more once it is open: nobody else can change it, and whenever its process dies the system
//! takes its room back. What is read is compared with what was written by a checksum, and is read by calls, not through
//! a map: a disk that fails is then an error, and not the end of the process.

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

/// In front of a record: its length and its checksum.
const HEAD: usize = 8;
/// Bytes that are written, or read one after the other, at once.
const BLOCK: usize = 1 << 18;

/// Files of one process have different names, for as long as they have any.
static MADE: AtomicU64 = AtomicU64::new(0);

/// The file.
pub struct Spool {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    file: File,
    /// Bytes in the file.
    written: u64,
    /// Bytes behind them that are not in it yet.
    waiting: Vec<u8>,
}

impl Spool {
    /// An empty one, beside what is in this folder.
    pub fn new(folder: &Path) -> Result<Self> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        // Processes in containers may have the same number, and hardly the same moment.
        let moment = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
        let path = folder.join(format!(".spool-{}-{moment:x}-{number}", process::id()));
        let open = File::options().read(true).write(true).create_new(true).open(&path);
        let file = open.at("create", &path)?;
        fs::remove_file(&path).at("take its name from", &path)?;
        Ok(Spool { path, state: Mutex::new(State { file, written: 0, waiting: Vec::new() }) })
    }

    /// Writes a record behind the others; gives the place where it begins.
    pub fn push(&self, record: &[u8]) -> Result<u64> {
        let length = u32::try_from(record.len())
            .map_err(|_| Error::data(format!("a record of {} bytes is too long", record.len())))?;
        let mut state = self.state();
        let place = state.written + state.waiting.len() as u64;
        state.waiting.extend(length.to_le_bytes());
        state.waiting.extend(crc32fast::hash(record).to_le_bytes());
        state.waiting.extend(record);
        if state.waiting.len() >= BLOCK {
            self.flush(&mut state)?;
        }
        Ok(place)
    }

    /// Where the next record would begin.
    pub fn end(&self) -> u64 {
        let state = self.state();
        state.written + state.waiting.len() as u64
    }

    /// The record that begins at a place.
    pub fn read(&self, place: u64) -> Result<Vec<u8>> {
        let mut head = [0; HEAD];
        self.fill(place, &mut head)?;
        let (length, sum) = head_of(head);
        // A length that is damaged is not believed.
        if place + (HEAD + length) as u64 > self.end() {
            return Err(self.damaged(place));
        }
        let mut record = vec![0; length];
        self.fill(place + HEAD as u64, &mut record)?;
        match crc32fast::hash(&record) == sum {
            true => Ok(record),
            false => Err(self.damaged(place)),
        }
    }

    /// The records from one place to another, one after the other.
    pub fn records(&self, from: u64, to: u64) -> Records<'_> {
        Records { spool: self, block: Vec::new(), at: 0, next: from, end: to }
    }

    fn fill(&self, place: u64, bytes: &mut [u8]) -> Result<()> {
        let mut state = self.state();
        if place + bytes.len() as u64 > state.written {
            self.flush(&mut state)?;
        }
        state.file.seek(SeekFrom::Start(place)).at("read", &self.path)?;
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

    fn damaged(&self, place: u64) -> Error {
        Error::Corrupt {
            path: self.path.clone(),
            what: format!("the record at byte {place} is not what was written"),
            hint: "the disk gave other bytes than it took: check it, and run the same command again"
                .to_owned(),
        }
    }

    /// Puts other bytes in the place of what is there.
    #[cfg(test)]
    pub(super) fn damage(&self, place: u64) {
        let mut head = [0; HEAD + 1];
        self.fill(place, &mut head).unwrap();
        let mut state = self.state();
        state.file.seek(SeekFrom::Start(place + HEAD as u64)).unwrap();
        state.file.write_all(&[!head[HEAD]]).unwrap();
    }
}

fn head_of(head: [u8; HEAD]) -> (usize, u32) {
    let [a, b, c, d, sum @ ..] = head;
    (u32::from_le_bytes([a, b, c, d]) as usize, u32::from_le_bytes(sum))
}

/// Records one after the other, read by blocks.
pub struct Records<'s> {
    spool: &'s Spool,
    block: Vec<u8>,
    /// How far the block has been given.
    at: usize,
    /// The place behind the block.
    next: u64,
    end: u64,
}

impl Records<'_> {
    /// The next one.
    pub fn read_next(&mut self) -> Result<Option<Vec<u8>>> {
        if self.at == self.block.len() && self.next == self.end {
            return Ok(None);
        }
        let place = self.next - (self.block.len() - self.at) as u64;
        let mut head = [0; HEAD];
        head.copy_from_slice(self.take(place, HEAD)?);
        let (length, sum) = head_of(head);
        let record = self.take(place, length)?.to_vec();
        match crc32fast::hash(&record) == sum {
            true => Ok(Some(record)),
            false => Err(self.spool.damaged(place)),
        }
    }

    fn take(&mut self, place: u64, count: usize) -> Result<&[u8]> {
        let rest = self.block.len() - self.at;
        if rest < count {
            let more = (self.end - self.next).min(BLOCK.max(count - rest) as u64) as usize;
            if rest + more < count {
                return Err(self.spool.damaged(place));
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
        let places: Vec<u64> = (0..1_000).map(|n| spool.push(&record(n)).unwrap()).collect();
        for n in [999, 0, 500, 3, 998] {
            assert_eq!(spool.read(places[n]).unwrap(), record(n));
        }
        let mut records = spool.records(places[10], places[900]);
        for n in 10..900 {
            assert_eq!(records.read_next().unwrap(), Some(record(n)));
        }
        assert_eq!(records.read_next().unwrap(), None);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_damaged_record_is_an_error_and_no_other_record() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::new(folder.path()).unwrap();
        let places: Vec<u64> = (0..9).map(|n| spool.push(&[n; 100]).unwrap()).collect();
        spool.damage(places[4]);
        let e = spool.read(places[4]).unwrap_err();
        assert!(e.to_string().contains("is not what was written"), "{e}");
        assert!(spool.read(places[5]).is_ok());
        let mut records = spool.records(places[3], spool.end());
        assert!(records.read_next().is_ok() && records.read_next().is_err());
    }
}
