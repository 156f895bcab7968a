//! Reading of rows by id or key, and listing of dialogues page by page. If a response is too large for the client, the
//! rows are requested in smaller groups.

use std::collections::{BTreeMap, HashMap};

use milvus::v2::{FieldData, QueryResults, error::Error as Failure, request::dql::QueryRequest};

use super::{
    connection::{Connection, failed, is_too_large, wait},
    expression,
    generations::Manifest,
    names,
    rows::{Answer, key_of, key_text},
};
use turnwise_core::{
    error::{Error, Result},
    ids::IdKey,
};
use turnwise_corpus::{Dialogue, filter::Filter};
use turnwise_index::{engine::Version, vectors::Kind};
use turnwise_store::Totals;

pub(super) const DEEPEST: usize = 16_384;
const AT_ONCE: usize = 1_000;
/// Number of pieces that are requested at a time if the pieces of a record do not fit into one response.
const PIECES: usize = 32;
/// Maximum number of dialogues that one call of `list_dialogues` reads. This limit keeps the calls short.
const PAGE: usize = 200;

/// Current version of a dialogue.
pub(super) type Current = (Version, Dialogue);

pub(super) fn columns(results: &QueryResults) -> Answer<'_> {
    Answer(results.get_output_fields())
}

/// Creates the error for rows that turnwise did not write. `what` describes what is wrong with them.
pub(super) fn unexpected_data(place: &str, what: &str) -> Error {
    Error::unavailable(format!("{place} returned data that turnwise did not write: {what}"))
        .with_hint("check whether another program writes to its collections")
}

impl Connection {
    pub(super) fn totals(&self, manifest: &Manifest) -> Result<Totals> {
        let count = |kind| self.count(&manifest.rows(&self.target.name, kind));
        Ok(Totals { dialogues: count(Kind::Dialogues)?, turns: count(Kind::Utterances)? })
    }

    pub(super) fn count(&self, collection: &str) -> Result<u64> {
        let request = QueryRequest::builder()
            .collection_name(collection)
            .output_fields(["count(*)"])
            .consistency_level(self.target.consistency)
            .build();
        let answer = self.call("counting", async { self.client.query(request?).await })?;
        let count = match answer.results().get_output_fields().first() {
            Some(FieldData::Int64 { values, .. }) => values.first().copied().unwrap_or(0),
            _ => 0,
        };
        Ok(count.unsigned_abs())
    }

    /// Reads the given columns of the rows that match the expression `filter`. Reads at most [`DEEPEST`] rows.
    pub(super) fn rows(&self, collection: &str, filter: &str, columns: &[&str]) -> Result<QueryResults> {
        self.first_rows(collection, filter, columns, DEEPEST)
    }

    /// Reads rows like [`Self::rows`], but at most `most`.
    pub(super) fn first_rows(
        &self,
        collection: &str,
        filter: &str,
        columns: &[&str],
        most: usize,
    ) -> Result<QueryResults> {
        self.query(collection, filter, columns, most)?.map_err(|e| failed(&self.target, "reading", &e))
    }

    /// Reads rows like [`Self::first_rows`]. If the response is too large for the client, returns `Ok(Err(failure))`, because
    /// the caller can then request fewer rows. Returns any other failure as `Err`.
    fn query(
        &self,
        collection: &str,
        filter: &str,
        columns: &[&str],
        most: usize,
    ) -> Result<Result<QueryResults, Failure>> {
        let request = QueryRequest::builder()
            .collection_name(collection)
            .filter(filter)
            .output_fields(columns.iter().copied())
            .limit(most as i64)
            .consistency_level(self.target.consistency)
            .build();
        match wait(async { self.client.query(request?).await })? {
            Ok(answer) => Ok(Ok(answer.results().clone())),
            Err(e) if is_too_large(&e) => Ok(Err(e)),
            Err(e) => Err(failed(&self.target, "reading", &e)),
        }
    }

    /// Reads the columns `wanted` of the rows in which `column` has one of the values in `of`. Calls `visit` with each
    /// response. Returns the values whose rows do not fit into one response. The rows of these values are not read.
    pub(super) fn rows_by(
        &self,
        collection: &str,
        column: &str,
        of: &[String],
        wanted: &[&str],
        visit: &mut dyn FnMut(&Answer<'_>) -> Result<()>,
    ) -> Result<Vec<String>> {
        let mut parts: Vec<&[String]> = of.chunks(AT_ONCE).rev().collect();
        let mut alone = Vec::new();
        while let Some(part) = parts.pop() {
            let quoted: Vec<String> = part.iter().map(|name| names::quoted(name)).collect();
            let filter = format!("{column} in [{}]", quoted.join(", "));
            match self.query(collection, &filter, wanted, DEEPEST)? {
                Ok(results) if columns(&results).texts(column).len() < DEEPEST => {
                    visit(&columns(&results))?;
                }
                _ if part.len() > 1 => {
                    let (left, right) = part.split_at(part.len() / 2);
                    parts.extend([right, left]);
                }
                _ => alone.extend_from_slice(part),
            }
        }
        Ok(alone)
    }

    /// Reads the current versions of the dialogues with these keys. Omits dialogues that do not exist.
    pub(super) fn dialogues(
        &self,
        manifest: &Manifest,
        keys: &[IdKey],
    ) -> Result<HashMap<IdKey, (Version, Dialogue)>> {
        let records = &manifest.records(&self.target.name);
        let keys: Vec<String> = keys.iter().map(|key| key_text(*key)).collect();
        let mut read = Pieces::default();
        let place = self.target.to_string();
        let large = self.rows_by(records, "key", &keys, &COLUMNS, &mut |answer| read.add(answer, &place))?;
        for key in large {
            for first in (0..).step_by(PIECES) {
                let filter = format!(
                    "key == {} and piece >= {first} and piece < {}",
                    names::quoted(&key),
                    first + PIECES
                );
                let results = self.rows(records, &filter, &COLUMNS)?;
                read.add(&columns(&results), &place)?;
                if columns(&results).texts("key").is_empty() {
                    break;
                }
            }
        }
        read.assemble(&place)
    }

    /// Returns at most `most` of the next dialogues that match a filter, in key order. Starts after the key `after`, if
    /// there is one. Also returns the key after which the next call must continue, or `None` if there are no further
    /// dialogues. The list can be empty although more dialogues follow.
    ///
    /// Applies the filter again to the records, because the filter columns in Milvus may belong to an old version.
    pub(super) fn list_dialogues(
        &self,
        manifest: &Manifest,
        after: Option<IdKey>,
        filter: Option<&Filter>,
        most: usize,
    ) -> Result<(Vec<Current>, Option<IdKey>)> {
        let page = most.clamp(1, PAGE);
        let mut conditions = Vec::new();
        if let Some(filter) = filter {
            conditions.push(expression::of(filter, Kind::Dialogues, manifest)?);
        }
        // A row id consists of the key, a hyphen and the version. A full stop sorts after a hyphen, so this condition
        // skips the rows of all versions of the dialogue `after`.
        conditions.extend(after.map(|key| format!("id > {}", names::quoted(&format!("{}.", key_text(key))))));
        let mut rows = self.next_rows(manifest, &conditions.join(" and "), page)?;
        let ended = rows.len() < page;
        rows.truncate(page);
        let last = rows.last().map(|(key, _)| *key);
        let keys: Vec<IdKey> = rows.iter().map(|(key, _)| *key).collect();
        let mut records = self.dialogues(manifest, &keys)?;
        let found = rows.into_iter().filter_map(|(key, version)| {
            let (_, dialogue) = records.remove(&key).filter(|(counts, _)| *counts == version)?;
            filter.is_none_or(|filter| filter.matches(&dialogue)).then_some((version, dialogue))
        });
        Ok((found.collect(), last.filter(|_| !ended)))
    }

    fn next_rows(&self, manifest: &Manifest, filter: &str, most: usize) -> Result<Vec<(IdKey, Version)>> {
        // The iterators of Milvus' own clients set these parameters. Without them, a request with a limit returns
        // arbitrary rows instead of the first rows.
        let in_order = ["iterator", "reduce_stop_for_best"].map(|name| (name.to_owned(), "true".to_owned()));
        let request = QueryRequest::builder()
            .collection_name(manifest.rows(&self.target.name, Kind::Dialogues))
            .filter(filter)
            .output_fields(["id", "key", "version"])
            .limit(most as i64)
            .extra_params(in_order.into())
            .consistency_level(self.target.consistency)
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
            rows.push((name, (key, Version(*version as u64))));
        }
        rows.sort_by_key(|(name, _)| *name);
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }
}

const COLUMNS: [&str; 5] = ["key", "version", "piece", "pieces", "json"];

/// Pieces of records that were read from responses.
#[derive(Default)]
struct Pieces {
    /// Current version of each dialogue and the number of pieces of its record. Both are stored in the first piece.
    first: HashMap<IdKey, (i64, i64)>,
    /// Texts of the pieces, by dialogue and version, and then by the number of the piece.
    texts: HashMap<(IdKey, i64), BTreeMap<i64, String>>,
}

impl Pieces {
    fn add(&mut self, answer: &Answer<'_>, place: &str) -> Result<()> {
        let (keys, versions) = (answer.texts("key"), answer.numbers("version"));
        let (numbers, counts, texts) =
            (answer.numbers("piece"), answer.numbers("pieces"), answer.texts("json"));
        let row = |n: usize| Some((*versions.get(n)?, *numbers.get(n)?, *counts.get(n)?, texts.get(n)?));
        for (n, key) in keys.iter().enumerate() {
            let (Some(key), Some((version, number, count, text))) = (key_of(key), row(n)) else {
                return Err(unexpected_data(place, "a piece of a record lacks columns"));
            };
            if number == 0 {
                self.first.insert(key, (version, count));
            }
            self.texts.entry((key, version)).or_default().insert(number, text.clone());
        }
        Ok(())
    }

    fn assemble(self, place: &str) -> Result<HashMap<IdKey, (Version, Dialogue)>> {
        let Pieces { first, texts } = self;
        let mut read = HashMap::with_capacity(first.len());
        for (key, (version, count)) in first {
            let Some(pieces) = texts.get(&(key, version)).filter(|pieces| pieces.len() as i64 == count)
            else {
                return Err(unexpected_data(place, "a record has missing pieces"));
            };
            let json: String = pieces.values().map(String::as_str).collect();
            let dialogue = serde_json::from_str(&json)
                .map_err(|e| unexpected_data(place, &format!("a record is not valid JSON: {e}")))?;
            read.insert(key, (Version(version as u64), dialogue));
        }
        Ok(read)
    }
}
