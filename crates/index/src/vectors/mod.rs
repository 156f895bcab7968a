//! The vectors of an index's utterances and dialogues.
//!
//! They are kept by content: the key of a vector is a hash of what the encoder was given. So equal texts are encoded
//! once, a dialogue that changed costs what changed in it, and an encoding that was stopped or killed goes on. The
//! vectors follow the log as the lexical index does: each kind remembers how far it has come.
//!
//! ```text
//! indexes/chats/
//!   vectors.lock              kernel lock of the one who encodes; an ingest may go on beside it
//!   vectors/
//!     current.json            names the set in use; replaced as a whole
//!     <fingerprint>-<n>/      a set: all vectors of one encoder with one choice of options
//!       manifest.json         what made the vectors, how many count, how far in the log they have come; checksummed
//!       utterances.f32        the vectors: little-endian f32, row after row, nothing else; append-only
//!       utterances.keys       32 bytes a row: its key, its checksum, the entry's own checksum; append-only
//!       utterances.table      key → row, made from the keys (see `table`); may be missing or behind
//!       dialogues.f32 …       the same for whole dialogues
//! ```
//!
//! A commit flushes rows and keys, then replaces the manifest; what lies behind the manifest's count is cut off by the
//! next writer and never looked at by readers. Another encoder needs a set of its own: it is built beside the one in
//! use, which stays usable until the switch.
//!
//! Rows whose text has left the index stay as they are until [`compact`] copies the others into a new set.

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
pub use compact::{Dropped, compact};
pub use copy::{backup, restore};
pub use coverage::{Coverage, Covered};
pub use fill::{Filled, Wanted, fill, to_look_at};
pub use key::{Kind, dialogue_key, utterance_key};
pub use manifest::{Extent, Manifest, Reached, Recipe};
pub use reader::VectorReader;
pub use repair::{Mended, repair};
pub use sets::exists;
pub use writer::{Mode, VectorWriter};
