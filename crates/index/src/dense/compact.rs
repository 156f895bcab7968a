//! Rebuilds graphs after their vectors or their log were compacted.

use std::path::Path;

use turnwise_nearest::{BuildOptions, Builder};

use super::{
    build::{self, set_of},
    folder,
    generation::{self, Generation},
    progress::Progress,
};
use crate::vectors::VectorReader;
use turnwise_core::{
    error::{Error, Result},
    files,
};
use turnwise_store::Snapshot;

/// Builds a new generation if the generation in use belongs to other vectors or to another log. Returns true if a
/// generation was built. Removes unfinished builds, and graphs whose vectors no longer exist. An index without graphs
/// stays without graphs.
pub fn compact(root: &Path, snapshot: &Snapshot, command: &str, watch: &dyn Progress) -> Result<bool> {
    if !folder(root).is_dir() {
        return Ok(false);
    }
    let _lock = build::lock(root, command)?;
    let builder = match (VectorReader::open(root)?, Generation::open(root)) {
        (None, _) | (_, Ok(None)) => {
            files::remove_folder(&folder(root))?;
            return Ok(false);
        }
        (Some(vectors), Ok(Some(generation))) => {
            let manifest = &generation.manifest;
            if manifest.vectors == set_of(&vectors) && manifest.log == snapshot.log_id() {
                generation::remove_others(root, &generation.folder);
                return Ok(false);
            }
            Builder::ALL.into_iter().find(|builder| builder.name() == manifest.builder)
        }
        (Some(_), Err(Error::Corrupt { .. })) => None,
        (Some(_), Err(e)) => return Err(e),
    };
    let Some(vectors) = VectorReader::open(root)? else { return Ok(false) };
    let options = BuildOptions { builder: builder.unwrap_or(Builder::Native), ..BuildOptions::default() };
    build::make(root, snapshot, &vectors, &options, watch).map(|_| true)
}
