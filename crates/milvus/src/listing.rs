//! Listing dialogues, some at a time.

use milvus::v2::request::dql::QueryRequest;

use super::{
    connection::Connection,
    expression,
    manifest::Manifest,
    names,
    reading::{columns, odd},
    rows::{Version, key_of, key_text},
};
use turnwise_core::{error::Result, ids::IdKey};
use turnwise_corpus::{Dialogue, filter::Filter};
use turnwise_index::vectors::Kind;

/// So many rows of a list are looked at before others have their turn.
const PAGE: usize = 200;

impl Connection {
    /// Up to so many of the next dialogues that fit, in the order of their keys, and the key to go on behind; `None` at the
    /// end. What Milvus says of a row is not enough: the record, and the filter itself, have the last word.
    pub(super) fn listed(
        &self,
        manifest: &Manifest,
        behind: Option<IdKey>,
        filter: Option<&Filter>,
        most: usize,
    ) -> Result<(Vec<Dialogue>, Option<IdKey>)> {
        let page = most.clamp(1, PAGE);
        let mut conditions = Vec::new();
        if let Some(filter) = filter {
            conditions.push(expression::of(filter, Kind::Dialogues)?);
        }
        // A row's name is its dialogue's key, a hyphen and its version; a full stop comes behind the hyphen.
        conditions
            .extend(behind.map(|key| format!("id > {}", names::quoted(&format!("{}.", key_text(key))))));
        let mut rows = self.next_rows(manifest, &conditions.join(" and "), page)?;
        let ended = rows.len() < page;
        rows.truncate(page);
        let last = rows.last().map(|(key, _)| *key);
        let keys: Vec<IdKey> = rows.iter().map(|(key, _)| *key).collect();
        let mut records = self.dialogues(manifest, &keys)?;
        let found = rows.into_iter().filter_map(|(key, version)| {
            let (_, dialogue) = records.remove(&key).filter(|(counts, _)| *counts == version)?;
            filter.is_none_or(|filter| filter.matches(&dialogue)).then_some(dialogue)
        });
        Ok((found.collect(), last.filter(|_| !ended)))
    }

    /// The next rows of dialogues in the order of their names.
    fn next_rows(&self, manifest: &Manifest, filter: &str, most: usize) -> Result<Vec<(IdKey, Version)>> {
        // As the walks of Milvus' own clients ask for it: without these a limit leaves out any rows, not the last ones.
        let in_order = ["iterator", "reduce_stop_for_best"].map(|name| (name.to_owned(), "true".to_owned()));
        let request = QueryRequest::builder()
            .collection_name(manifest.rows(&self.target.name, Kind::Dialogues))
            .filter(filter)
            .output_fields(["id", "key", "version"])
            .limit(most as i64)
            .extra_params(in_order.into())
            .consistency_level(self.consistency())
            .build();
        let answer = self.ask("listing", async { self.client.query(request?).await })?;
        let results = answer.results();
        let answer = columns(results);
        let (names, keys) = (answer.texts("id"), answer.texts("key"));
        let versions = answer.numbers("version");
        if [keys.len(), versions.len()] != [names.len(); 2] {
            return Err(odd(&self.target.to_string(), "columns of different lengths"));
        }
        let mut rows = Vec::with_capacity(names.len());
        for ((name, key), version) in names.iter().zip(keys).zip(versions) {
            let key = key_of(key).ok_or_else(|| odd(&self.target.to_string(), "a row without a key"))?;
            rows.push((name, (key, Version(*version))));
        }
        rows.sort_by_key(|(name, _)| *name);
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }
}
