//! Reads vectors. Any number of processes can read while one process writes.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use serde::Serialize;

use crate::vectors::{
    Kind,
    column::Column,
    dialogue_key, sets,
    sets::{Manifest, Recipe},
    table::Lookup,
    utterance_key,
};
use turnwise_core::{
    error::{Error, Result},
    ids::IdKey,
};
use turnwise_corpus::Dialogue;

/// The vectors of an index in the state of one commit. Later commits are not visible.
pub struct VectorReader {
    set: PathBuf,
    manifest: Manifest,
    kinds: [(Column, Lookup); 2],
}

impl VectorReader {
    /// Opens the set in use. Returns `None` if there are no vectors, and an error if the set is damaged.
    pub fn open(root: &Path) -> Result<Option<Self>> {
        let mut tries = 0;
        loop {
            let Some(set) = sets::current(root)? else { return Ok(None) };
            match Self::open_set(&set) {
                // A replacement may have switched sets in the meantime; then open the new one.
                Err(Error::Corrupt { .. }) if tries < 20 && sets::current(root)? != Some(set) => tries += 1,
                other => return other.map(Some),
            }
        }
    }

    /// Returns the error for an index that needs vectors but has none.
    pub fn missing_error(root: &Path) -> Error {
        let root = root.display();
        Error::input(format!("{root} has no vectors yet"))
            .with_hint(format!("`turnwise encode -i {root}` creates them"))
    }

    pub(super) fn open_set(set: &Path) -> Result<Self> {
        let manifest = Manifest::read(set)?;
        let open = |kind: Kind| -> Result<(Column, Lookup)> {
            let column = Column::open(set, kind, manifest.recipe.dim, manifest.extent(kind).rows)?;
            let lookup = Lookup::open(set, kind, &column)?;
            Ok((column, lookup))
        };
        let kinds = [open(Kind::ALL[0])?, open(Kind::ALL[1])?];
        Ok(VectorReader { set: set.to_owned(), manifest, kinds })
    }

    /// Returns the folder of the vector set.
    pub fn folder(&self) -> &Path {
        &self.set
    }

    /// Returns the manifest of the vector set.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the recipe of the vectors: encoder and options.
    pub fn recipe(&self) -> &Recipe {
        &self.manifest.recipe
    }

    /// Number of dimensions of a vector.
    pub fn dim(&self) -> usize {
        self.manifest.recipe.dim
    }

    /// Number of vectors of a kind, including those of deleted texts.
    pub fn rows(&self, kind: Kind) -> usize {
        self.column(kind).count()
    }

    /// Returns the row of a key (see [`utterance_key`](super::utterance_key)); `None` if the key has no vector.
    pub fn row_of(&self, kind: Kind, key: &IdKey) -> Option<usize> {
        let (column, lookup) = &self.kinds[kind as usize];
        lookup.find(key, column.keys()).map(|row| row as usize).filter(|row| *row < column.count())
    }

    /// Returns the vector of a key; `None` if the key has no vector. Returns an error if a checksum is wrong.
    pub fn get(&self, kind: Kind, key: &IdKey) -> Result<Option<&[f32]>> {
        self.row_of(kind, key).map(|row| self.column(kind).get(row)).transpose()
    }

    /// Returns the vector of a row, which must be less than [`VectorReader::rows`]. Returns an error if a checksum is
    /// wrong.
    pub fn row(&self, kind: Kind, row: usize) -> Result<&[f32]> {
        self.column(kind).get(row)
    }

    /// Returns the values of all vectors, row after row, as one slice. Does not verify checksums.
    pub fn flat(&self, kind: Kind) -> &[f32] {
        self.column(kind).flat()
    }

    /// Returns the keys of a kind in the order of the rows.
    pub fn keys(&self, kind: Kind) -> impl ExactSizeIterator<Item = IdKey> + '_ {
        let column = self.column(kind);
        (0..column.count()).map(|row| column.key(row))
    }

    /// Returns the rows of a kind, each with its number, key and vector. A wrong checksum is an error.
    pub(super) fn entries(&self, kind: Kind) -> impl Iterator<Item = (usize, Result<(IdKey, &[f32])>)> {
        let column = self.column(kind);
        (0..column.count()).map(|row| (row, column.get(row).map(|vector| (column.key(row), vector))))
    }

    pub(super) fn column(&self, kind: Kind) -> &Column {
        &self.kinds[kind as usize].0
    }
}

/// Counter of live vectors, which are the vectors of texts that are in the index. The caller must add all dialogues of
/// the index. Several threads can use one counter.
pub struct Coverage<'a> {
    reader: &'a VectorReader,
    live: [Vec<AtomicU64>; 2],
    /// For each kind, the number of items without a vector.
    without: [AtomicU64; 2],
}

/// Vector counts of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct VectorCounts {
    /// Number of vectors on disk, including those of deleted texts.
    pub vectors: u64,
    /// Number of vectors of texts that are in the index.
    pub live: u64,
    /// Number of utterances or dialogues in the index without a vector.
    pub without: u64,
}

impl<'a> Coverage<'a> {
    /// Creates a counter that has seen no dialogues.
    pub fn new(reader: &'a VectorReader) -> Self {
        let bits = |kind: Kind| (0..reader.rows(kind).div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Coverage { reader, live: Kind::ALL.map(bits), without: Default::default() }
    }

    /// Counts a dialogue of the index.
    pub fn add(&self, dialogue: &Dialogue) {
        if self.wants(Kind::Utterances) {
            dialogue.turns.iter().for_each(|t| self.key(Kind::Utterances, &utterance_key(&t.text)));
        }
        if self.wants(Kind::Dialogues) {
            self.key(Kind::Dialogues, &dialogue_key(dialogue));
        }
    }

    /// Returns true if a counted dialogue contains the text that the row's vector represents, or if the kind was never
    /// encoded.
    pub(super) fn is_live(&self, kind: Kind, row: usize) -> bool {
        let bit = |bits: &AtomicU64| bits.load(Ordering::Relaxed) >> (row % 64) & 1 == 1;
        !self.wants(kind) || self.live[kind as usize].get(row / 64).is_some_and(bit)
    }

    /// Number of counted items without a vector; 0 for a kind that was never encoded.
    pub(super) fn without(&self, kind: Kind) -> u64 {
        self.without[kind as usize].load(Ordering::Relaxed)
    }

    fn wants(&self, kind: Kind) -> bool {
        self.reader.manifest().extent(kind).reached.is_some()
    }

    fn key(&self, kind: Kind, key: &IdKey) {
        match self.reader.row_of(kind, key) {
            Some(row) => {
                self.live[kind as usize][row / 64].fetch_or(1 << (row % 64), Ordering::Relaxed);
            }
            None => {
                self.without[kind as usize].fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns the counts of a kind; `None` if encoding of this kind was never requested.
    pub fn of(&self, kind: Kind) -> Option<VectorCounts> {
        let live = |bits: &AtomicU64| u64::from(bits.load(Ordering::Relaxed).count_ones());
        self.wants(kind).then(|| VectorCounts {
            vectors: self.reader.rows(kind) as u64,
            live: self.live[kind as usize].iter().map(live).sum(),
            without: self.without(kind),
        })
    }
}
