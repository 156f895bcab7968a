//! The vectors of an index's utterances and dialogues.
//!
//! The key of a vector is a hash of the encoder's input. Equal texts are therefore encoded only once, and an
//! interrupted run can continue. For utterances and for dialogues, the manifest stores the log position before which
//! all items have a vector.
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
//! next writer truncates them. Rows of deleted texts stay until [`compact`] copies the other rows into a new set.
//!
//! A different encoder needs its own set. The old set stays in use until the new one is complete.

mod check;
mod column;
mod compact;
mod fill;
mod reader;
mod sets;
mod table;
mod writer;

#[cfg(test)]
mod tests;

pub use check::{RepairReport, VectorCheck, check, repair};
pub use compact::{CompactReport, backup, compact, restore};
pub use fill::{EncodeProgress, EncodeTargets, fill, pending_dialogues};
pub use reader::{Coverage, VectorCounts, VectorReader};
pub use sets::{Extent, Manifest, Reached, Recipe, exists};
pub use writer::{Mode, VectorWriter};

use turnwise_core::ids::IdKey;
use turnwise_corpus::{Dialogue, Role};

/// Kind of item that a vector represents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// One utterance.
    Utterances,
    /// A whole dialogue.
    Dialogues,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 2] = [Kind::Utterances, Kind::Dialogues];

    /// Name of the kind, and prefix of its file names.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Utterances => "utterances",
            Kind::Dialogues => "dialogues",
        }
    }
}

fn hasher(kind: Kind) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    hasher.update(kind.name().as_bytes()).update(&[0]);
    hasher
}

/// Returns the key of an utterance's vector: a hash of the utterance's text.
pub fn utterance_key(text: &str) -> IdKey {
    IdKey::from_hash(&hasher(Kind::Utterances).update(text.as_bytes()).finalize())
}

/// Returns the key of a dialogue's vector: a hash of role, speaker and text of all turns, in order. Ids, times and
/// labels are not hashed, because they are not encoded.
pub fn dialogue_key(dialogue: &Dialogue) -> IdKey {
    let mut hasher = hasher(Kind::Dialogues);
    for turn in &dialogue.turns {
        let role = turn.role.as_ref().map_or("", Role::as_str);
        for part in [role, &turn.speaker, &turn.text] {
            // The length prefix separates adjacent parts: `ab`+`c` and `a`+`bc` get different keys.
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
    }
    IdKey::from_hash(&hasher.finalize())
}
