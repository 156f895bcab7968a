//! Vector search: a graph index over the dialogues of the last build, and an exact scan of newer dialogues.
//!
//! ```text
//! indexes/chats/
//!   graphs.lock               file lock of the building process; all other work can continue
//!   graphs/
//!     current.json            names the generation in use; replaced as a whole
//!     <n>/                    a generation: one build of the graphs; its files never change
//!       manifest.json         the vectors and the log position it was built from; checksummed
//!       dialogues.places      24 bytes per dialogue: key and sequence number; ids descending
//!       dialogues.keys        4 bytes per dialogue: the same dialogues in key order
//!       utterances.places     8 bytes per utterance: index of its dialogue, and its turn
//!       utterances.graph      the graph of the utterances; its rows are the entries of utterances.places
//!       dialogues.graph       the same for whole dialogues
//! ```
//!
//! Dialogues are sorted by descending id, because hits with equal scores are returned in this order. Dialogues that are
//! newer than the generation are the tail. Without a generation, all dialogues are in the tail. Dialogues of the tail
//! are searched one by one; their older versions in the generation are skipped.

mod background;
mod build;
mod generation;
mod reader;
mod sweep;

#[cfg(test)]
mod tests;

pub use background::SimilarityDistribution;
pub use build::{
    Built, GraphRecall, Progress, Step, build, builder, compact, in_use, is_worth_building, rebuild, recall,
    verify,
};
pub use generation::{GraphStats, Manifest};
pub use reader::{DenseReader, NodeFilter, SearchSettings};
pub use sweep::{DistinctVectors, NeighborBuffers, Owner};
pub use turnwise_nearest::{BuildOptions, Builder};

use std::path::{Path, PathBuf};

use turnwise_core::{
    error::Error,
    ids::{DialogueId, IdKey, Seq, TurnNo},
};
use turnwise_corpus::Dialogue;

use crate::vectors::{Kind, dialogue_key, utterance_key};

/// A dialogue with the keys of its vectors.
struct VectorKeys {
    id: DialogueId,
    seq: Seq,
    dialogue: IdKey,
    turns: Vec<(TurnNo, IdKey)>,
}

impl VectorKeys {
    fn of(dialogue: Dialogue, seq: Seq) -> Self {
        VectorKeys {
            seq,
            dialogue: dialogue_key(&dialogue),
            turns: dialogue.turns.iter().map(|t| (t.number, utterance_key(&t.text))).collect(),
            id: dialogue.id,
        }
    }

    /// Returns the vector keys of all turns, or of the whole dialogue, depending on `kind`.
    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (Option<TurnNo>, &IdKey)> {
        let (turns, dialogue) = match kind {
            Kind::Utterances => (self.turns.as_slice(), None),
            Kind::Dialogues => (&[][..], Some((None, &self.dialogue))),
        };
        turns.iter().map(|(turn, key)| (Some(*turn), key)).chain(dialogue)
    }
}

fn folder(root: &Path) -> PathBuf {
    root.join("graphs")
}

fn damaged(path: &Path, what: String) -> Error {
    Error::corrupt(path, what).with_hint("`turnwise index build` rebuilds it")
}
