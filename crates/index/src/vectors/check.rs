//! Verifies vectors and repairs them. A repair keeps every row with correct checksums.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::vectors::{
    Kind,
    column::{BadChecksum, Column, keys_path, rows_path, write_all},
    sets,
    sets::{Manifest, Reached},
    table, writer,
};
use turnwise_core::{
    error::{Error, Result},
    files,
};
use turnwise_store::{Position, verify::Damage};

const MAX_LISTED: usize = 20;

/// Result of [`check`].
#[derive(Debug, Default, Serialize)]
pub struct VectorCheck {
    /// Number of utterance vectors verified.
    pub utterances: u64,
    /// Number of dialogue vectors verified.
    pub dialogues: u64,
    /// Damaged files and rows; empty if the vectors are intact.
    #[serde(skip)]
    pub damage: Vec<Damage>,
}

/// Verifies the vectors of an index. Returns `None` if the index has no vectors.
pub fn check(root: &Path) -> Result<Option<VectorCheck>> {
    let mut checked = VectorCheck::default();
    let open = |set: PathBuf| Ok((Manifest::read(&set)?, set));
    let (manifest, set) = match sets::current(root).and_then(|set| set.map(open).transpose()) {
        Ok(None) => return Ok(None),
        Ok(Some(opened)) => opened,
        Err(e) => {
            checked.damage.push(damage(e)?);
            return Ok(Some(checked));
        }
    };
    for kind in Kind::ALL {
        let rows = manifest.extent(kind).rows;
        let column = match Column::open(&set, kind, manifest.recipe.dim, rows) {
            Ok(column) => column,
            Err(e) => {
                checked.damage.push(damage(e)?);
                continue;
            }
        };
        match kind {
            Kind::Utterances => checked.utterances = rows,
            Kind::Dialogues => checked.dialogues = rows,
        }
        checked.damage.extend(damaged_rows(&set, kind, &column));
        if let Some((path, what)) = table::check(&set, kind, &column) {
            checked.damage.push(Damage { path, what: what.to_owned() });
        }
    }
    Ok(Some(checked))
}

/// Verifies the checksums of all rows. Returns at most [`MAX_LISTED`] damaged rows. If more rows are damaged, a last
/// entry states how many more.
fn damaged_rows(set: &Path, kind: Kind, column: &Column) -> Vec<Damage> {
    let mut listed = Vec::new();
    let mut more = 0u64;
    for row in 0..column.count() {
        let (path, what) = match column.checked(row) {
            Ok(_) => continue,
            Err(BadChecksum::Entry) => (keys_path(set, kind), "the checksum of the key is wrong"),
            Err(BadChecksum::Row) => (rows_path(set, kind), "the checksum of the vector is wrong"),
        };
        match listed.len() < MAX_LISTED {
            true => listed.push(Damage { path, what: format!("row {row}: {what}") }),
            false => more += 1,
        }
    }
    if more > 0 {
        listed.push(Damage { path: set.to_owned(), what: format!("{more} more rows are damaged") });
    }
    listed
}

/// Converts an error about a damaged file to [`Damage`]. Returns any other error as an error.
fn damage(e: Error) -> Result<Damage> {
    match e {
        Error::Corrupt { path, what, .. } => Ok(Damage { path, what }),
        other => Err(other),
    }
}

/// Result of [`repair`].
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct RepairReport {
    /// Number of undamaged vectors, which stay in the index.
    pub kept: u64,
    /// Number of damaged or missing vectors. The next encoding run creates them again.
    pub dropped: u64,
    /// True if all vectors were removed, because the vector set in use could not be found, or because its manifest
    /// could not be read.
    pub all_removed: bool,
    /// Number of damaged lookup tables that were removed. The next encoding run builds them again.
    pub tables: u64,
}

/// Removes the damaged vectors of an index. Returns `None` if the index has no vectors. After a crash, the next call
/// finishes the repair.
pub fn repair(root: &Path, command: &str) -> Result<Option<RepairReport>> {
    if !sets::exists(root) {
        return Ok(None);
    }
    let _lock = writer::lock(root, command)?;
    let Some((set, manifest)) = usable(root)? else {
        files::remove_folder(&sets::folder(root))?;
        return Ok(Some(RepairReport { all_removed: true, ..RepairReport::default() }));
    };
    let mut repaired = RepairReport::default();
    let mut columns = Vec::new();
    for kind in Kind::ALL {
        let rows = manifest.extent(kind).rows;
        let column = Column::open_available(&set, kind, manifest.recipe.dim, rows)?;
        let sound = (0..column.count()).filter(|row| column.checked(*row).is_ok()).count() as u64;
        repaired.kept += sound;
        repaired.dropped += rows - sound;
        if let Some((path, _)) = table::check(&set, kind, &column)
            && fs::remove_file(&path).is_ok()
        {
            repaired.tables += 1;
        }
        columns.push((kind, column));
    }
    if repaired.dropped > 0 {
        let rebuilt = keep_sound(root, &manifest, &columns)?;
        sets::switch(root, &rebuilt)?;
        drop(columns);
        sets::remove(&set);
    }
    Ok(Some(repaired))
}

/// Returns the folder and the manifest of the vector set in use. If `current.json` is damaged and exactly one set is
/// readable, switches to that set. Returns `None` if there is no usable set.
fn usable(root: &Path) -> Result<Option<(PathBuf, Manifest)>> {
    let set = match sets::current(root) {
        Ok(Some(set)) => set,
        Ok(None) => return Ok(None),
        Err(Error::Corrupt { .. }) => {
            let readable: Vec<PathBuf> =
                sets::all(root).into_iter().filter(|set| Manifest::read(set).is_ok()).collect();
            let [only] = readable.as_slice() else { return Ok(None) };
            sets::switch(root, only)?;
            only.clone()
        }
        Err(e) => return Err(e),
    };
    match Manifest::read(&set) {
        Ok(manifest) => Ok(Some((set, manifest))),
        Err(Error::Corrupt { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Copies the undamaged rows to a new vector set, and returns the folder of the new set. The log position of the new
/// set is the start of the log, so the next encoding run adds the missing vectors.
fn keep_sound(root: &Path, manifest: &Manifest, columns: &[(Kind, Column)]) -> Result<PathBuf> {
    let mut kept = Manifest::new(manifest.recipe.clone());
    let set = sets::create(root, &kept)?;
    for (kind, column) in columns {
        let sound = |row| column.checked(row).ok().map(|vector| Ok((column.key(row), vector)));
        let extent = kept.extent_mut(*kind);
        extent.rows = write_all(&set, *kind, manifest.recipe.dim, (0..column.count()).filter_map(sound))?;
        let start = |_: &Reached| Reached { log: String::new(), at: Position::START };
        extent.reached = manifest.extent(*kind).reached.as_ref().map(start);
    }
    kept.write(&set)?;
    Ok(set)
}
