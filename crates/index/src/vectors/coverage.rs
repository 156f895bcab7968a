//! How much of an index has vectors, and how many vectors stand for nothing any more.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::vectors::{
    VectorReader,
    key::{Kind, dialogue_key, utterance_key},
};
use turnwise_core::ids::IdKey;
use turnwise_corpus::Dialogue;

/// Counts while somebody goes over all dialogues, on as many threads as they like: a bit a row.
pub struct Coverage<'a> {
    reader: &'a VectorReader,
    live: [Vec<AtomicU64>; 2],
    without: [AtomicU64; 2],
}

/// What was counted of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Covered {
    /// Vectors on the disk.
    pub vectors: u64,
    /// Those of texts that are in the index.
    pub live: u64,
    /// Utterances or dialogues of the index that have no vector yet.
    pub without: u64,
}

impl<'a> Coverage<'a> {
    /// Nothing counted yet.
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

    /// Whether a row is that of a text that was counted; all are of a kind that the index was never asked to have.
    pub(super) fn is_live(&self, kind: Kind, row: usize) -> bool {
        let bit = |bits: &AtomicU64| bits.load(Ordering::Relaxed) >> (row % 64) & 1 == 1;
        !self.wants(kind) || self.live[kind.place()].get(row / 64).is_some_and(bit)
    }

    /// How many of what was counted have no vector; none of a kind that the index was never asked to have.
    pub(super) fn without(&self, kind: Kind) -> u64 {
        self.without[kind.place()].load(Ordering::Relaxed)
    }

    fn wants(&self, kind: Kind) -> bool {
        self.reader.manifest().extent(kind).reached.is_some()
    }

    fn key(&self, kind: Kind, key: &IdKey) {
        match self.reader.row_of(kind, key) {
            Some(row) => {
                if let Some(bits) = self.live[kind.place()].get(row / 64) {
                    bits.fetch_or(1 << (row % 64), Ordering::Relaxed);
                }
            }
            None => {
                self.without[kind.place()].fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// What was counted of a kind; `None` if the index was never asked to have vectors of it.
    pub fn of(&self, kind: Kind) -> Option<Covered> {
        let live = |bits: &AtomicU64| u64::from(bits.load(Ordering::Relaxed).count_ones());
        self.wants(kind).then(|| Covered {
            vectors: self.reader.rows(kind) as u64,
            live: self.live[kind.place()].iter().map(live).sum(),
            without: self.without[kind.place()].load(Ordering::Relaxed),
        })
    }
}
