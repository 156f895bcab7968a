//! Tables that map the rows of a graph to dialogues and turns.

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use memmap2::Mmap;

use turnwise_core::{
    error::{IoContext, Result},
    ids::{IdKey, Seq, TurnNo},
};

const DIALOGUE_BYTES: usize = 24;
const UTTERANCE_BYTES: usize = 8;

/// A memory-mapped table with entries of a fixed size.
pub(super) struct Table {
    map: Mmap,
    entry: usize,
}

impl Table {
    /// Maps a table, and checks that it has this number of entries.
    fn open(path: &Path, entry: usize, entries: u64) -> Result<Self> {
        let file = File::open(path).at("open", path)?;
        // SAFETY: files of a generation never change.
        let map = unsafe { Mmap::map(&file) }.at("map", path)?;
        if map.len() as u64 != entries * entry as u64 {
            return Err(super::damaged(
                path,
                format!("it has {} bytes, expected {}", map.len(), entries * entry as u64),
            ));
        }
        Ok(Table { map, entry })
    }

    fn get(&self, at: u32) -> Option<&[u8]> {
        self.map.get(at as usize * self.entry..(at as usize + 1) * self.entry)
    }

    pub(super) fn len(&self) -> usize {
        self.map.len() / self.entry
    }
}

/// The dialogues of a generation.
pub(super) struct Dialogues {
    places: Table,
    by_key: Table,
}

impl Dialogues {
    pub(super) fn open(folder: &Path, count: u64) -> Result<Self> {
        Ok(Dialogues {
            places: Table::open(&dialogues_path(folder), DIALOGUE_BYTES, count)?,
            by_key: Table::open(&keys_path(folder), 4, count)?,
        })
    }

    pub(super) fn get(&self, place: u32) -> Option<(IdKey, Seq)> {
        let entry = self.places.get(place)?;
        Some((IdKey(entry[..16].try_into().ok()?), Seq(u64::from_le_bytes(entry[16..].try_into().ok()?))))
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns the index of the dialogue with this key.
    pub(super) fn find(&self, key: &IdKey) -> Option<u32> {
        let (mut from, mut to) = (0, self.by_key.len());
        while from < to {
            let middle = (from + to) / 2;
            let place = self.by_key.get(middle as u32)?.try_into().map(u32::from_le_bytes).ok()?;
            match self.get(place)?.0.cmp(key) {
                std::cmp::Ordering::Equal => return Some(place),
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        None
    }

    pub(super) fn write(folder: &Path, dialogues: &[(IdKey, Seq)]) -> Result<()> {
        write(
            &dialogues_path(folder),
            dialogues.iter().map(|(key, seq)| [&key.0[..], &seq.0.to_le_bytes()].concat()),
        )?;
        let mut by_key: Vec<u32> = (0..dialogues.len() as u32).collect();
        by_key.sort_unstable_by_key(|place| dialogues[*place as usize].0);
        write(&keys_path(folder), by_key.iter().map(|place| place.to_le_bytes().to_vec()))
    }
}

/// The utterances of a generation: for each one the index of its dialogue, and its turn.
pub(super) struct Utterances(Table);

impl Utterances {
    pub(super) fn open(folder: &Path, count: u64) -> Result<Self> {
        Table::open(&utterances_path(folder), UTTERANCE_BYTES, count).map(Utterances)
    }

    pub(super) fn get(&self, place: u32) -> Option<(u32, TurnNo)> {
        let entry = self.0.get(place)?;
        let number = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes).ok();
        Some((number(&entry[..4])?, TurnNo(number(&entry[4..])?)))
    }

    pub(super) fn write(folder: &Path, utterances: &[(u32, TurnNo)]) -> Result<()> {
        let bytes =
            |(dialogue, turn): &(u32, TurnNo)| [dialogue.to_le_bytes(), turn.0.to_le_bytes()].concat();
        write(&utterances_path(folder), utterances.iter().map(bytes))
    }
}

pub(super) fn dialogues_path(folder: &Path) -> PathBuf {
    folder.join("dialogues.places")
}

pub(super) fn keys_path(folder: &Path) -> PathBuf {
    folder.join("dialogues.keys")
}

pub(super) fn utterances_path(folder: &Path) -> PathBuf {
    folder.join("utterances.places")
}

fn write(path: &Path, entries: impl Iterator<Item = Vec<u8>>) -> Result<()> {
    let file = File::create_new(path).at("create", path)?;
    let mut out = BufWriter::new(file);
    for entry in entries {
        out.write_all(&entry).at("write", path)?;
    }
    let file = out.into_inner().map_err(|e| e.into_error()).at("write", path)?;
    file.sync_all().at("flush", path)
}
