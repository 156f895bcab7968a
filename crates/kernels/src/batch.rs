//! Token ids on their way through a network: sequences end to end, nothing padded.

/// The tokens of one text or dialogue.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sequence {
    /// Token ids, special tokens included.
    pub ids: Vec<u32>,
    /// Segments; all 0 if absent.
    pub types: Option<Vec<u32>>,
    /// Positions; 0, 1, 2, … if absent.
    pub positions: Option<Vec<u32>>,
    /// Turns of the dialogue, for networks with turn embeddings.
    pub turns: Option<Vec<u32>>,
    /// Roles of the speakers, likewise.
    pub roles: Option<Vec<u32>>,
}

impl Sequence {
    /// A plain text's tokens.
    pub fn new(ids: Vec<u32>) -> Self {
        Sequence { ids, ..Sequence::default() }
    }

    /// How many tokens.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// Sequences that go through the network together.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// The sequences; none is empty.
    pub sequences: &'a [&'a Sequence],
    /// How many threads may share the work. With batches enough for all threads one each is fastest; for a single query
    /// it is all of them.
    pub threads: usize,
}

impl<'a> Batch<'a> {
    /// Sequences that one thread computes.
    pub fn new(sequences: &'a [&'a Sequence]) -> Self {
        Batch { sequences, threads: 1 }
    }

    /// All tokens.
    pub fn tokens(&self) -> usize {
        self.sequences.iter().map(|s| s.len()).sum()
    }
}
