//! Reading vectors: any number of readers, in any number of processes, while one writes.

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
    /// Opens the set in use, or gives `None` if there are no vectors.
    pub fn open(root: &Path) -> Result<Option<Self>> {
        let mut tries = 0;
        loop {
            let Some(set) = sets::current(root)? else { return Ok(None) };
            match Self::open_set(&set) {
                // A replacement may have switched in between; then the name in use is another one.
                Err(Error::Corrupt { .. }) if tries < 20 && sets::current(root)? != Some(set) => tries += 1,
                other => return other.map(Some),
            }
        }
    }

    /// The error of whoever needs vectors where there are none.
    pub fn none_yet(root: &Path) -> Error {
        Error::Input {
            message: format!("{} has no vectors yet", root.display()),
            hint: Some(format!("`turnwise encode -i {}` makes them", root.display())),
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

    /// The folder of the set.
    pub fn folder(&self) -> &Path {
        &self.set
    }

    /// What is known of the set.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What made the vectors.
    pub fn recipe(&self) -> &Recipe {
        &self.manifest.recipe
    }

    /// The width of a vector.
    pub fn dim(&self) -> usize {
        self.manifest.recipe.dim
    }

    /// How many vectors of a kind there are, those included whose text has left the index.
    pub fn rows(&self, kind: Kind) -> usize {
        self.column(kind).count()
    }

    /// The row of a key (see [`utterance_key`](super::utterance_key)).
    pub fn row_of(&self, kind: Kind, key: &IdKey) -> Option<usize> {
        let (column, lookup) = &self.kinds[kind.place()];
        lookup.find(key, column.keys()).map(|row| row as usize).filter(|row| *row < column.count())
    }

    /// The vector of a key, its checksum compared.
    pub fn get(&self, kind: Kind, key: &IdKey) -> Result<Option<&[f32]>> {
        self.row_of(kind, key).map(|row| self.column(kind).get(row)).transpose()
    }

    /// A row, its checksum compared; `row` must be below [`VectorReader::rows`].
    pub fn row(&self, kind: Kind, row: usize) -> Result<&[f32]> {
        self.column(kind).get(row)
    }

    /// All rows, one after the other, for whoever compares a query with all of them. Only `verify` and the other
    /// functions here look at checksums.
    pub fn flat(&self, kind: Kind) -> &[f32] {
        self.column(kind).flat()
    }

    /// The keys in the order of the rows.
    pub fn keys(&self, kind: Kind) -> impl ExactSizeIterator<Item = IdKey> + '_ {
        let column = self.column(kind);
        (0..column.count()).map(|row| column.key(row))
    }

    pub(super) fn column(&self, kind: Kind) -> &Column {
        &self.kinds[kind.place()].0
    }
}
