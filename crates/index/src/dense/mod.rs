//! Search by vectors: a graph over what was there at its building, and an exact look at what came since.
//!
//! ```text
//! indexes/chats/
//!   graphs.lock               kernel lock of the one who builds; everything else goes on beside it
//!   graphs/
//!     current.json            names the generation in use; replaced as a whole
//!     <n>/                    a generation: never changed
//!       manifest.json         what it was built of and how far the log had come; checksummed
//!       dialogues.places      24 bytes a dialogue: its key and its number in the log; ids descending
//!       dialogues.keys        4 bytes a dialogue: the same dialogues in the order of their keys
//!       utterances.places     8 bytes an utterance: its dialogue's place and its turn
//!       utterances.graph      the frozen graph; a row is a place of the file before
//!       dialogues.graph       the same for whole dialogues
//! ```
//!
//! All of it derives from the records and their vectors. Places are in the order of falling ids, in which equally near ones
//! are given. What the log holds behind a generation's end is the tail: its dialogues are looked at one by one, and their
//! older versions, like deleted ones, are passed over. So an index without any generation is all tail.

mod background;
mod build;
mod compact;
mod generation;
mod places;
mod progress;
mod reader;
mod state;
mod sweep;

#[cfg(test)]
mod tests;

pub use background::Background;
pub use build::{Built, build, rebuild};
pub use compact::compact;
pub use generation::{Manifest, Part};
pub use progress::{Progress, Step};
pub use reader::{Among, DenseHit, DenseReader, Look};
pub use state::{Measured, builder, in_use, is_worth_building, recall, verify};
pub use sweep::{Near, Owner, Sweep};
pub use turnwise_nearest::{BuildOptions, Builder};

use std::path::{Path, PathBuf};

use turnwise_core::error::Error;

/// The folder of an index's generations.
fn folder(root: &Path) -> PathBuf {
    root.join("graphs")
}

fn damaged(path: &Path, what: String) -> Error {
    Error::corrupt(path, what).with_hint("`turnwise index build` makes it anew")
}
