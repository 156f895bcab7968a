//! What became of the records of an ingest.

use serde::{Deserialize, Serialize};

use turnwise_core::error::Reject;
use turnwise_corpus::clean::Cleaned;

/// What became of every record. `records` is the sum of the seven that follow it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// Records taken from the inputs.
    pub records: u64,
    /// New ones.
    pub added: u64,
    /// In place of another content under the same id.
    pub replaced: u64,
    /// There already, with the same content.
    pub unchanged: u64,
    /// Read twice in this ingest, with the same content.
    pub repeated: u64,
    /// Left out: fewer turns than asked for.
    pub too_short: u64,
    /// Left out: the same turns as another dialogue.
    pub duplicates: u64,
    /// Not usable.
    pub rejected: u64,
    /// Files that could not be read to their end.
    pub damaged_files: u64,
    /// Turns of the dialogues that were added or replaced.
    pub turns: u64,
    /// What cleaning did.
    pub cleaned: Cleaned,
}

impl Tally {
    /// Whether every record is accounted for.
    pub fn adds_up(&self) -> bool {
        let sum = self.added + self.replaced + self.unchanged + self.repeated;
        self.records == sum + self.too_short + self.duplicates + self.rejected
    }
}

/// How an ingest ended.
#[derive(Debug, Clone, Default)]
pub struct Ingested {
    /// What became of the records.
    pub tally: Tally,
    /// The records that an earlier, interrupted run had done.
    pub resumed: u64,
    /// The first few rejects.
    pub first_rejects: Vec<Reject>,
}
