//! Packed batches of sequences, and the dropout configuration.

use std::sync::Arc;

use candle_core::Tensor;

use crate::ops::Dropout;
use turnwise_core::random::hash64;
use turnwise_encoder::{Part, Sequence};

/// Batch of sequences, with their tokens concatenated without padding.
#[derive(Debug, Clone)]
pub struct Packed {
    /// The sequences of the batch.
    pub sequences: Vec<Sequence>,
    /// Number of tokens of each sequence.
    pub lengths: Arc<[usize]>,
    /// First row of each sequence, followed by the total number of tokens.
    pub starts: Vec<usize>,
}

impl Packed {
    /// Concatenates sequences into a batch, in the given order.
    pub fn new(sequences: Vec<Sequence>) -> Self {
        let lengths: Arc<[usize]> = sequences.iter().map(Sequence::len).collect();
        let mut starts = vec![0];
        for length in lengths.iter() {
            starts.push(starts[starts.len() - 1] + length);
        }
        Packed { sequences, lengths, starts }
    }

    /// Number of tokens of all sequences.
    pub fn tokens(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    /// Returns terms that add up to the mean over the rows of a sequence, multiplied by `weight`.
    pub fn mean(&self, sequence: usize, weight: f32) -> Vec<Part> {
        let rows = self.rows(sequence);
        vec![Part { weight: weight / rows.len().max(1) as f32, rows }]
    }

    /// Converts terms of each sequence, whose rows are counted from its first token, to terms of the whole batch.
    pub fn in_batch<'p>(&self, terms: impl Iterator<Item = &'p [Part]>) -> Vec<Vec<Part>> {
        let shifted = |(terms, start): (&[Part], &usize)| {
            let shift = |part: &Part| Part {
                rows: part.rows.start + start..part.rows.end + start,
                weight: part.weight,
            };
            terms.iter().map(shift).collect()
        };
        terms.zip(&self.starts).map(shifted).collect()
    }

    /// Returns the range of rows of a sequence in the hidden states. Each token has one row.
    pub fn rows(&self, sequence: usize) -> std::ops::Range<usize> {
        self.starts[sequence]..self.starts[sequence + 1]
    }
}

/// Vectors that replace the word embeddings of some rows of a batch.
#[derive(Debug, Clone)]
pub struct Replaced {
    /// Each replaced row of the batch with the index of its vector. The rows are in ascending order. Several rows can
    /// have the same vector.
    pub places: Vec<(u32, u32)>,
    /// The vectors: one row each, f32, on the device of the encoder.
    pub vectors: Tensor,
}

/// Dropout probability and the seed of the masks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DropoutConfig {
    /// Dropout probability of hidden states and attention weights.
    pub probability: f32,
    /// Seed of the dropout masks.
    pub key: u64,
}

/// Location in a layer where dropout is applied.
#[derive(Debug, Clone, Copy)]
pub(super) enum Site {
    /// Attention weights.
    Attention,
    /// Output of the attention block.
    Context,
    /// Output of the feed-forward block, or of the embedding layer.
    Feed,
}

impl DropoutConfig {
    /// Returns the dropout for a site of a layer, or `None` if the probability is 0. Layer 0 is the embedding layer.
    pub(super) fn at(&self, layer: usize, site: Site) -> Option<Dropout> {
        let key = hash64(self.key, (layer * 4 + site as usize) as u64);
        (self.probability > 0.0).then(|| Dropout::new(self.probability, key))
    }
}
