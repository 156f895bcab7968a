//! Dropping vectors whose text has left the index: a new set of the rows that are in use, copied as they are, takes the
//! place of the old one.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::vectors::{
    Coverage, VectorReader,
    column::{Column, ColumnWriter},
    key::Kind,
    manifest::{Manifest, Reached},
    sets, table, writer,
};
use turnwise_core::error::{Error, Result};
use turnwise_store::{Change, Position, Snapshot};

/// What was dropped.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// Vectors of utterances that are in the index no more.
    pub utterances: u64,
    /// Vectors of dialogues likewise.
    pub dialogues: u64,
}

/// Drops the vectors that no text of the index has. `None` where it has none. `progress` is told how many dialogues have
/// been looked at. Nothing is encoded; what stops or kills it leaves the old vectors or the new ones, whole.
///
/// Going over all dialogues shows as well how far in the log the vectors have come, whatever they remember of it: after
/// it was compacted, its places are new.
pub fn compact(
    root: &Path,
    command: &str,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(u64),
) -> Result<Option<Dropped>> {
    if !sets::exists(root) {
        return Ok(None);
    }
    let _lock = writer::lock(root, command)?;
    // Under the lock: no vector is newer than what is seen.
    let snapshot = Snapshot::open(root)?;
    let Some(current) = sets::current(root)? else { return Ok(None) };
    let mut work = Work { root, snapshot: &snapshot, stop, progress };
    // A replacement that is under way has vectors of the same texts.
    for set in sets::all(root).into_iter().filter(|set| *set != current) {
        match Manifest::read(&set) {
            // It was never in use, so that nothing is lost.
            Err(Error::Corrupt { .. }) => sets::remove(&set),
            Ok(manifest) if manifest.copy || manifest.rows() == 0 => sets::remove(&set),
            _ => match work.compact(&set, false) {
                Err(Error::Corrupt { .. }) => sets::remove(&set),
                Ok((Some(_), _)) => sets::remove(&set),
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
    /// Gives a new set, if the old one has anything to drop. `copy` marks it as one that nobody must go on with before
    /// it is in use.
    fn compact(&mut self, set: &Path, copy: bool) -> Result<(Option<PathBuf>, Dropped)> {
        let reader = VectorReader::open_set(set)?;
        let coverage = Coverage::new(&reader);
        let reached = self.look_at_all(&coverage)?;
        let dead = |kind: Kind| coverage.of(kind).map_or(0, |covered| covered.vectors - covered.live);
        let dropped = Dropped { utterances: dead(Kind::Utterances), dialogues: dead(Kind::Dialogues) };
        let mut manifest = reader.manifest().clone();
        for kind in Kind::ALL {
            let extent = manifest.extent_mut(kind);
            let at = reached[kind.place()];
            extent.reached = extent.reached.as_ref().map(|_| self.reached(at));
        }
        if dropped == Dropped::default() {
            for kind in Kind::ALL {
                // Cuts off what a kill has left behind the rows that count.
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

    fn reached(&self, at: Position) -> Reached {
        Reached { log: self.snapshot.log_id().to_owned(), at }
    }

    /// Counts every dialogue, and gives for each kind the place in the log before which everything has its vector.
    fn look_at_all(&mut self, coverage: &Coverage<'_>) -> Result<[Position; 2]> {
        let mut complete_to: [Option<Position>; 2] = [None; 2];
        let mut changes = self.snapshot.changes(Position::START);
        let mut before = Position::START;
        let mut seen = 0;
        while let Some(change) = changes.next_change() {
            if let Change::Put { dialogue, live: true } = change? {
                coverage.add(&dialogue);
                for kind in Kind::ALL {
                    let place = &mut complete_to[kind.place()];
                    if place.is_none() && coverage.without(kind) > 0 {
                        *place = Some(before);
                    }
                }
                seen += 1;
                (self.progress)(seen);
                self.ask()?;
            }
            before = changes.position();
        }
        Ok(complete_to.map(|place| place.unwrap_or(self.snapshot.end())))
    }

    /// Copies the rows in use; the manifest that counts them comes last.
    fn fill(
        &self,
        set: &Path,
        mut manifest: Manifest,
        reader: &VectorReader,
        coverage: &Coverage<'_>,
    ) -> Result<()> {
        for kind in Kind::ALL {
            let mut out = ColumnWriter::open(set, kind, reader.dim(), 0)?;
            for (row, key) in reader.keys(kind).enumerate().filter(|(row, _)| coverage.is_live(kind, *row)) {
                out.append(&key, reader.row(kind, row)?)?;
                self.ask()?;
            }
            out.flush()?;
            let rows = out.rows();
            if rows > 0 {
                table::write(&table::path(set, kind), &Column::open(set, kind, reader.dim(), rows)?)?;
            }
            manifest.extent_mut(kind).rows = rows;
        }
        manifest.write(set)
    }

    fn ask(&self) -> Result<()> {
        match (self.stop)() {
            true => Err(Error::Interrupted { hint: Some("the vectors are as they were".to_owned()) }),
            false => Ok(()),
        }
    }
}
