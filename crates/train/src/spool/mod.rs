//! Many things of a kind, by number: in memory, or in a file from which each is read when it is asked for.
//!
//! Whoever asks sees no difference. In memory is the reference; a file makes a corpus as large as a disk, for no more
//! than eight bytes of memory a thing.

mod file;
mod record;

use std::{borrow::Cow, marker::PhantomData, path::Path};

pub use file::{Records, Spool};
pub use record::Record;

use turnwise_core::error::{Error, Result};

/// The things.
pub struct DiskVec<T>(Where<T>);

enum Where<T> {
    Memory(Vec<T>),
    File { spool: Spool, places: Vec<u64>, of: PhantomData<fn() -> T> },
}

impl<T> Default for DiskVec<T> {
    fn default() -> Self {
        DiskVec(Where::Memory(Vec::new()))
    }
}

impl<T> From<Vec<T>> for DiskVec<T> {
    fn from(things: Vec<T>) -> Self {
        DiskVec(Where::Memory(things))
    }
}

impl<T: Record + Clone> DiskVec<T> {
    /// None yet; they will be in a file beside what is in this folder, or in memory.
    pub fn new(folder: Option<&Path>) -> Result<Self> {
        Ok(match folder {
            None => DiskVec::default(),
            Some(folder) => {
                DiskVec(Where::File { spool: Spool::new(folder)?, places: Vec::new(), of: PhantomData })
            }
        })
    }

    /// Adds one.
    pub fn push(&mut self, thing: T) -> Result<()> {
        match &mut self.0 {
            Where::Memory(things) => things.push(thing),
            Where::File { spool, places, .. } => places.push(spool.push(&thing.to_bytes()?)?),
        }
        Ok(())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match &self.0 {
            Where::Memory(things) => things.len(),
            Where::File { places, .. } => places.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of them.
    pub fn get(&self, number: usize) -> Result<Cow<'_, T>> {
        match &self.0 {
            Where::Memory(things) => things.get(number).map(Cow::Borrowed).ok_or_else(|| none(number)),
            Where::File { .. } => T::of_bytes(&self.bytes(number)?).map(Cow::Owned),
        }
    }

    /// One of them as it was written: the same bytes, wherever it is held.
    pub fn bytes(&self, number: usize) -> Result<Vec<u8>> {
        match &self.0 {
            Where::Memory(things) => things.get(number).ok_or_else(|| none(number))?.to_bytes(),
            Where::File { spool, places, .. } => spool.read(*places.get(number).ok_or_else(|| none(number))?),
        }
    }

    /// All of them, one after the other.
    pub fn iter(&self) -> impl Iterator<Item = Result<Cow<'_, T>>> {
        (0..self.len()).map(|number| self.get(number))
    }

    /// Leaves those of which is said so, a word for each.
    pub fn retain(&mut self, kept: &[bool]) {
        let mut kept = kept.iter();
        let mut next = || kept.next().copied().unwrap_or(false);
        match &mut self.0 {
            Where::Memory(things) => things.retain(|_| next()),
            Where::File { places, .. } => places.retain(|_| next()),
        }
    }
}

fn none(number: usize) -> Error {
    Error::Internal(format!("nothing is held under the number {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Said;

    #[test]
    fn a_file_holds_what_memory_does() {
        let folder = tempfile::tempdir().unwrap();
        let said = |n: u32, t: u32| Said { speaker: t % 2, part: t, ids: (0..n % 7).collect() };
        let things: Vec<Vec<Said>> = (0..50).map(|n| (0..n % 5).map(|t| said(n, t)).collect()).collect();
        let mut memory = DiskVec::from(things.clone());
        let mut file = DiskVec::new(Some(folder.path())).unwrap();
        things.into_iter().for_each(|thing| file.push(thing).unwrap());
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
