//! Writes vectors. An index has at most one vector writer at a time. Committed vectors survive a crash.

use std::path::{Path, PathBuf};

use crate::vectors::{
    Kind,
    column::{Column, ColumnWriter},
    sets,
    sets::{Manifest, Reached, Recipe},
    table::{self, Lookup},
};
use turnwise_core::{
    error::{Error, Result},
    ids::IdKey,
};
use turnwise_store::lock::WriterLock;

/// Vector set that a [`VectorWriter`] writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The vector set in use, or a new set if there is none.
    Continue,
    /// A new vector set, which replaces the set in use when it is complete.
    Replace,
}

/// Writer that adds vectors to a set. It locks the vectors against other writers. Another process can write records at
/// the same time.
pub struct VectorWriter {
    root: PathBuf,
    set: PathBuf,
    manifest: Manifest,
    kinds: [KindWriter; 2],
    changed: bool,
    _lock: WriterLock,
}

struct KindWriter {
    kind: Kind,
    writer: ColumnWriter,
    /// The rows that were committed when `lookup` was built.
    column: Column,
    lookup: Lookup,
}

impl KindWriter {
    fn open(set: &Path, kind: Kind, manifest: &Manifest) -> Result<Self> {
        let (dim, rows) = (manifest.recipe.dim, manifest.extent(kind).rows);
        // Open the writer first: it truncates uncommitted rows.
        let writer = ColumnWriter::open(set, kind, dim, rows)?;
        let column = Column::open(set, kind, dim, rows)?;
        let lookup = Lookup::open_checked(set, kind, &column)?;
        Ok(KindWriter { kind, writer, column, lookup })
    }

    fn rebuild_table(&mut self, set: &Path, dim: usize) -> Result<()> {
        self.column = Column::open(set, self.kind, dim, self.writer.rows())?;
        table::write(&table::path(set, self.kind), &self.column)?;
        self.lookup = Lookup::open(set, self.kind, &self.column)?;
        Ok(())
    }
}

impl VectorWriter {
    /// Opens the vectors of an index for writing. In [`Mode::Continue`], the recipe of the set in use must be
    /// compatible with `recipe`. [`Mode::Replace`] continues an unfinished replacement with the same recipe.
    pub fn open(root: &Path, recipe: &Recipe, mode: Mode, command: &str) -> Result<Self> {
        let lock = lock(root, command)?;
        let current = match (sets::current(root), mode) {
            // Damaged vectors can be replaced.
            (Err(Error::Corrupt { .. }), Mode::Replace) => None,
            (current, _) => current?,
        };
        let (set, manifest) = match (mode, current) {
            (Mode::Continue, Some(set)) => {
                let manifest = adopt(root, Manifest::read(&set)?, recipe)?;
                (set, manifest)
            }
            // Without an existing set, the new set is used at once.
            (_, None) => {
                let (set, manifest) = new_set(root, recipe)?;
                sets::switch(root, &set)?;
                sets::remove_others(root, &set);
                (set, manifest)
            }
            (Mode::Replace, Some(_)) => match sets::unfinished(root, recipe)? {
                Some(set) => {
                    let manifest = Manifest::read(&set)?;
                    // The set was never in use: if it is damaged, start again.
                    match open_kinds(&set, &manifest) {
                        Err(Error::Corrupt { .. }) => {
                            sets::remove(&set);
                            new_set(root, recipe)?
                        }
                        _ => (set, manifest),
                    }
                }
                None => new_set(root, recipe)?,
            },
        };
        let kinds = open_kinds(&set, &manifest)?;
        Ok(VectorWriter { root: root.to_owned(), set, manifest, kinds, changed: false, _lock: lock })
    }

    /// Returns the manifest of the set. Its row counts are those of the last commit.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Number of vectors of a kind, including uncommitted ones.
    pub fn rows(&self, kind: Kind) -> u64 {
        self.kinds[kind as usize].writer.rows()
    }

    /// Returns true if a key has a vector, committed or not.
    pub fn contains(&self, kind: Kind, key: &IdKey) -> bool {
        let KindWriter { lookup, column, .. } = &self.kinds[kind as usize];
        lookup.find(key, column.keys()).is_some()
    }

    /// Adds a vector. Returns `false` if the key already has a vector. Returns an error if the vector has the wrong
    /// number of dimensions, or if the kind has four billion vectors.
    pub fn put(&mut self, kind: Kind, key: IdKey, row: &[f32]) -> Result<bool> {
        let dim = self.manifest.recipe.dim;
        if row.len() != dim {
            return Err(Error::Internal(format!("vector has {} dimensions, expected {dim}", row.len())));
        }
        if self.contains(kind, &key) {
            return Ok(false);
        }
        let KindWriter { writer, lookup, .. } = &mut self.kinds[kind as usize];
        let number = u32::try_from(writer.rows()).ok().filter(|n| *n < u32::MAX);
        let number = number.ok_or_else(|| Error::data("more than four billion vectors in one index"))?;
        writer.append(&key, row)?;
        lookup.add(key, number);
        self.changed = true;
        Ok(true)
    }

    /// Sets the log position before which all items of a kind have vectors. The next commit saves the position.
    pub fn set_reached(&mut self, kind: Kind, reached: Reached) {
        let extent = self.manifest.extent_mut(kind);
        if extent.reached.as_ref() != Some(&reached) {
            extent.reached = Some(reached);
            self.changed = true;
        }
    }

    /// Writes everything to disk: rows and keys first, then the manifest with the row count.
    pub fn commit(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.changed) {
            return Ok(());
        }
        for KindWriter { kind, writer, .. } in &mut self.kinds {
            writer.flush()?;
            self.manifest.extent_mut(*kind).rows = writer.rows();
        }
        self.manifest.turnwise = env!("CARGO_PKG_VERSION").to_owned();
        self.manifest.write(&self.set)?;
        self.rebuild_tables(false)
    }

    fn rebuild_tables(&mut self, at_the_end: bool) -> Result<()> {
        let dim = self.manifest.recipe.dim;
        let behind = self.kinds.iter_mut().filter(|kind| kind.lookup.is_behind(at_the_end));
        behind.into_iter().try_for_each(|kind| kind.rebuild_table(&self.set, dim))
    }

    /// Commits, and updates the lookup tables for readers.
    pub fn close(mut self) -> Result<()> {
        self.commit()?;
        self.rebuild_tables(true)
    }

    /// Closes the writer like [`VectorWriter::close`]. A replacement becomes the set in use, and all other sets are
    /// removed.
    pub fn finish(mut self) -> Result<()> {
        self.commit()?;
        self.rebuild_tables(true)?;
        if sets::current(&self.root).ok().flatten().as_ref() != Some(&self.set) {
            sets::switch(&self.root, &self.set)?;
            sets::remove_others(&self.root, &self.set);
        }
        Ok(())
    }
}

fn new_set(root: &Path, recipe: &Recipe) -> Result<(PathBuf, Manifest)> {
    let manifest = Manifest::new(recipe.clone());
    Ok((sets::create(root, &manifest)?, manifest))
}

fn open_kinds(set: &Path, manifest: &Manifest) -> Result<[KindWriter; 2]> {
    let [utterances, dialogues] = Kind::ALL.map(|kind| KindWriter::open(set, kind, manifest));
    Ok([utterances?, dialogues?])
}

pub(super) fn lock(root: &Path, command: &str) -> Result<WriterLock> {
    WriterLock::acquire_named(root, "vectors.lock", command)
}

/// Returns the manifest of the set in use, updated to the options of `recipe`. Returns an error if `recipe` is
/// incompatible with the existing vectors.
fn adopt(root: &Path, mut manifest: Manifest, recipe: &Recipe) -> Result<Manifest> {
    // Without dialogue vectors, the dialogue options can still change.
    let dialogues_too = manifest.dialogues.rows > 0;
    if let Some(what) = manifest.recipe.conflict(recipe, dialogues_too) {
        let (root, model) = (root.display(), &recipe.model);
        return Err(Error::input(format!("{root} holds {what}")).with_hint(format!(
            "`turnwise encode -i {root} --model {model} --replace`, with the same options, encodes everything \
             again; the old vectors stay in use until it is done"
        )));
    }
    manifest.recipe.dialogue_mode = recipe.dialogue_mode;
    manifest.recipe.pooling = recipe.pooling;
    manifest.recipe.precision.clone_from(&recipe.precision);
    manifest.recipe.model.clone_from(&recipe.model);
    Ok(manifest)
}
