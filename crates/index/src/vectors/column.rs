//! The vectors of one kind and their keys: two append-only files with fixed-width entries. A row is one vector.
//!
//! An entry of the key file consists of the key (16 bytes), the row number, the CRC-32 of the row's bytes, and the
//! CRC-32 of these three values. Damaged and misplaced entries are detected, and so are rows that do not belong to
//! their key.

use std::{
    fs::{File, OpenOptions},
    io::{BufWriter, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use memmap2::{Mmap, MmapOptions};

use crate::vectors::{Kind, sets};
use turnwise_core::{
    Verified,
    error::{Error, IoContext, Result},
    ids::IdKey,
};

pub(super) const ENTRY_BYTES: usize = 32;

pub(super) fn rows_path(set: &Path, kind: Kind) -> PathBuf {
    set.join(format!("{}.f32", kind.name()))
}

pub(super) fn keys_path(set: &Path, kind: Kind) -> PathBuf {
    set.join(format!("{}.keys", kind.name()))
}

fn entry(key: &IdKey, row: u64, row_crc: u32) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    entry[..16].copy_from_slice(&key.0);
    entry[16..24].copy_from_slice(&row.to_le_bytes());
    entry[24..28].copy_from_slice(&row_crc.to_le_bytes());
    let own = crc32fast::hash(&entry[..28]);
    entry[28..].copy_from_slice(&own.to_le_bytes());
    entry
}

/// Returns the key of entry `row` from the bytes of a key file; the zero key if there is no such entry.
pub(super) fn key_at(keys: &[u8], row: usize) -> IdKey {
    let at = row * ENTRY_BYTES;
    keys.get(at..at + 16).and_then(|b| b.try_into().ok()).map(IdKey).unwrap_or_default()
}

pub(super) struct ColumnWriter {
    rows_file: (PathBuf, BufWriter<File>),
    keys_file: (PathBuf, BufWriter<File>),
    /// Number of rows, including those that are not flushed.
    rows: u64,
    bytes: Vec<u8>,
}

impl ColumnWriter {
    /// Truncates the files to `rows` committed rows, and opens them for appending.
    pub(super) fn open(set: &Path, kind: Kind, dim: usize, rows: u64) -> Result<Self> {
        let open = |path: PathBuf, width: u64| {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .at("open", &path)?;
            let length = file.metadata().at("read", &path)?.len();
            let counts = rows * width;
            if length < counts {
                return Err(too_short(path, length, counts));
            }
            file.set_len(counts).at("write", &path)?;
            file.seek(SeekFrom::Start(counts)).at("write", &path)?;
            Ok((path, BufWriter::with_capacity(1 << 18, file)))
        };
        Ok(ColumnWriter {
            rows_file: open(rows_path(set, kind), dim as u64 * 4)?,
            keys_file: open(keys_path(set, kind), ENTRY_BYTES as u64)?,
            rows,
            bytes: Vec::with_capacity(dim * 4),
        })
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    pub(super) fn append(&mut self, key: &IdKey, row: &[f32]) -> Result<()> {
        self.bytes.clear();
        self.bytes.extend(row.iter().flat_map(|v| v.to_le_bytes()));
        let entry = entry(key, self.rows, crc32fast::hash(&self.bytes));
        let files = [(&mut self.rows_file, self.bytes.as_slice()), (&mut self.keys_file, &entry)];
        for ((path, file), bytes) in files {
            file.write_all(bytes).at("write", path)?;
        }
        self.rows += 1;
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        for (path, file) in [&mut self.rows_file, &mut self.keys_file] {
            file.flush().at("write", &*path)?;
            file.get_ref().sync_data().at("flush", &*path)?;
        }
        Ok(())
    }
}

/// Writes all rows of a kind to a new set. Returns the number of rows.
pub(super) fn write_all<'a>(
    set: &Path,
    kind: Kind,
    dim: usize,
    mut rows: impl Iterator<Item = Result<(IdKey, &'a [f32])>>,
) -> Result<u64> {
    let mut out = ColumnWriter::open(set, kind, dim, 0)?;
    rows.try_for_each(|row| row.and_then(|(key, vector)| out.append(&key, vector)))?;
    out.flush()?;
    Ok(out.rows())
}

fn too_short(path: PathBuf, length: u64, counts: u64) -> Error {
    sets::damaged(path, format!("it has {length} bytes, expected at least {counts}"))
}

/// The committed rows of a kind, memory-mapped. Rows appended later are not visible.
pub(super) struct Column {
    set: PathBuf,
    kind: Kind,
    dim: usize,
    count: usize,
    rows: Option<Mmap>,
    keys: Option<Mmap>,
    verified: Verified,
}

/// Location of a wrong checksum: the entry in the key file, or the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadChecksum {
    Entry,
    Row,
}

impl Column {
    pub(super) fn open(set: &Path, kind: Kind, dim: usize, rows: u64) -> Result<Self> {
        let count = usize::try_from(rows).map_err(|_| too_many())?;
        Ok(Column {
            set: set.to_owned(),
            kind,
            dim,
            count,
            rows: map(rows_path(set, kind), count.checked_mul(dim * 4).ok_or_else(too_many)?)?,
            keys: map(keys_path(set, kind), count.checked_mul(ENTRY_BYTES).ok_or_else(too_many)?)?,
            verified: Verified::new(count),
        })
    }

    /// Opens the rows like [`Column::open`]. If a file is too short for all rows, opens only the rows that both files
    /// contain.
    pub(super) fn open_available(set: &Path, kind: Kind, dim: usize, rows: u64) -> Result<Self> {
        let complete = |path: PathBuf, width: usize| {
            std::fs::metadata(path).map_or(0, |metadata| metadata.len() / width as u64)
        };
        let rows = rows.min(complete(rows_path(set, kind), dim * 4));
        let rows = rows.min(complete(keys_path(set, kind), ENTRY_BYTES));
        Column::open(set, kind, dim, rows)
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn keys(&self) -> &[u8] {
        self.keys.as_deref().unwrap_or_default()
    }

    pub(super) fn key(&self, row: usize) -> IdKey {
        key_at(self.keys(), row)
    }

    fn row_bytes(&self, row: usize) -> &[u8] {
        let width = self.dim * 4;
        self.rows.as_deref().and_then(|b| b.get(row * width..(row + 1) * width)).unwrap_or_default()
    }

    /// Returns the values of all vectors, row after row, as one slice. Does not verify checksums.
    pub(super) fn flat(&self) -> &[f32] {
        numbers(self.rows.as_deref().unwrap_or_default())
    }

    /// Returns a row after verifying the checksums of the row and of its key entry.
    pub(super) fn checked(&self, row: usize) -> Result<&[f32], BadChecksum> {
        let at = row * ENTRY_BYTES;
        let found = self.keys().get(at..at + ENTRY_BYTES).ok_or(BadChecksum::Entry)?;
        let row_crc = found[24..28].try_into().map_or(0, u32::from_le_bytes);
        if *found != entry(&self.key(row), row as u64, row_crc) {
            return Err(BadChecksum::Entry);
        }
        let bytes = self.row_bytes(row);
        if bytes.is_empty() || crc32fast::hash(bytes) != row_crc {
            return Err(BadChecksum::Row);
        }
        Ok(numbers(bytes))
    }

    /// Returns a row. Verifies its checksums if this `Column` has not verified them before. The error names the damaged
    /// file.
    pub(super) fn get(&self, row: usize) -> Result<&[f32]> {
        self.verified.once(row, || self.checked(row).map(drop)).map_err(|wrong| {
            let path = match wrong {
                BadChecksum::Entry => keys_path(&self.set, self.kind),
                BadChecksum::Row => rows_path(&self.set, self.kind),
            };
            sets::damaged(path, format!("the checksum of row {row} is wrong"))
        })?;
        Ok(numbers(self.row_bytes(row)))
    }
}

fn too_many() -> Error {
    Error::data("the index has more vectors than this machine can address")
}

fn map(path: PathBuf, counts: usize) -> Result<Option<Mmap>> {
    if counts == 0 {
        return Ok(None);
    }
    let file = match File::open(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(sets::damaged(path, "this file is missing"));
        }
        other => other.at("open", &path)?,
    };
    let length = file.metadata().at("read", &path)?.len();
    if length < counts as u64 {
        return Err(too_short(path, length, counts as u64));
    }
    // SAFETY: committed rows never change, and writers truncate only uncommitted rows.
    let map = unsafe { MmapOptions::new().len(counts).map(&file) }.at("map", &path)?;
    Ok(Some(map))
}

/// Reinterprets little-endian bytes as `f32` values without copying.
fn numbers(bytes: &[u8]) -> &[f32] {
    const {
        assert!(cfg!(target_endian = "little"), "the files are little-endian and are used without conversion")
    };
    // SAFETY: every bit pattern is a valid f32. Maps are page-aligned and rows are whole f32 values, so the
    // alignment leaves no remainder.
    let (before, numbers, after) = unsafe { bytes.align_to::<f32>() };
    assert!(before.is_empty() && after.is_empty());
    numbers
}
