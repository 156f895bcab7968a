//! Statistics about vectors: number of texts with a vector, and number of vectors of deleted texts.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::vectors::{
    VectorReader,
    key::{Kind, dialogue_key, utterance_key},
};
use turnwise_core::ids::IdKey;
use turnwise_corpus::Dialogue;

/// Counts live vectors during a pass over all dialogues, one bit per row. Can be used from several threads.
pub struct Coverage<'a> {
    reader: &'a VectorReader,
    live: [Vec<AtomicU64>; 2],
    without: [AtomicU64; 2],
}

/// Vector counts of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct VectorCounts {
    /// Number of vectors on disk.
    pub vectors: u64,
    /// Number of vectors whose text is in the index.
    pub live: u64,
    /// Number of utterances or dialogues in the index without a vector.
    pub without: u64,
}

impl<'a> Coverage<'a> {
    /// Creates an empty counter.
    pub fn new(reader: &'a VectorReader) -> Self {
        let bits = |kind: Kind| (0..reader.rows(kind).div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Coverage { reader, live: Kind::ALL.map(bits), without: Default::default() }
    }

    /// Counts a dialogue of the index.
    pub fn add(&self, dialogue: &Dialogue) {
        if self.wants(Kind::Utterances) {
            dialogue.turns.iter().for_each(|t| self.key(Kind::Utterances, &utterance_key(&t.text)));
        }
        if self.wants(Kind::Dialogues) {
            self.key(Kind::Dialogues, &dialogue_key(dialogue));
        }
    }

    /// Returns true if the text of this vector row occurs in a dialogue of the index. For a kind of vector that this index
    /// does not encode, all rows count as live.
    pub(super) fn is_live(&self, kind: Kind, row: usize) -> bool {
        let bit = |bits: &AtomicU64| bits.load(Ordering::Relaxed) >> (row % 64) & 1 == 1;
        !self.wants(kind) || self.live[kind.index()].get(row / 64).is_some_and(bit)
    }

    /// Number of counted texts without a vector. Always 0 for a kind that this index does not encode.
    pub(super) fn without(&self, kind: Kind) -> u64 {
        self.without[kind.index()].load(Ordering::Relaxed)
    }

    fn wants(&self, kind: Kind) -> bool {
        self.reader.manifest().extent(kind).reached.is_some()
    }

    fn key(&self, kind: Kind, key: &IdKey) {
        match self.reader.row_of(kind, key) {
            Some(row) => {
                if let Some(bits) = self.live[kind.index()].get(row / 64) {
                    bits.fetch_or(1 << (row % 64), Ordering::Relaxed);
                }
            }
            None => {
                self.without[kind.index()].fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns the counts of a kind; `None` if this index does not encode it.
    pub fn of(&self, kind: Kind) -> Option<VectorCounts> {
        let live = |bits: &AtomicU64| u64::from(bits.load(Ordering::Relaxed).count_ones());
        self.wants(kind).then(|| VectorCounts {
            vectors: self.reader.rows(kind) as u64,
            live: self.live[kind.index()].iter().map(live).sum(),
            without: self.without[kind.index()].load(Ordering::Relaxed),
        })
    }
}
