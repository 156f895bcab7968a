//! Vectors in a backup, and back: copied row by row with their checksums compared on the way.

use std::path::Path;

use crate::vectors::{VectorReader, column::ColumnWriter, key::Kind, manifest::Manifest, sets, writer};
use turnwise_core::{error::Result, files};

/// Copies the vectors in use, as of their last commit, beside the files of a backup. Gives the number of vectors, or
/// `None` where there are none. Damage is an error, and nothing of the vectors is left in the backup then.
pub fn backup(root: &Path, target: &Path) -> Result<Option<u64>> {
    copy(root, target).inspect_err(|_| forget(target))
}

/// The way back, into an index that was just restored and has none.
pub fn restore(source: &Path, root: &Path, command: &str) -> Result<Option<u64>> {
    if !sets::exists(source) {
        return Ok(None);
    }
    let _lock = writer::lock(root, command)?;
    copy(source, root).inspect_err(|_| forget(root))
}

fn forget(root: &Path) {
    // What cannot be removed counts no rows: it is as if it were not there.
    let _ = files::remove_folder(&sets::folder(root));
}

fn copy(from: &Path, to: &Path) -> Result<Option<u64>> {
    let Some(reader) = VectorReader::open(from)? else { return Ok(None) };
    let mut manifest = Manifest::new(reader.recipe().clone());
    let set = sets::create(to, &manifest)?;
    // Without rows until all of them are there.
    sets::switch(to, &set)?;
    let mut copied = 0;
    for kind in Kind::ALL {
        let mut out = ColumnWriter::open(&set, kind, reader.dim(), 0)?;
        for (row, key) in reader.keys(kind).enumerate() {
            out.append(&key, reader.row(kind, row)?)?;
        }
        out.flush()?;
        copied += out.rows();
        let extent = manifest.extent_mut(kind);
        extent.rows = out.rows();
        extent.reached.clone_from(&reader.manifest().extent(kind).reached);
    }
    manifest.write(&set)?;
    Ok(Some(copied))
}
