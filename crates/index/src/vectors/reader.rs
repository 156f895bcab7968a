//! Reads vectors. Any number of readers, in any number of processes, can run while one process writes.

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

/// The vectors of an index as of one commit.
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
        Error::Input {
            message: format!("{} has no vectors yet", root.display()),
            hint: Some(format!("`turnwise encode -i {}` creates them", root.display())),
        }
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

    /// Returns the folder of the set.
    pub fn folder(&self) -> &Path {
        &self.set
    }

    /// Returns the manifest of the set.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the recipe of the vectors: encoder and options.
    pub fn recipe(&self) -> &Recipe {
        &self.manifest.recipe
    }

    /// Number of dimensions.
    pub fn dim(&self) -> usize {
        self.manifest.recipe.dim
    }

    /// Number of vectors of a kind, including those of deleted texts.
    pub fn rows(&self, kind: Kind) -> usize {
        self.column(kind).count()
    }

    /// Returns the row of a key (see [`utterance_key`](super::utterance_key)); `None` if the key has no vector.
    pub fn row_of(&self, kind: Kind, key: &IdKey) -> Option<usize> {
        let (column, lookup) = &self.kinds[kind.index()];
        lookup.find(key, column.keys()).map(|row| row as usize).filter(|row| *row < column.count())
    }

    /// Returns the vector of a key; `None` if there is none. Returns an error if the checksum is wrong.
    pub fn get(&self, kind: Kind, key: &IdKey) -> Result<Option<&[f32]>> {
        self.row_of(kind, key).map(|row| self.column(kind).get(row)).transpose()
    }

    /// Returns a row. `row` must be less than [`VectorReader::rows`]. Returns an error if the checksum is wrong.
    pub fn row(&self, kind: Kind, row: usize) -> Result<&[f32]> {
        self.column(kind).get(row)
    }

    /// Returns all rows as one slice, for scans over all vectors. Does not check checksums; use `verify` or the
    /// other functions for that.
    pub fn flat(&self, kind: Kind) -> &[f32] {
        self.column(kind).flat()
    }

    /// Returns the keys of a kind in the order of the rows.
    pub fn keys(&self, kind: Kind) -> impl ExactSizeIterator<Item = IdKey> + '_ {
        let column = self.column(kind);
        (0..column.count()).map(|row| column.key(row))
    }

    pub(super) fn column(&self, kind: Kind) -> &Column {
        &self.kinds[kind.index()].0
    }
}

/// Counts live vectors during a pass over all dialogues, one bit per row. Can be used from several threads.
pub struct Coverage<'a> {
    reader: &'a VectorReader,
    live: [Vec<AtomicU64>; 2],
    without: [AtomicU64; 2],
}

/// Vector counts of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct VectorCounts {
    /// Number of vectors on disk.
    pub vectors: u64,
    /// Number of vectors whose text is in the index.
    pub live: u64,
    /// Number of utterances or dialogues in the index without a vector.
    pub without: u64,
}

impl<'a> Coverage<'a> {
    /// Creates an empty counter.
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

    /// Returns true if the text of this vector row occurs in a dialogue of the index. For a kind of vector that this
    /// index does not encode, all rows count as live.
    pub(super) fn is_live(&self, kind: Kind, row: usize) -> bool {
        let bit = |bits: &AtomicU64| bits.load(Ordering::Relaxed) >> (row % 64) & 1 == 1;
        !self.wants(kind) || self.live[kind.index()].get(row / 64).is_some_and(bit)
    }

    /// Number of counted texts without a vector. Always 0 for a kind that this index does not encode.
    pub(super) fn without(&self, kind: Kind) -> u64 {
        self.without[kind.index()].load(Ordering::Relaxed)
    }

    fn wants(&self, kind: Kind) -> bool {
        self.reader.manifest().extent(kind).reached.is_some()
    }

    fn key(&self, kind: Kind, key: &IdKey) {
        match self.reader.row_of(kind, key) {
            Some(row) => {
                if let Some(bits) = self.live[kind.index()].get(row / 64) {
                    bits.fetch_or(1 << (row % 64), Ordering::Relaxed);
                }
            }
            None => {
                self.without[kind.index()].fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns the counts of a kind; `None` if this index does not encode it.
    pub fn of(&self, kind: Kind) -> Option<VectorCounts> {
        let live = |bits: &AtomicU64| u64::from(bits.load(Ordering::Relaxed).count_ones());
        self.wants(kind).then(|| VectorCounts {
            vectors: self.reader.rows(kind) as u64,
            live: self.live[kind.index()].iter().map(live).sum(),
            without: self.without[kind.index()].load(Ordering::Relaxed),
        })
    }
}
