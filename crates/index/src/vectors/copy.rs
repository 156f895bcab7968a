//! Copies vectors into a backup and back, row by row, and verifies their checksums.

use std::path::Path;

use crate::vectors::{VectorReader, column::ColumnWriter, key::Kind, manifest::Manifest, sets, writer};
use turnwise_core::{error::Result, files};

/// Copies the vectors in use, as of their last commit, into a backup. Returns the number of vectors, or `None`
/// if there are none. Damaged vectors are an error; the backup then contains no vectors.
pub fn backup(root: &Path, target: &Path) -> Result<Option<u64>> {
    copy(root, target).inspect_err(|_| forget(target))
}

/// Copies vectors from a backup into a newly restored index without vectors.
pub fn restore(source: &Path, root: &Path, command: &str) -> Result<Option<u64>> {
    if !sets::exists(source) {
        return Ok(None);
    }
    let _lock = writer::lock(root, command)?;
    copy(source, root).inspect_err(|_| forget(root))
}

fn forget(root: &Path) {
    // Files that cannot be removed do no harm: their manifest has no rows.
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
