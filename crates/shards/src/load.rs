//! Assembles shards: reads each shard once, row by row, into a destination.

use crate::cli::{
    embeddings::reading,
    shards::{Place, Record, Temporary, contents},
};
use turnwise_core::{
    error::{Error, Result},
    ids::IdKey,
};
use turnwise_index::vectors::Kind;

/// Destination of shard rows, such as the vectors of an index.
pub(crate) trait Destination {
    /// Adds a row. Returns `false` if the key is already there.
    fn put(&mut self, kind: Kind, key: IdKey, row: &[f32]) -> Result<bool>;

    /// Persists the added rows.
    fn commit(&mut self) -> Result<()>;
}

/// Number of rows in a shard, and how many of them were new.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Loaded {
    pub(crate) rows: u64,
    pub(crate) new: u64,
}

/// Whether the checksum of a shard's data file matches its record.
pub(crate) fn is_whole(place: &dyn Place, record: &Record) -> Result<bool> {
    is_committed(&place.fetch(&record.data.file)?, record)
}

fn is_committed(file: &Temporary, record: &Record) -> Result<bool> {
    Ok(file.sum()? == (record.data.bytes, record.data.blake3.clone()))
}

/// Loads a shard into a destination. Verifies the checksum first, so no row of a damaged file is used.
pub(crate) fn load(place: &dyn Place, record: &Record, destination: &mut dyn Destination) -> Result<Loaded> {
    let file = place.fetch(&record.data.file)?;
    // Local files were verified before the first shard was loaded.
    if !place.is_local() && !is_committed(&file, record)? {
        return Err(changed(record));
    }
    let mut loaded = Loaded::default();
    let mut counts = [0; 2];
    reading::each(&file.path, record.data.target, &mut |id, row| {
        let (kind, key) = contents::parse_row_id(id).ok_or_else(|| {
            Error::data(format!("`{id}` in {} is not a valid row id of a shard", record.data.file))
        })?;
        if row.len() != record.recipe.dim {
            return Err(changed(record));
        }
        counts[kind as usize] += 1;
        loaded.rows += 1;
        loaded.new += u64::from(destination.put(kind, key, row)?);
        Ok(())
    })?;
    match Kind::ALL.into_iter().all(|kind| record.rows(kind).unwrap_or_default() == counts[kind as usize]) {
        true => destination.commit().map(|()| loaded),
        false => Err(changed(record)),
    }
}

/// Error for a data file that differs from its record.
fn changed(record: &Record) -> Error {
    Error::data(format!(
        "shard {} is damaged: the content of {} differs from its record",
        record.shard, record.data.file
    ))
}
