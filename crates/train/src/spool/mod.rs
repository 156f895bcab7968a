//! Vector of records, in memory or in a temporary file.
//!
//! With a file, each record is read from disk on access and needs only eight bytes of memory. A corpus can therefore be
//! larger than the memory.

mod file;

use std::{borrow::Cow, marker::PhantomData, path::Path};

pub use file::{Records, Spool};

use crate::data::TurnTokens;
use turnwise_core::error::{Error, Result};
use turnwise_corpus::Dialogue;

/// Vector of records, in memory or in a temporary file.
pub struct DiskVec<T>(Storage<T>);

enum Storage<T> {
    Memory(Vec<T>),
    File { spool: Spool, offsets: Vec<u64>, of: PhantomData<fn() -> T> },
}

impl<T> Default for DiskVec<T> {
    fn default() -> Self {
        DiskVec(Storage::Memory(Vec::new()))
    }
}

impl<T> From<Vec<T>> for DiskVec<T> {
    fn from(records: Vec<T>) -> Self {
        DiskVec(Storage::Memory(records))
    }
}

impl<T: Record + Clone> DiskVec<T> {
    /// Creates an empty vector with a temporary file in `folder`, or in memory if `folder` is `None`.
    pub fn new(folder: Option<&Path>) -> Result<Self> {
        Ok(match folder {
            None => DiskVec::default(),
            Some(folder) => {
                DiskVec(Storage::File { spool: Spool::new(folder)?, offsets: Vec::new(), of: PhantomData })
            }
        })
    }

    pub fn push(&mut self, record: T) -> Result<()> {
        match &mut self.0 {
            Storage::Memory(records) => records.push(record),
            Storage::File { spool, offsets, .. } => offsets.push(spool.push(&record.to_bytes()?)?),
        }
        Ok(())
    }

    pub fn len(&self) -> usize {
        match &self.0 {
            Storage::Memory(records) => records.len(),
            Storage::File { offsets, .. } => offsets.len(),
        }
    }

    /// Returns a record. Returns an error if there is no such record, or if it cannot be read from disk.
    pub fn get(&self, number: usize) -> Result<Cow<'_, T>> {
        match &self.0 {
            Storage::Memory(records) => records.get(number).map(Cow::Borrowed).ok_or_else(|| none(number)),
            Storage::File { .. } => T::of_bytes(&self.bytes(number)?).map(Cow::Owned),
        }
    }

    /// Returns the serialized record. The bytes are the same in memory and in a file.
    pub fn bytes(&self, number: usize) -> Result<Vec<u8>> {
        match &self.0 {
            Storage::Memory(records) => records.get(number).ok_or_else(|| none(number))?.to_bytes(),
            Storage::File { spool, offsets, .. } => {
                spool.read(*offsets.get(number).ok_or_else(|| none(number))?)
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Result<Cow<'_, T>>> {
        (0..self.len()).map(|number| self.get(number))
    }

    /// Removes record N if `kept[N]` is false or missing. The temporary file does not get smaller.
    pub fn retain(&mut self, kept: &[bool]) {
        let mut kept = kept.iter();
        let mut next = || kept.next().copied().unwrap_or(false);
        match &mut self.0 {
            Storage::Memory(records) => records.retain(|_| next()),
            Storage::File { offsets, .. } => offsets.retain(|_| next()),
        }
    }
}

fn none(number: usize) -> Error {
    Error::Internal(format!("there is no record with number {number}"))
}

/// A type that can be stored in a [`DiskVec`](super::DiskVec).
pub trait Record: Sized {
    fn to_bytes(&self) -> Result<Vec<u8>>;

    /// Deserializes a record. Returns an error if the bytes are not a valid record.
    fn of_bytes(bytes: &[u8]) -> Result<Self>;
}

impl Record for Dialogue {
    fn to_bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|e| Error::Internal(e.to_string()))
    }

    fn of_bytes(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|e| Error::Internal(e.to_string()))
    }
}

/// Format: little-endian u32 numbers. A turn is its speaker, its role, its number of tokens and its token ids.
impl Record for Vec<TurnTokens> {
    fn to_bytes(&self) -> Result<Vec<u8>> {
        let numbers = self.iter().map(|turn| 3 + turn.ids.len()).sum::<usize>();
        let mut bytes = Vec::with_capacity(4 * numbers);
        for turn in self {
            let head = [turn.speaker, turn.role, turn.ids.len() as u32];
            head.iter().chain(&turn.ids).for_each(|number| bytes.extend(number.to_le_bytes()));
        }
        Ok(bytes)
    }

    fn of_bytes(bytes: &[u8]) -> Result<Self> {
        let mut numbers = bytes.as_chunks::<4>().0.iter().map(|number| u32::from_le_bytes(*number));
        let mut turns = Vec::new();
        while let Some(speaker) = numbers.next() {
            let (Some(role), Some(length)) = (numbers.next(), numbers.next()) else {
                return Err(truncated());
            };
            let ids: Vec<u32> = numbers.by_ref().take(length as usize).collect();
            if ids.len() != length as usize {
                return Err(truncated());
            }
            turns.push(TurnTokens { speaker, role, ids });
        }
        Ok(turns)
    }
}

fn truncated() -> Error {
    Error::Internal("a tokenized dialogue is truncated".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::TurnTokens;

    #[test]
    fn file_and_memory_hold_the_same_records() {
        let folder = tempfile::tempdir().unwrap();
        let turn = |n: u32, t: u32| TurnTokens { speaker: t % 2, role: t, ids: (0..n % 7).collect() };
        let records: Vec<Vec<TurnTokens>> =
            (0..50).map(|n| (0..n % 5).map(|t| turn(n, t)).collect()).collect();
        let mut memory = DiskVec::from(records.clone());
        let mut file = DiskVec::new(Some(folder.path())).unwrap();
        records.into_iter().for_each(|record| file.push(record).unwrap());
        let kept: Vec<bool> = (0..50).map(|n| n % 3 > 0).collect();
        memory.retain(&kept);
        file.retain(&kept);
        assert_eq!((memory.len(), file.len()), (33, 33));
        for n in 0..33 {
            assert_eq!(memory.get(n).unwrap(), file.get(n).unwrap());
            assert_eq!(memory.bytes(n).unwrap(), file.bytes(n).unwrap());
        }
        assert!(memory.get(33).is_err() && file.get(33).is_err());
    }
}
