//! Input of a network: batches of token sequences without padding.

/// The tokens of one text or dialogue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sequence {
    /// Token ids, special tokens included.
    pub ids: Vec<u32>,
    /// Segment of each token; all 0 if absent.
    pub types: Option<Vec<u32>>,
    /// Position of each token; 0, 1, 2, … if absent.
    pub positions: Option<Vec<u32>>,
    /// Turn number of each token, for networks with turn embeddings.
    pub turns: Option<Vec<u32>>,
    /// Speaker role of each token, for networks with role embeddings.
    pub roles: Option<Vec<u32>>,
}

impl Sequence {
    /// Creates a sequence from the tokens of a plain text.
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

/// Sequences that are encoded together.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// The sequences; none is empty.
    pub sequences: &'a [&'a Sequence],
    /// Number of threads that share the work. If there are at least as many batches as threads, one thread per batch
    /// is fastest. For a single query, use all threads.
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
