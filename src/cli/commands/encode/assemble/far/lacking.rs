//! Whether the dialogues that are about to be brought somewhere all have vectors: told before the first is.

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

/// Reads what will be ingested, as an ingest reads it, and refuses what lacks a vector.
pub(super) fn refuse(
    vectors: &VectorReader,
    plan: Plan,
    options: &IngestOptions,
    (set, place): (&Set, &str),
    context: &Context<'_>,
) -> Result<()> {
    let mut looked = Looked { vectors, of: set.of(), lacking: BTreeSet::new(), first: None, count: 0 };
    ingest::read_into(&mut looked, plan, "looking", options, context).0?;
    let Some(first) = &looked.first else { return Ok(()) };
    let others = match looked.count {
        1 => String::new(),
        n => format!(", nor have {} more", n - 1),
    };
    let shards = Shards::of(looked.of, looked.lacking.iter().copied());
    Err(Error::Data {
        message: format!("{first} has no vector in the shards in {place}{others}; nothing was written"),
        hint: Some(format!(
            "`{}` makes {}, if its input is the one that was named here",
            set.made_by(&shards, place),
            counted(shards.len() as u64, "shard") + " anew"
        )),
    })
}

/// A home that keeps nothing, and sees what has no vector.
struct Looked<'a> {
    vectors: &'a VectorReader,
    /// Into how many shards the dialogues were divided.
    of: u32,
    /// Those that ought to have what is lacking.
    lacking: BTreeSet<u32>,
    first: Option<String>,
    count: u64,
}

impl DialogueSink for Looked<'_> {
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
