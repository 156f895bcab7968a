//! Directory tables: sorted, immutable files that are memory-mapped and shared by any number of processes.
//!
//! ```text
//! 0  magic "TWTBL\0\0\x01"
//! 8  number of entries, u64
//! 16 CRC-32 of the entries
//! 20 CRC-32 of bytes 0..20
//! 24 entries of 80 bytes, sorted by id key
//! ```

use std::{
    fs::File,
    io::{BufWriter, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use memmap2::Mmap;

use crate::{
    Position,
    frame::{key_at, u32_at, u64_at},
};
use turnwise_core::{Error, IdKey, IoContext, Result, Seq, files};

const MAGIC: [u8; 8] = *b"TWTBL\0\0\x01";
const HEADER_BYTES: usize = 24;
const ENTRY_BYTES: usize = 80;

/// Entry of the directory: a put or delete of a dialogue, with the position of its frame in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub id: IdKey,
    /// Hash of the texts and roles of all turns. Not used if `deleted` is true.
    pub text: IdKey,
    /// Hash of the dialogue's JSON. Not used if `deleted` is true.
    pub content: IdKey,
    pub seq: Seq,
    pub at: Position,
    pub turns: u32,
    /// Whether this entry is a delete.
    pub deleted: bool,
}

impl Entry {
    fn write(&self) -> [u8; ENTRY_BYTES] {
        let mut b = [0; ENTRY_BYTES];
        b[..16].copy_from_slice(&self.id.0);
        b[16..32].copy_from_slice(&self.text.0);
        b[32..48].copy_from_slice(&self.content.0);
        b[48..56].copy_from_slice(&self.seq.0.to_le_bytes());
        b[56..64].copy_from_slice(&self.at.offset.to_le_bytes());
        b[64..68].copy_from_slice(&self.at.segment.to_le_bytes());
        b[68..72].copy_from_slice(&self.turns.to_le_bytes());
        b[72] = u8::from(self.deleted);
        b
    }

    fn read(b: &[u8]) -> Self {
        Entry {
            id: key_at(b, 0),
            text: key_at(b, 16),
            content: key_at(b, 32),
            seq: Seq(u64_at(b, 48)),
            at: Position { segment: u32_at(b, 64), offset: u64_at(b, 56) },
            turns: u32_at(b, 68),
            deleted: b[72] != 0,
        }
    }
}

/// A memory-mapped directory table, whose entries are sorted by id key.
pub struct Table {
    path: PathBuf,
    map: Mmap,
}

impl Table {
    /// Memory-maps a table file and checks its header. Does not check the entries; use [`Table::verify`].
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).at("open", path)?;
        // SAFETY: a table is written completely before it gets its final name. After that, it never changes.
        let map = unsafe { Mmap::map(&file) }.at("map", path)?;
        let damaged = |what: &str| Err(Error::corrupt(path, what));
        if map.len() < HEADER_BYTES || map[..8] != MAGIC {
            return damaged("this is not a directory table");
        }
        if crc32fast::hash(&map[..20]).to_le_bytes() != map[20..24] {
            return damaged("the table's header is damaged");
        }
        let table = Table { path: path.to_owned(), map };
        if u64_at(&table.map, 8).checked_mul(ENTRY_BYTES as u64)
            != Some((table.map.len() - HEADER_BYTES) as u64)
        {
            return damaged("the table's length does not match its header");
        }
        Ok(table)
    }

    /// Writes a table. The entries must be sorted by id key, with one entry per id.
    pub fn write(path: &Path, entries: impl Iterator<Item = Entry>) -> Result<Self> {
        let temporary = files::temporary_path(path);
        let file = File::create(&temporary).at("create", &temporary)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let mut crc = crc32fast::Hasher::new();
        let mut count = 0u64;
        let put = |out: &mut BufWriter<File>, bytes: &[u8]| out.write_all(bytes).at("write", &temporary);
        put(&mut out, &[0; HEADER_BYTES])?;
        for entry in entries {
            let bytes = entry.write();
            crc.update(&bytes);
            put(&mut out, &bytes)?;
            count += 1;
        }
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..16].copy_from_slice(&count.to_le_bytes());
        header[16..20].copy_from_slice(&crc.finalize().to_le_bytes());
        let own = crc32fast::hash(&header[..20]);
        header[20..].copy_from_slice(&own.to_le_bytes());
        out.flush().at("write", &temporary)?;
        out.seek(SeekFrom::Start(0)).at("write", &temporary)?;
        out.write_all(&header).at("write", &temporary)?;
        let file = out.into_inner().map_err(|e| e.into_error()).at("write", &temporary)?;
        file.sync_all().at("flush", &temporary)?;
        std::fs::rename(&temporary, path).at("create", path)?;
        files::sync_parent(path)?;
        Table::open(path)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn len(&self) -> usize {
        (self.map.len() - HEADER_BYTES) / ENTRY_BYTES
    }

    fn slot(&self, n: usize) -> &[u8] {
        let at = HEADER_BYTES + n * ENTRY_BYTES;
        &self.map[at..at + ENTRY_BYTES]
    }

    /// Returns the entry of an id, or `None` if the table does not contain the id.
    pub fn get(&self, id: IdKey) -> Option<Entry> {
        // Interpolation search: keys are uniformly distributed, so start at the expected position of the key and double
        // the step size each time.
        let (mut low, mut high) = (0, self.len());
        let fraction = u64::from_be_bytes(id.0[..8].try_into().unwrap_or_default()) as f64 / u64::MAX as f64;
        let mut middle = ((high as f64 * fraction) as usize).min(high.saturating_sub(1));
        let mut width = 64;
        while low < high {
            let slot = self.slot(middle);
            match id.0.as_slice().cmp(&slot[..16]) {
                std::cmp::Ordering::Equal => return Some(Entry::read(slot)),
                std::cmp::Ordering::Less => {
                    high = middle;
                    middle = middle.saturating_sub(width).max(low);
                }
                std::cmp::Ordering::Greater => {
                    low = middle + 1;
                    middle = (middle + width).min(high.saturating_sub(1)).max(low);
                }
            }
            width *= 2;
            if high - low <= width {
                middle = low + (high - low) / 2;
            }
        }
        None
    }

    pub fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        (0..self.len()).map(|n| Entry::read(self.slot(n)))
    }

    /// Verifies the checksum and the order of the entries.
    pub fn verify(&self) -> Result<()> {
        if crc32fast::hash(&self.map[HEADER_BYTES..]).to_le_bytes() != self.map[16..20] {
            return Err(Error::corrupt(&self.path, "the checksum of the table's entries is wrong"));
        }
        if (1..self.len()).any(|n| self.slot(n - 1)[..16] >= self.slot(n)[..16]) {
            return Err(Error::corrupt(&self.path, "the table's entries are out of order"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: u64) -> Entry {
        Entry {
            id: IdKey::of(&n.to_string()),
            text: IdKey::of("t"),
            content: IdKey::of("c"),
            seq: Seq(n),
            at: Position { segment: 3, offset: n * 7 },
            turns: 9,
            deleted: n.is_multiple_of(5),
        }
    }

    #[test]
    fn finds_all_entries_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        for count in [0u64, 1, 2, 3, 1000] {
            let mut entries: Vec<_> = (0..count).map(entry).collect();
            entries.sort_by_key(|e| e.id);
            let table = Table::write(&dir.path().join("t"), entries.iter().copied()).unwrap();
            table.verify().unwrap();
            assert_eq!(table.len() as u64, count);
            assert!((0..count).all(|n| table.get(entry(n).id) == Some(entry(n))));
            assert!((count..count + 500).all(|n| table.get(entry(n).id).is_none()));
            assert!(table.get(IdKey([0; 16])).is_none() && table.get(IdKey([255; 16])).is_none());
        }
    }

    #[test]
    fn damage_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        drop(Table::write(&path, std::iter::once(entry(1))).unwrap());
        let good = std::fs::read(&path).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 4;
            std::fs::write(&path, &bad).unwrap();
            assert!(Table::open(&path).and_then(|t| t.verify()).is_err(), "byte {at}");
        }
        std::fs::write(&path, &good[..good.len() - 1]).unwrap();
        assert!(Table::open(&path).is_err());
    }
}
