//! Lookup table from key to row: an open-addressing hash table in a file, so that the keys need not be in memory.
//!
//! ```text
//! 0  magic "TWVTB\0\0\x01"
//! 8  number of rows covered, u64
//! 16 number of slots, u64, a power of two
//! 24 key of the last row covered
//! 40 CRC-32 of the slots
//! 44 CRC-32 of bytes 0..44
//! 48 slots of 8 bytes: 32 bits of the key in the upper half, row + 1 in the lower; 0 is empty
//! ```
//!
//! The table may cover fewer rows than the key file. The other keys are kept in memory; when there are too many, the
//! table is rebuilt. A table that is missing or damaged, or that belongs to other rows, is rebuilt too.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read},
    path::{Path, PathBuf},
};

use memmap2::{Mmap, MmapMut};

use crate::vectors::{
    Kind,
    column::{self, Column},
};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
    ids::IdKey,
};
use turnwise_store::KeyMap;

const MAGIC: [u8; 8] = *b"TWVTB\0\0\x01";
const HEADER_BYTES: usize = 48;
const SLOT_BYTES: usize = 8;
/// Number of keys in memory at which the table is rebuilt. Keys that are not in the table are kept in memory.
const MOST_IN_MEMORY: usize = 1 << 20;

pub(super) fn path(set: &Path, kind: Kind) -> PathBuf {
    set.join(format!("{}.table", kind.name()))
}

enum Slots {
    Mapped(Mmap),
    /// Table in memory, for a reader without a usable table file. Readers must not write files.
    InMemory(Vec<u8>),
}

/// Lookup of the row of a key, in the table or among newer rows.
pub(super) struct Lookup {
    covered: usize,
    slots: Slots,
    /// Rows that the table does not cover, committed or not.
    newer: KeyMap<u32>,
}

impl Lookup {
    /// Opens the table for a reader: maps the file, or builds a table in memory if the file is missing or unusable.
    pub(super) fn open(set: &Path, kind: Kind, column: &Column) -> Result<Self> {
        let (covered, slots) = match Self::map(&path(set, kind), column) {
            Some((covered, map)) => (covered, Slots::Mapped(map)),
            None => {
                let mut bytes = vec![0; slots_for(column.count())? * SLOT_BYTES];
                fill(&mut bytes, column.keys(), column.count());
                (column.count(), Slots::InMemory(bytes))
            }
        };
        let newer = (covered..column.count()).map(|row| (column.key(row), row as u32)).collect();
        Ok(Lookup { covered, slots, newer })
    }

    /// Opens the table for the writer. Verifies the whole file, and rebuilds it if it is damaged or missing.
    pub(super) fn open_checked(set: &Path, kind: Kind, column: &Column) -> Result<Self> {
        let path = path(set, kind);
        let sound = Self::map(&path, column).is_some_and(|(_, map)| slots_are_sound(&map));
        if !sound && column.count() > 0 {
            write(&path, column)?;
        }
        Self::open(set, kind, column)
    }

    fn map(path: &Path, column: &Column) -> Option<(usize, Mmap)> {
        let file = fs::File::open(path).ok()?;
        // SAFETY: a table is written once under a temporary name, and never changed after that.
        let map = unsafe { Mmap::map(&file) }.ok()?;
        let covered = header(&map)?;
        let fits = covered > 0
            && covered <= column.count()
            && map[24..40] == column.key(covered - 1).0
            && (map.len() - HEADER_BYTES).is_multiple_of(SLOT_BYTES);
        fits.then_some((covered, map))
    }

    pub(super) fn find(&self, key: &IdKey, keys: &[u8]) -> Option<u32> {
        if let Some(row) = self.newer.get(key) {
            return Some(*row);
        }
        let slots = match &self.slots {
            Slots::Mapped(map) => &map[HEADER_BYTES..],
            Slots::InMemory(bytes) => bytes,
        };
        find(slots, keys, key)
    }

    pub(super) fn add(&mut self, key: IdKey, row: u32) {
        self.newer.insert(key, row);
    }

    /// Returns true if the table should be rebuilt, because it lacks too many rows. At the end of a write
    /// (`at_the_end`), the limit is lower, because readers open the table next.
    pub(super) fn is_behind(&self, at_the_end: bool) -> bool {
        let allowed =
            if at_the_end { (self.covered / 8).clamp(4096, MOST_IN_MEMORY) } else { MOST_IN_MEMORY };
        self.newer.len() >= allowed
    }
}

/// Returns the number of rows that a table covers; `None` if its header or its length is wrong.
fn header(map: &[u8]) -> Option<usize> {
    if map.len() < HEADER_BYTES
        || map[..8] != MAGIC
        || crc32fast::hash(&map[..44]).to_le_bytes() != map[44..48]
    {
        return None;
    }
    let number = |at: usize| map[at..at + 8].try_into().ok().map(u64::from_le_bytes);
    let slots = usize::try_from(number(16)?).ok()?;
    let fits = slots.is_power_of_two() && map.len() == HEADER_BYTES + slots.checked_mul(SLOT_BYTES)?;
    fits.then_some(usize::try_from(number(8)?).ok()?)
}

fn slots_are_sound(map: &[u8]) -> bool {
    crc32fast::hash(&map[HEADER_BYTES..]).to_le_bytes() == map[40..44]
}

/// Verifies the table file of a kind. Returns its path and the damage; `None` if it is undamaged or missing.
pub(super) fn check(set: &Path, kind: Kind, column: &Column) -> Option<(PathBuf, &'static str)> {
    let path = path(set, kind);
    let bytes = fs::metadata(&path).ok()?.len();
    let wrong = match Lookup::map(&path, column) {
        None if bytes == 0 => "the table is empty",
        None => "the table's header is damaged, or the table belongs to other rows",
        Some((_, map)) if !slots_are_sound(&map) => "the checksum of the table's slots is wrong",
        Some(_) => return None,
    };
    Some((path, wrong))
}

/// Returns the number of slots that a table of `rows` rows has.
fn slots_for(rows: usize) -> Result<usize> {
    if rows >= u32::MAX as usize {
        return Err(Error::data("more than four billion vectors in one index"));
    }
    // The table is at most two thirds full, to keep lookups short.
    Ok((rows + rows / 2 + 1).next_power_of_two())
}

/// Returns two parts of a key, which is a hash. The first part determines the slot where a lookup starts. The second
/// part is stored in the slot.
fn parts(key: &IdKey) -> (u64, u32) {
    let half = key.0[..8].try_into().map_or(0, u64::from_le_bytes);
    let tag = key.0[8..12].try_into().map_or(0, u32::from_le_bytes);
    (half, tag)
}

fn slot(slots: &[u8], at: usize) -> u64 {
    slots[at * SLOT_BYTES..(at + 1) * SLOT_BYTES].try_into().map_or(0, u64::from_le_bytes)
}

fn find(slots: &[u8], keys: &[u8], key: &IdKey) -> Option<u32> {
    let count = slots.len() / SLOT_BYTES;
    let (start, tag) = parts(key);
    // A damaged table may have no empty slot: stop after visiting each slot once.
    for step in 0..count as u64 {
        let value = slot(slots, (start.wrapping_add(step) as usize) & (count - 1));
        let row = (value as u32).checked_sub(1)?;
        if (value >> 32) as u32 == tag && column::key_at(keys, row as usize) == *key {
            return Some(row);
        }
    }
    None
}

/// Inserts the keys of the first `rows` rows into `slots`, which must be empty.
fn fill(slots: &mut [u8], keys: &[u8], rows: usize) {
    let mask = slots.len() / SLOT_BYTES - 1;
    for row in 0..rows {
        let (start, tag) = parts(&column::key_at(keys, row));
        let mut at = start as usize & mask;
        while slot(slots, at) != 0 {
            at = (at + 1) & mask;
        }
        let value = u64::from(tag) << 32 | (row as u64 + 1);
        slots[at * SLOT_BYTES..(at + 1) * SLOT_BYTES].copy_from_slice(&value.to_le_bytes());
    }
}

/// Writes the table of all rows of a column to a file.
pub(super) fn write(path: &Path, column: &Column) -> Result<()> {
    let temporary = files::temporary_path(path);
    let slots = slots_for(column.count())?;
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&temporary)
        .at("create", &temporary)?;
    // Write zeros instead of extending the file: a full disk is then an error here. Otherwise, writing to the
    // map would crash the process.
    let length = HEADER_BYTES + slots * SLOT_BYTES;
    io::copy(&mut io::repeat(0).take(length as u64), &mut file).at("write", &temporary)?;
    // SAFETY: the file is new, and no other process knows its temporary name.
    let mut map = unsafe { MmapMut::map_mut(&file) }.at("map", &temporary)?;
    fill(&mut map[HEADER_BYTES..], column.keys(), column.count());
    let crc = crc32fast::hash(&map[HEADER_BYTES..]);
    map[..8].copy_from_slice(&MAGIC);
    map[8..16].copy_from_slice(&(column.count() as u64).to_le_bytes());
    map[16..24].copy_from_slice(&(slots as u64).to_le_bytes());
    map[24..40].copy_from_slice(&column.key(column.count().saturating_sub(1)).0);
    map[40..44].copy_from_slice(&crc.to_le_bytes());
    let own = crc32fast::hash(&map[..44]);
    map[44..48].copy_from_slice(&own.to_le_bytes());
    map.flush().at("flush", &temporary)?;
    drop(map);
    file.sync_all().at("flush", &temporary)?;
    fs::rename(&temporary, path).at("create", path)?;
    files::sync_parent(path)
}
