//! Vector search: a graph index over the dialogues of the last build, and an exact scan of newer dialogues.
//!
//! ```text
//! indexes/chats/
//!   graphs.lock               file lock of the building process; all other work can continue
//!   graphs/
//!     current.json            names the generation in use; replaced as a whole
//!     <n>/                    a generation; its files never change
//!       manifest.json         the vectors and the log position it was built from; checksummed
//!       dialogues.places      24 bytes per dialogue: key and sequence number; ids descending
//!       dialogues.keys        4 bytes per dialogue: the same dialogues in key order
//!       utterances.places     8 bytes per utterance: index of its dialogue, and its turn
//!       utterances.graph      the frozen graph; its rows are the entries of utterances.places
//!       dialogues.graph       the same for whole dialogues
//! ```
//!
//! All files are derived from the records and their vectors. Dialogues are sorted by descending id, because hits with
//! equal scores are returned in this order. The log entries after a generation are the tail. Dialogues of the tail
//! are searched one by one; their older versions and deleted dialogues are skipped. Without a generation, all
//! dialogues are in the tail.

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
pub use generation::{Manifest, Part};
pub use reader::{DenseHit, DenseReader, NodeFilter, SearchSettings};
pub use sweep::{DistinctVectors, NeighborBuffers, Owner};
pub use turnwise_nearest::{BuildOptions, Builder};

use std::path::{Path, PathBuf};

use turnwise_core::error::Error;

/// Returns the folder of all generations.
fn folder(root: &Path) -> PathBuf {
    root.join("graphs")
}

fn damaged(path: &Path, what: String) -> Error {
    Error::corrupt(path, what).with_hint("`turnwise index build` rebuilds it")
}
