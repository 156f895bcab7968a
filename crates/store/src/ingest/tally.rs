//! Counts of the outcomes of an ingest.

use serde::{Deserialize, Serialize};

use turnwise_core::error::Reject;
use turnwise_corpus::clean::Cleaned;

/// Number of records by outcome. `records` is the sum of the seven fields that follow it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// Records read from the inputs.
    pub records: u64,
    /// New dialogues.
    pub added: u64,
    /// Replaced a dialogue with the same id and different content.
    pub replaced: u64,
    /// Already stored with the same content.
    pub unchanged: u64,
    /// Already read in this ingest with the same content.
    pub repeated: u64,
    /// Skipped: fewer turns than required.
    pub too_short: u64,
    /// Skipped: same turns as another dialogue.
    pub duplicates: u64,
    /// Rejected as unusable.
    pub rejected: u64,
    /// Files that could not be read completely.
    pub damaged_files: u64,
    /// Turns of the added or replaced dialogues.
    pub turns: u64,
    /// Counts of the changes made by cleaning.
    pub cleaned: Cleaned,
}

impl Tally {
    /// Returns whether the counts of the outcomes add up to `records`.
    pub fn adds_up(&self) -> bool {
        let sum = self.added + self.replaced + self.unchanged + self.repeated;
        self.records == sum + self.too_short + self.duplicates + self.rejected
    }
}

/// Result of an ingest.
#[derive(Debug, Clone, Default)]
pub struct Ingested {
    /// Number of records by outcome.
    pub tally: Tally,
    /// Number of records that an earlier, interrupted run had processed.
    pub resumed: u64,
    /// The first rejects, at most 5.
    pub first_rejects: Vec<Reject>,
}
