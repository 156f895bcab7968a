//! Verifies all checksums and lengths of the vectors in use, read-only.

use std::path::Path;

use serde::Serialize;

use crate::vectors::{
    column::{BadChecksum, Column, keys_path, rows_path},
    key::Kind,
    manifest::Manifest,
    sets, table,
};
use turnwise_core::error::{Error, Result};
use turnwise_store::verify::Damage;

/// Maximum number of damaged rows to list.
const MAX_LISTED: usize = 20;

/// Result of the verification.
#[derive(Debug, Default, Serialize)]
pub struct Checked {
    /// Number of utterance vectors verified.
    pub utterances: u64,
    /// Number of dialogue vectors verified.
    pub dialogues: u64,
    /// All damage found.
    #[serde(skip)]
    pub damage: Vec<Damage>,
}

/// Verifies the vectors of an index. Returns `None` if the index has no vectors.
pub fn check(root: &Path) -> Result<Option<Checked>> {
    let mut checked = Checked::default();
    let set = match sets::current(root) {
        Ok(None) => return Ok(None),
        Ok(Some(set)) => set,
        Err(e) => {
            checked.damage.push(damage(e)?);
            return Ok(Some(checked));
        }
    };
    let manifest = match Manifest::read(&set) {
        Ok(manifest) => manifest,
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

fn damage(e: Error) -> Result<Damage> {
    match e {
        Error::Corrupt { path, what, .. } => Ok(Damage { path, what }),
        other => Err(other),
    }
}
