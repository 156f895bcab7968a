//! Reading rows by their names, however large they are: an answer that is larger than the client takes is asked for in parts.

use std::collections::{BTreeMap, HashMap};

use milvus::v2::{FieldData, QueryResults, error::Error as Failure, request::dql::QueryRequest};

use super::{
    connection::{Connection, failed, is_too_large, wait},
    manifest::Manifest,
    names,
    rows::{Answer, Version, key_of, key_text},
};
use turnwise_core::{
    error::{Error, Result},
    ids::IdKey,
};
use turnwise_corpus::Dialogue;
use turnwise_index::vectors::Kind;
use turnwise_store::frame::Totals;

/// Milvus gives no more rows at once.
pub(super) const DEEPEST: usize = 16_384;
/// So many names are asked for at once.
const AT_ONCE: usize = 1_000;
/// So many pieces of one record are asked for at once, where all of them are too much.
const PIECES: usize = 32;

/// The columns of an answer by their names.
pub(super) fn columns(results: &QueryResults) -> Answer<'_> {
    Answer::of(results.get_output_fields())
}

/// That rows are not what turnwise writes.
pub(super) fn odd(place: &str, what: &str) -> Error {
    Error::Unavailable {
        message: format!("{place} gave what turnwise did not put there: {what}"),
        hint: Some("does something else write to its collections?".to_owned()),
    }
}

impl Connection {
    /// How many dialogues and turns a generation has.
    pub(super) fn totals(&self, manifest: &Manifest) -> Result<Totals> {
        let count = |kind| self.count(&manifest.rows(&self.target.name, kind));
        Ok(Totals { dialogues: count(Kind::Dialogues)?, turns: count(Kind::Utterances)? })
    }

    /// How many rows a collection has.
    pub(super) fn count(&self, collection: &str) -> Result<u64> {
        let request = QueryRequest::builder()
            .collection_name(collection)
            .output_fields(["count(*)"])
            .consistency_level(self.consistency())
            .build();
        let answer = self.ask("counting", async { self.client.query(request?).await })?;
        let count = match answer.results().get_output_fields().first() {
            Some(FieldData::Int64 { values, .. }) => values.first().copied().unwrap_or(0),
            _ => 0,
        };
        Ok(count.unsigned_abs())
    }

    /// The rows that fit an expression, with these of their columns.
    pub(super) fn rows(&self, collection: &str, filter: &str, columns: &[&str]) -> Result<QueryResults> {
        self.query(collection, filter, columns)?.map_err(|e| failed(&self.target, "reading", &e))
    }

    /// The same; the inner error is that the answer is too large.
    fn query(
        &self,
        collection: &str,
        filter: &str,
        columns: &[&str],
    ) -> Result<Result<QueryResults, Failure>> {
        let request = QueryRequest::builder()
            .collection_name(collection)
            .filter(filter)
            .output_fields(columns.iter().copied())
            .limit(DEEPEST as i64)
            .consistency_level(self.consistency())
            .build();
        match wait(async { self.client.query(request?).await })? {
            Ok(answer) => Ok(Ok(answer.results().clone())),
            Err(e) if is_too_large(&e) => Ok(Err(e)),
            Err(e) => Err(failed(&self.target, "reading", &e)),
        }
    }

    /// Reads the rows that have one of these texts in a column. Gives those whose rows are too large even alone.
    pub(super) fn named(
        &self,
        collection: &str,
        column: &str,
        of: &[String],
        wanted: &[&str],
        see: &mut dyn FnMut(&Answer<'_>) -> Result<()>,
    ) -> Result<Vec<String>> {
        let mut parts: Vec<&[String]> = of.chunks(AT_ONCE).rev().collect();
        let mut alone = Vec::new();
        while let Some(part) = parts.pop() {
            let quoted: Vec<String> = part.iter().map(|name| names::quoted(name)).collect();
            let filter = format!("{column} in [{}]", quoted.join(", "));
            match self.query(collection, &filter, wanted)? {
                Ok(results) if results.get_output_fields().first().map_or(0, length) < DEEPEST => {
                    see(&columns(&results))?;
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

    /// Reads the dialogues of these keys, as far as they are there, each in the version that counts.
    pub(super) fn dialogues(
        &self,
        manifest: &Manifest,
        keys: &[IdKey],
    ) -> Result<HashMap<IdKey, (Version, Dialogue)>> {
        let records = &manifest.records(&self.target.name);
        let keys: Vec<String> = keys.iter().map(|key| key_text(*key)).collect();
        let mut read = Pieces::default();
        let place = self.target.to_string();
        let large = self.named(records, "key", &keys, &WANTED, &mut |answer| read.add(answer, &place))?;
        for key in large {
            for first in (0..).step_by(PIECES) {
                let filter = format!(
                    "key == {} and piece >= {first} and piece < {}",
                    names::quoted(&key),
                    first + PIECES
                );
                let results = self.rows(records, &filter, &WANTED)?;
                read.add(&columns(&results), &place)?;
                if results.get_output_fields().first().map_or(0, length) == 0 {
                    break;
                }
            }
        }
        read.put_together(&place)
    }
}

/// How many rows a column has.
fn length(column: &FieldData) -> usize {
    match column {
        FieldData::VarChar { values, .. } => values.len(),
        FieldData::Int64 { values, .. } => values.len(),
        FieldData::Bool { values, .. } => values.len(),
        FieldData::FloatVector { values, .. } => values.len(),
        _ => 0,
    }
}

const WANTED: [&str; 5] = ["key", "version", "piece", "pieces", "json"];

/// Pieces of records.
#[derive(Default)]
struct Pieces {
    /// Which version counts, and of how many pieces it is: the first piece says it.
    first: HashMap<IdKey, (i64, i64)>,
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
                return Err(odd(place, "a piece of a record without its columns"));
            };
            if number == 0 {
                self.first.insert(key, (version, count));
            }
            self.texts.entry((key, version)).or_default().insert(number, text.clone());
        }
        Ok(())
    }

    /// Makes dialogues of them.
    fn put_together(self, place: &str) -> Result<HashMap<IdKey, (Version, Dialogue)>> {
        let Pieces { first, texts } = self;
        let mut read = HashMap::with_capacity(first.len());
        for (key, (version, count)) in first {
            let Some(pieces) = texts.get(&(key, version)).filter(|pieces| pieces.len() as i64 == count)
            else {
                return Err(odd(place, "a record of which pieces are missing"));
            };
            let json: String = pieces.values().map(String::as_str).collect();
            let dialogue = serde_json::from_str(&json)
                .map_err(|e| odd(place, &format!("a record that is none: {e}")))?;
            read.insert(key, (Version(version), dialogue));
        }
        Ok(read)
    }
}
