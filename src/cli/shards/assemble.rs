//! Putting shards together: each is read once, row by row, whatever it is put into.

use crate::cli::{
    embeddings::reading,
    shards::{Place, Record, Temporary, contents},
};
use turnwise_core::{
    error::{Error, Result},
    ids::IdKey,
};
use turnwise_index::vectors::Kind;

/// What shards are put into: the vectors of an index here, and whatever else takes rows by their keys.
pub(crate) trait Destination {
    /// Takes a row; `false` if it has the row of this key already.
    fn put(&mut self, kind: Kind, key: IdKey, row: &[f32]) -> Result<bool>;

    /// Makes last what was put.
    fn commit(&mut self) -> Result<()>;
}

/// How many rows a shard had, and how many of them were new.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Loaded {
    pub(crate) rows: u64,
    pub(crate) new: u64,
}

/// Whether the bytes of a shard's data file are those that were committed.
pub(crate) fn is_whole(place: &dyn Place, record: &Record) -> Result<bool> {
    is_committed(&place.fetch(&record.data.file)?, record)
}

fn is_committed(file: &Temporary, record: &Record) -> Result<bool> {
    Ok(file.sum()? == (record.data.bytes, record.data.blake3.clone()))
}

/// Puts a shard into a destination. Its bytes are compared with its record first: what is torn is not put anywhere.
pub(crate) fn load(place: &dyn Place, record: &Record, destination: &mut dyn Destination) -> Result<Loaded> {
    let file = place.fetch(&record.data.file)?;
    // Bytes at hand were compared before the first shard was put in.
    if !place.is_near() && !is_committed(&file, record)? {
        return Err(changed(record));
    }
    let mut loaded = Loaded::default();
    let mut counts = [0; 2];
    reading::each(&file.path, record.data.target, &mut |id, row| {
        let (kind, key) = contents::named_row(id)
            .ok_or_else(|| Error::data(format!("`{id}` in {} names no row of a shard", record.data.file)))?;
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

/// The error about a data file that is not what was committed.
fn changed(record: &Record) -> Error {
    Error::data(format!("{} is torn: {} is not what was committed", record.shard, record.data.file))
}
