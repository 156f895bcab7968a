//! Reads vectors. Any number of readers, in any number of processes, can run while one process writes.

use std::path::{Path, PathBuf};

use crate::vectors::{
    column::Column,
    key::Kind,
    manifest::{Manifest, Recipe},
    sets,
    table::Lookup,
};
use turnwise_core::{
    error::{Error, Result},
    ids::IdKey,
};

/// The vectors of an index as of one commit.
pub struct VectorReader {
    set: PathBuf,
    manifest: Manifest,
    kinds: [(Column, Lookup); 2],
}

impl VectorReader {
    /// Opens the set in use. Returns `None` if there are no vectors.
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

    /// Returns the row of a key (see [`utterance_key`](super::utterance_key)).
    pub fn row_of(&self, kind: Kind, key: &IdKey) -> Option<usize> {
        let (column, lookup) = &self.kinds[kind.index()];
        lookup.find(key, column.keys()).map(|row| row as usize).filter(|row| *row < column.count())
    }

    /// Returns the vector of a key, after checking its checksum.
    pub fn get(&self, kind: Kind, key: &IdKey) -> Result<Option<&[f32]>> {
        self.row_of(kind, key).map(|row| self.column(kind).get(row)).transpose()
    }

    /// Returns a row after checking its checksum. `row` must be less than [`VectorReader::rows`].
    pub fn row(&self, kind: Kind, row: usize) -> Result<&[f32]> {
        self.column(kind).get(row)
    }

    /// Returns all rows as one slice, for scans over all vectors. Does not check checksums; use `verify` or the
    /// other functions for that.
    pub fn flat(&self, kind: Kind) -> &[f32] {
        self.column(kind).flat()
    }

    /// Returns the keys in row order.
    pub fn keys(&self, kind: Kind) -> impl ExactSizeIterator<Item = IdKey> + '_ {
        let column = self.column(kind);
        (0..column.count()).map(|row| column.key(row))
    }

    pub(super) fn column(&self, kind: Kind) -> &Column {
        &self.kinds[kind.index()].0
    }
}
