//! Checks that every dialogue has its vectors, before anything is written.

use std::collections::BTreeSet;

use crate::cli::{
    Context,
    commands::ingest,
    printer::counted,
    shards::{Set, Shard, Shards, keys},
};
use turnwise_core::{
    error::{Error, Result},
    ids::{DialogueId, IdKey},
};
use turnwise_corpus::{Dialogue, walk::Plan};
use turnwise_index::vectors::{Kind, VectorReader};
use turnwise_store::{
    IngestMark, Prepared, Put,
    ingest::{DialogueSink, IngestOptions},
};

/// Reads the inputs in the same way as an ingest. Returns an error if a vector is missing.
pub(super) fn refuse(
    vectors: &VectorReader,
    plan: Plan,
    options: &IngestOptions,
    (set, place): (&Set, &str),
    context: &Context<'_>,
) -> Result<()> {
    let mut check = VectorCheck { vectors, of: set.of(), lacking: BTreeSet::new(), first: None, count: 0 };
    ingest::read_into(&mut check, plan, "checking", options, context).0?;
    let Some(first) = &check.first else { return Ok(()) };
    let others = match check.count {
        1 => String::new(),
        n => format!(", and neither have {} more", n - 1),
    };
    let shards = Shards::of(check.of, check.lacking.iter().copied());
    Err(Error::Data {
        message: format!("{first} has no vector in the shards in {place}{others}; nothing was written"),
        hint: Some(format!(
            "`{}` creates {}, if its input is the same as here",
            set.command_for(&shards, place),
            counted(shards.len() as u64, "shard") + " again"
        )),
    })
}

/// Sink that stores nothing and records which vectors are missing.
struct VectorCheck<'a> {
    vectors: &'a VectorReader,
    /// Number of shards of the division.
    of: u32,
    /// Shards that should have contained the missing vectors.
    lacking: BTreeSet<u32>,
    first: Option<String>,
    count: u64,
}

impl DialogueSink for VectorCheck<'_> {
    fn get(&self, _: &DialogueId) -> Result<Option<Dialogue>> {
        Ok(None)
    }

    fn put(&mut self, prepared: &Prepared) -> Result<Put> {
        let dialogue: Dialogue =
            serde_json::from_slice(&prepared.json).map_err(|e| Error::Internal(e.to_string()))?;
        for kind in Kind::ALL {
            for (row, key) in keys(kind, &dialogue).iter().enumerate() {
                if self.vectors.row_of(kind, key).is_some() {
                    continue;
                }
                self.count += 1;
                self.lacking.insert(Shard::of_dialogue(&dialogue.id, self.of).number);
                self.first.get_or_insert_with(|| match kind {
                    Kind::Utterances => format!("{}#{}", dialogue.id, dialogue.turns[row].number),
                    Kind::Dialogues => format!("the dialogue {}", dialogue.id),
                });
            }
        }
        Ok(Put::Added)
    }

    fn pending(&self) -> usize {
        0
    }

    fn pending_bytes(&self) -> usize {
        0
    }

    fn commit(&mut self, _: Option<IngestMark>) -> Result<()> {
        Ok(())
    }

    fn unfinished(&self) -> Option<IngestMark> {
        None
    }

    fn set_rejected(&mut self, _: &str, _: u64) {}

    fn texts(&self, _: &mut dyn FnMut(IdKey, IdKey)) -> Result<()> {
        Ok(())
    }
}
