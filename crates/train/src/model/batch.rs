//! Sequences that are computed together, and what is dropped of them.

use std::sync::Arc;

use crate::ops::Dropout;
use turnwise_core::random::mixed;
use turnwise_encoder::{Part, Sequence};

/// Sequences, their tokens end to end.
#[derive(Debug, Clone)]
pub struct Packed {
    /// The sequences.
    pub sequences: Vec<Sequence>,
    /// Their lengths.
    pub lengths: Arc<[usize]>,
    /// Where each begins, and where the last one ends.
    pub starts: Vec<usize>,
}

impl Packed {
    /// Packs them in this order.
    pub fn new(sequences: Vec<Sequence>) -> Self {
        let lengths: Arc<[usize]> = sequences.iter().map(Sequence::len).collect();
        let mut starts = vec![0];
        for length in lengths.iter() {
            starts.push(starts[starts.len() - 1] + length);
        }
        Packed { sequences, lengths, starts }
    }

    /// How many tokens.
    pub fn tokens(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    /// The mean of a sequence's rows, as parts of a sum, times a weight.
    pub fn mean(&self, sequence: usize, weight: f32) -> Vec<Part> {
        let rows = self.rows(sequence);
        vec![Part { weight: weight / rows.len().max(1) as f32, rows }]
    }

    /// The rows of a sequence.
    pub fn rows(&self, sequence: usize) -> std::ops::Range<usize> {
        self.starts[sequence]..self.starts[sequence + 1]
    }
}

/// How much is dropped, and where: everything hangs on the key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DropoutConfig {
    /// Of hidden states.
    pub hidden: f32,
    /// Of the weights of attention.
    pub attention: f32,
    /// Another key, other places.
    pub key: u64,
}

/// Where in a layer something is dropped.
#[derive(Debug, Clone, Copy)]
pub(super) enum Site {
    /// What a token takes of each.
    Attention,
    /// What attention gives.
    Context,
    /// What the feed-forward part gives.
    Feed,
}

impl DropoutConfig {
    /// What drops at a site of a layer (0: the embeddings).
    pub(super) fn at(&self, layer: usize, site: Site) -> Option<Dropout> {
        let probability = match site {
            Site::Attention => self.attention,
            Site::Context | Site::Feed => self.hidden,
        };
        let key = mixed(self.key, (layer * 4 + site as usize) as u64);
        (probability > 0.0).then(|| Dropout::new(probability, key))
    }
}
