//! Lists dialogues page by page.

use milvus::v2::request::dql::QueryRequest;

use super::{
    connection::Connection,
    expression,
    manifest::Manifest,
    names,
    reading::{columns, unexpected_data},
    rows::{key_of, key_text, version_in},
};
use turnwise_core::{error::Result, ids::IdKey};
use turnwise_corpus::{Dialogue, filter::Filter};
use turnwise_index::{engine::Version, vectors::Kind};

/// Maximum number of rows read per call, to keep calls short.
const PAGE: usize = 200;

impl Connection {
    /// Lists the next dialogues that match a filter, at most `most`, in key order, and the key to continue
    /// after. The key is `None` at the end. The record and the filter itself decide: the columns in Milvus may
    /// belong to an old version.
    pub(super) fn list_dialogues(
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
        // A row id is the key, a hyphen and the version. A full stop sorts after the hyphen.
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

    /// Reads the next rows of dialogues, sorted by row id.
    fn next_rows(&self, manifest: &Manifest, filter: &str, most: usize) -> Result<Vec<(IdKey, Version)>> {
        // The iterators of Milvus' own clients set these parameters. Without them, a limit returns arbitrary
        // rows instead of the first ones.
        let in_order = ["iterator", "reduce_stop_for_best"].map(|name| (name.to_owned(), "true".to_owned()));
        let request = QueryRequest::builder()
            .collection_name(manifest.rows(&self.target.name, Kind::Dialogues))
            .filter(filter)
            .output_fields(["id", "key", "version"])
            .limit(most as i64)
            .extra_params(in_order.into())
            .consistency_level(self.consistency())
            .build();
        let answer = self.call("listing", async { self.client.query(request?).await })?;
        let results = answer.results();
        let answer = columns(results);
        let (names, keys) = (answer.texts("id"), answer.texts("key"));
        let versions = answer.numbers("version");
        if [keys.len(), versions.len()] != [names.len(); 2] {
            return Err(unexpected_data(&self.target.to_string(), "columns of different lengths"));
        }
        let mut rows = Vec::with_capacity(names.len());
        for ((name, key), version) in names.iter().zip(keys).zip(versions) {
            let key = key_of(key)
                .ok_or_else(|| unexpected_data(&self.target.to_string(), "a row without a key"))?;
            rows.push((name, (key, version_in(*version))));
        }
        rows.sort_by_key(|(name, _)| *name);
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }
}
