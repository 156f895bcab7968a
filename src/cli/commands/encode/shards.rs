//! Report of `encode --shard`.

use std::io::{self, Write};

use serde::Serialize;

use crate::cli::{
    printer::{BOLD, DIM, bytes, counted},
    shards::Record,
};

/// Result for one shard.
#[derive(Serialize)]
pub(super) struct Sharded {
    schema: &'static str,
    shard: String,
    place: String,
    file: String,
    bytes: u64,
    encoder: String,
    fingerprint: String,
    dim: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    utterances: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dialogues: Option<u64>,
    /// Whether it already existed.
    known: bool,
    seconds: f64,
}

impl Sharded {
    pub(super) fn known(record: &Record, place: &str) -> Self {
        Sharded { known: true, ..Sharded::made(record, place, 0.0) }
    }

    pub(super) fn made(record: &Record, place: &str, seconds: f64) -> Self {
        Sharded {
            schema: "turnwise/encode-shard/1",
            shard: record.shard.to_string(),
            place: place.to_owned(),
            file: record.data.file.clone(),
            bytes: record.data.bytes,
            encoder: record.recipe.name.clone(),
            fingerprint: record.recipe.fingerprint.to_string(),
            dim: record.recipe.dim,
            utterances: record.utterances,
            dialogues: record.dialogues,
            known: false,
            seconds,
        }
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.known {
            return writeln!(out, "shard {BOLD}{}{BOLD:#} already exists", self.shard);
        }
        let vectors = [(self.utterances, "utterance vector"), (self.dialogues, "dialogue vector")];
        let vectors: Vec<String> =
            vectors.into_iter().filter_map(|(n, one)| Some(counted(n?, one))).collect();
        writeln!(
            out,
            "shard {BOLD}{}{BOLD:#}: {} in {} of {} {DIM}({}, {:.1} s){DIM:#}",
            self.shard,
            vectors.join(" and "),
            self.file,
            self.place,
            bytes(self.bytes),
            self.seconds
        )
    }
}
