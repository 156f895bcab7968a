//! Reading dialogues: putting the pieces of their records together, and going over all of them.

use std::collections::{BTreeMap, HashMap};

use milvus::v2::request::dql::QueryRequest;

use super::{
    connection::Connection,
    engine::columns,
    expression,
    manifest::Manifest,
    names,
    rows::{Answer, Version, key_of, key_text},
};
use crate::{
    corpus::{Dialogue, filter::Filter},
    error::{Error, Result},
    ids::IdKey,
    index::vectors::Kind,
};

/// So many records are asked for at once.
const AT_ONCE: usize = 1_000;
/// So many rows of a list are looked at before others have their turn.
const PAGE: usize = 200;

type Records = HashMap<IdKey, (Version, Dialogue)>;

impl Connection {
    /// The dialogues of these keys, as far as they are there.
    pub(super) fn records(&self, manifest: &Manifest, keys: &[IdKey]) -> Result<Records> {
        let mut read = Records::new();
        for some in keys.chunks(AT_ONCE) {
            let names: Vec<String> = some.iter().map(|key| names::quoted(&key_text(*key))).collect();
            let filter = format!("key in [{}]", names.join(", "));
            let wanted = ["key", "version", "piece", "pieces", "json"];
            let results = self.rows(&manifest.records(&self.target.name), filter, &wanted)?;
            self.put_together(&columns(&results), &mut read)?;
        }
        Ok(read)
    }

    /// Makes dialogues of their pieces. The first piece says which version counts.
    fn put_together(&self, answer: &Answer<'_>, read: &mut Records) -> Result<()> {
        let (keys, versions) = (answer.texts("key"), answer.numbers("version"));
        let (numbers, counts, texts) =
            (answer.numbers("piece"), answer.numbers("pieces"), answer.texts("json"));
        let row = |n: usize| Some((*versions.get(n)?, *numbers.get(n)?, *counts.get(n)?, texts.get(n)?));
        let mut first: HashMap<IdKey, (i64, i64)> = HashMap::new();
        let mut pieces: HashMap<(IdKey, i64), BTreeMap<i64, &str>> = HashMap::new();
        for (n, key) in keys.iter().enumerate() {
            let (Some(key), Some((version, number, count, text))) = (key_of(key), row(n)) else {
                return Err(self.odd("a piece of a record without its columns"));
            };
            if number == 0 {
                first.insert(key, (version, count));
            }
            pieces.entry((key, version)).or_default().insert(number, text);
        }
        for (key, (version, count)) in first {
            let Some(pieces) = pieces.get(&(key, version)).filter(|pieces| pieces.len() as i64 == count)
            else {
                return Err(self.odd("a record of which pieces are missing"));
            };
            let json: String = pieces.values().copied().collect();
            let dialogue =
                serde_json::from_str(&json).map_err(|e| self.odd(&format!("a record that is none: {e}")))?;
            read.insert(key, (Version(version), dialogue));
        }
        Ok(())
    }

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
        let mut records = self.records(manifest, &keys)?;
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
            return Err(self.odd("columns of different lengths"));
        }
        let mut rows = Vec::with_capacity(names.len());
        for ((name, key), version) in names.iter().zip(keys).zip(versions) {
            let key = key_of(key).ok_or_else(|| self.odd("a row without a key"))?;
            rows.push((name, (key, Version(*version))));
        }
        rows.sort_by_key(|(name, _)| *name);
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }

    /// That something is there which turnwise did not write.
    pub(super) fn odd(&self, what: &str) -> Error {
        Error::Unavailable {
            message: format!("{} gave what turnwise did not put there: {what}", self.target),
            hint: Some("does something else write to its collections?".to_owned()),
        }
    }
}
