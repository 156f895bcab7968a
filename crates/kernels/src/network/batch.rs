//! Batches of token sequences, the input of a network.

use std::sync::Arc;

/// Tokens of one text or dialogue, the input of a network.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sequence {
    /// Token ids, special tokens included.
    pub ids: Vec<u32>,
    /// Segment id of each token. `None` means that all ids are 0.
    pub types: Option<Vec<u32>>,
    /// Position of each token, counted from 0; [`Shape::first_position`](super::Shape::first_position) is added to it. If this field is `None`, the
    /// positions come from [`Shape::positions`](super::Shape::positions).
    pub positions: Option<Vec<u32>>,
    /// Turn number of each token, for networks with turn embeddings. `None` means that all numbers are 0.
    pub turns: Option<Vec<u32>>,
    /// Speaker role id of each token, for networks with role embeddings. `None` means that all ids are 0.
    pub roles: Option<Vec<u32>>,
    /// Vectors that replace the word embeddings of some tokens, for networks that read the vectors of whole utterances.
    pub vectors: Option<InputVectors>,
}

/// Vectors that replace the word embeddings of some tokens of a sequence. The embeddings of the position and of the
/// segment are added to them, as to word embeddings.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct InputVectors {
    /// Index of each replaced token in the sequence, in ascending order.
    pub tokens: Vec<u32>,
    /// The vectors, one after the other. Sequences with the same history share them.
    pub elements: Arc<[f32]>,
}

impl Sequence {
    /// Creates a sequence from token ids. The other fields are `None`.
    pub fn new(ids: Vec<u32>) -> Self {
        Sequence { ids, ..Sequence::default() }
    }

    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns true if the sequence has no tokens.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// Sequences that a network processes in one call, and the number of threads.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// The sequences. None of them may be empty: running a batch with an empty sequence returns an error.
    pub sequences: &'a [&'a Sequence],
    /// Maximum number of threads that share the work. If there are at least as many batches as threads, one thread per
    /// batch is fastest. For a single query, use all threads.
    pub threads: usize,
}

impl<'a> Batch<'a> {
    /// Creates a batch that is computed on one thread.
    pub fn new(sequences: &'a [&'a Sequence]) -> Self {
        Batch { sequences, threads: 1 }
    }

    /// Returns the number of tokens in all sequences.
    pub fn tokens(&self) -> usize {
        self.sequences.iter().map(|s| s.len()).sum()
    }
}
