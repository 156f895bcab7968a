//! The vectors of an index's utterances and dialogues.
//!
//! Vectors are stored by content: the key of a vector is a hash of the encoder's input. Equal texts are therefore
//! encoded once, only the changed turns of a dialogue are encoded again, and an interrupted run can continue. Like
//! the lexical index, the vectors are updated from the log: the manifest stores the log position that each kind has
//! reached.
//!
//! ```text
//! indexes/chats/
//!   vectors.lock              file lock of the encoding process; ingests may run at the same time
//!   vectors/
//!     current.json            names the set in use; replaced as a whole
//!     <fingerprint>-<n>/      a set: all vectors of one encoder with the same options
//!       manifest.json         recipe, number of committed rows and log position; checksummed
//!       utterances.f32        the vectors: little-endian f32, row after row, without a header; append-only
//!       utterances.keys       32 bytes per row: key, row number, checksums of row and entry; append-only
//!       utterances.table      key → row, built from the keys (see `table`); may be missing or outdated
//!       dialogues.f32 …       the same for whole dialogues
//! ```
//!
//! A commit flushes rows and keys, then replaces the manifest. Readers ignore rows beyond the manifest's count, and the
//! next writer truncates them. A different encoder needs its own set. The new set is built while the old one stays in
//! use, until the switch.
//!
//! Rows of deleted texts stay in the files until [`compact`] copies the other rows into a new set.

mod check;
mod column;
mod compact;
mod copy;
mod coverage;
mod fill;
mod key;
mod manifest;
mod reader;
mod repair;
mod sets;
mod table;
mod writer;

#[cfg(test)]
mod tests;

pub use check::{Checked, check};
pub use compact::{CompactReport, compact};
pub use copy::{backup, restore};
pub use coverage::{Coverage, VectorCounts};
pub use fill::{Filled, Wanted, fill, pending_dialogues};
pub use key::{Kind, dialogue_key, utterance_key};
pub use manifest::{Extent, Manifest, Reached, Recipe};
pub use reader::VectorReader;
pub use repair::{RepairReport, repair};
pub use sets::exists;
pub use writer::{Mode, VectorWriter};
