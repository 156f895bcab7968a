//! Copies vectors row by row: into a new set without the vectors of deleted texts, into a backup, or from a backup.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::vectors::{
    Coverage, Kind, VectorReader,
    column::{Column, ColumnWriter, write_all},
    sets,
    sets::{Manifest, Reached},
    table, writer,
};
use turnwise_core::{
    error::{Error, Result},
    files,
};
use turnwise_store::{Change, Position, Snapshot};

/// Counts of the vectors that [`compact`] removed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CompactReport {
    /// Number of removed vectors of utterances.
    pub utterances: u64,
    /// Number of removed vectors of dialogues.
    pub dialogues: u64,
}

/// Drops the vectors of deleted texts. Returns `None` if the index has no vectors. `progress` receives the number of
/// dialogues read so far. After an interruption or a crash, the set in use is either the old set or the complete new
/// set.
///
/// Also updates the log positions of the vectors, because compacting the log changes all positions.
pub fn compact(
    root: &Path,
    command: &str,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(u64),
) -> Result<Option<CompactReport>> {
    if !sets::exists(root) {
        return Ok(None);
    }
    let _lock = writer::lock(root, command)?;
    // Take the snapshot under the lock: no vector can then be newer than the snapshot.
    let snapshot = Snapshot::open(root)?;
    let Some(current) = sets::current(root)? else { return Ok(None) };
    let mut work = Work { root, snapshot: &snapshot, stop, progress };
    // An unfinished replacement has vectors of the same texts; compact it too.
    for set in sets::all(root).into_iter().filter(|set| *set != current) {
        match Manifest::read(&set) {
            // The set was never in use, so nothing is lost.
            Err(Error::Corrupt { .. }) => sets::remove(&set),
            Ok(manifest) if manifest.copy || manifest.rows() == 0 => sets::remove(&set),
            _ => match work.compact(&set, false) {
                Err(Error::Corrupt { .. }) | Ok((Some(_), _)) => sets::remove(&set),
                other => drop(other?),
            },
        }
    }
    let (new, dropped) = work.compact(&current, true)?;
    if let Some(new) = new {
        sets::switch(root, &new)?;
        sets::remove(&current);
    }
    Ok(Some(dropped))
}

struct Work<'a> {
    root: &'a Path,
    snapshot: &'a Snapshot,
    stop: &'a dyn Fn() -> bool,
    progress: &'a mut dyn FnMut(u64),
}

impl Work<'_> {
    /// Copies the vectors of undeleted texts to a new set, with [`Manifest::copy`] set to `copy`. If there are no rows
    /// to drop, only updates the log positions of the existing set, and returns `None` instead of a path.
    fn compact(&mut self, set: &Path, copy: bool) -> Result<(Option<PathBuf>, CompactReport)> {
        let reader = VectorReader::open_set(set)?;
        let coverage = Coverage::new(&reader);
        let reached = self.count_all(&coverage)?;
        let dead = |kind: Kind| coverage.of(kind).map_or(0, |covered| covered.vectors - covered.live);
        let dropped = CompactReport { utterances: dead(Kind::Utterances), dialogues: dead(Kind::Dialogues) };
        let mut manifest = reader.manifest().clone();
        for kind in Kind::ALL {
            if let Some(reached_before) = &mut manifest.extent_mut(kind).reached {
                *reached_before = Reached::of(self.snapshot, reached[kind as usize]);
            }
        }
        if dropped == CompactReport::default() {
            for kind in Kind::ALL {
                // Truncates uncommitted rows left by a crash.
                ColumnWriter::open(set, kind, reader.dim(), reader.rows(kind) as u64)?;
            }
            if manifest != *reader.manifest() {
                manifest.write(set)?;
            }
            return Ok((None, dropped));
        }
        let empty = Manifest { copy, ..Manifest::new(manifest.recipe.clone()) };
        let new = sets::create(self.root, &empty)?;
        manifest.copy = copy;
        match self.fill(&new, manifest, &reader, &coverage) {
            Ok(()) => Ok((Some(new), dropped)),
            Err(e) => {
                sets::remove(&new);
                Err(e)
            }
        }
    }

    /// Adds all dialogues to `coverage`. Returns for each kind the log position before which all items have a vector.
    fn count_all(&mut self, coverage: &Coverage<'_>) -> Result<[Position; 2]> {
        let mut complete_to: [Option<Position>; 2] = [None; 2];
        let mut changes = self.snapshot.changes(Position::START);
        let mut before = Position::START;
        let mut seen = 0;
        while let Some(change) = changes.next_change() {
            if let Change::Put { dialogue, live: true } = change? {
                coverage.add(&dialogue);
                for kind in Kind::ALL {
                    let position = &mut complete_to[kind as usize];
                    if position.is_none() && coverage.without(kind) > 0 {
                        *position = Some(before);
                    }
                }
                seen += 1;
                (self.progress)(seen);
                self.check_stop()?;
            }
            before = changes.position();
        }
        Ok(complete_to.map(|position| position.unwrap_or(self.snapshot.end())))
    }

    /// Copies the vectors of undeleted texts from `reader` to `set`, then writes the manifest with the number of rows.
    fn fill(
        &self,
        set: &Path,
        mut manifest: Manifest,
        reader: &VectorReader,
        coverage: &Coverage<'_>,
    ) -> Result<()> {
        for kind in Kind::ALL {
            let live = reader.entries(kind).filter(|(row, _)| coverage.is_live(kind, *row));
            let live = live.map(|(_, entry)| self.check_stop().and(entry));
            let rows = write_all(set, kind, reader.dim(), live)?;
            if rows > 0 {
                table::write(&table::path(set, kind), &Column::open(set, kind, reader.dim(), rows)?)?;
            }
            manifest.extent_mut(kind).rows = rows;
        }
        manifest.write(set)
    }

    fn check_stop(&self) -> Result<()> {
        match (self.stop)() {
            true => Err(Error::Interrupted { hint: Some("the vectors are unchanged".to_owned()) }),
            false => Ok(()),
        }
    }
}

/// Copies the committed vectors of the set in use into a backup. Returns their number, or `None` if the index has no
/// vectors. If a vector is damaged, returns an error, and the backup contains no vectors.
pub fn backup(root: &Path, target: &Path) -> Result<Option<u64>> {
    copy(root, target).inspect_err(|_| forget(target))
}

/// Copies vectors from a backup into a restored index without vectors. Returns their number, or `None` if the backup
/// has no vectors. If a vector is damaged, returns an error, and the index contains no vectors.
pub fn restore(source: &Path, root: &Path, command: &str) -> Result<Option<u64>> {
    if !sets::exists(source) {
        return Ok(None);
    }
    let _lock = writer::lock(root, command)?;
    copy(source, root).inspect_err(|_| forget(root))
}

/// Removes the vectors of an unfinished copy. Files that cannot be removed do no harm: their manifest has no rows.
fn forget(root: &Path) {
    let _ = files::remove_folder(&sets::folder(root));
}

fn copy(from: &Path, to: &Path) -> Result<Option<u64>> {
    let Some(reader) = VectorReader::open(from)? else { return Ok(None) };
    let mut manifest = Manifest::new(reader.recipe().clone());
    let set = sets::create(to, &manifest)?;
    // The manifest has no rows until all of them are copied.
    sets::switch(to, &set)?;
    let mut copied = 0;
    for kind in Kind::ALL {
        let extent = manifest.extent_mut(kind);
        extent.rows = write_all(&set, kind, reader.dim(), reader.entries(kind).map(|(_, entry)| entry))?;
        extent.reached.clone_from(&reader.manifest().extent(kind).reached);
        copied += extent.rows;
    }
    manifest.write(&set)?;
    Ok(Some(copied))
}
