//! Layouts of a batch for attention. Linear layers process all tokens without padding. Attention pads the sequences to
//! rows of equal length, unless it uses FlashAttention.

use candle_core::{DType, Result, Tensor};

use crate::{
    Batch, Part, Pool,
    candle_engine::staging::{Indices, Numbers, Sent, Tables},
};

/// Value added to the attention scores of padding. It is within the range of f16, and so low that its exponential
/// rounds to zero.
const MASKED: f32 = -30_000.0;

/// Layout of a batch for attention.
pub(super) enum Layout {
    /// Sequences padded to rows of equal length.
    Rows(Rows),
    /// Sequences without padding.
    #[cfg(feature = "flash-attn")]
    Packed(Packed),
}

/// Sequences of a batch, padded to rows of equal length.
pub(super) struct Rows {
    pub(super) sequences: usize,
    pub(super) longest: usize,
    /// Tables for sequences of different lengths; `None` if all sequences have the same length.
    ragged: Option<Ragged>,
}

/// Tables that a batch needs if its sequences have different lengths.
pub(super) struct Ragged {
    /// For each position of the padded rows, the index of the token in the batch; 0 for padding.
    pub(super) padded: Indices,
    /// For each token of the batch, its position in the padded rows.
    pub(super) unpadded: Indices,
    mask: Numbers,
}

impl Rows {
    pub(super) fn new(batch: &Batch, tables: &mut Tables) -> Self {
        let sequences = batch.sequences.len();
        let longest = batch.sequences.iter().map(|s| s.len()).max().unwrap_or(0);
        if batch.sequences.iter().all(|s| s.len() == longest) {
            return Rows { sequences, longest, ragged: None };
        }
        let mut padded = vec![0u32; sequences * longest];
        let mut mask = vec![MASKED; sequences * longest];
        let mut unpadded = Vec::with_capacity(batch.tokens());
        let mut token = 0;
        for (row, sequence) in batch.sequences.iter().enumerate() {
            for position in row * longest..row * longest + sequence.len() {
                padded[position] = token;
                mask[position] = 0.0;
                unpadded.push(position as u32);
                token += 1;
            }
        }
        let ragged = Ragged {
            padded: tables.indices(padded),
            unpadded: tables.indices(unpadded),
            mask: tables.numbers(mask),
        };
        Rows { sequences, longest, ragged: Some(ragged) }
    }

    /// Returns rows of the tensor `rows`, in the order of the table `indices`. If all sequences have the same length,
    /// returns `rows` unchanged.
    pub(super) fn select(
        &self,
        rows: &Tensor,
        indices: fn(&Ragged) -> &Indices,
        sent: &Sent,
    ) -> Result<Tensor> {
        let all = || Ok(rows.clone());
        self.ragged.as_ref().map_or_else(all, |ragged| rows.index_select(&sent.indices(indices(ragged))?, 0))
    }

    pub(super) fn mask(&self, dtype: DType, sent: &Sent) -> Result<Option<Tensor>> {
        let mask = |ragged: &Ragged| {
            sent.numbers(&ragged.mask, (self.sequences, 1, 1, self.longest))?.to_dtype(dtype)
        };
        self.ragged.as_ref().map(mask).transpose()
    }
}

/// Returns the distance of each key from each query in f32, with the shape (tokens, tokens). It is positive for keys after
/// the query.
pub(super) fn distances(scores: &Tensor) -> Result<Tensor> {
    let positions = Tensor::arange(0f32, scores.dim(3)? as f32, scores.device())?;
    positions.unsqueeze(0)?.broadcast_sub(&positions.unsqueeze(1)?)
}

/// Returns the mask that hides the keys outside the window of a query and, if `causal` is true, those after the query. The
/// mask has the shape (tokens, tokens), and `scores` the shape (sequences, heads, tokens, tokens).
pub(super) fn attention_mask(scores: &Tensor, window: Option<usize>, causal: bool) -> Result<Tensor> {
    let distances = distances(scores)?;
    let window = window.unwrap_or(distances.dim(0)?) as f64;
    let after = distances.gt(if causal { 0.0 } else { window })?.to_dtype(DType::F32)?;
    let before = distances.lt(-window)?.to_dtype(DType::F32)?;
    let outside = (after + before)?;
    outside.affine(f64::from(MASKED), 0.0)?.to_dtype(scores.dtype())
}

/// Sequences of a batch, without padding.
#[cfg(feature = "flash-attn")]
pub(super) struct Packed {
    pub(super) longest: usize,
    /// Index of the first token of each sequence in the batch, followed by the total number of tokens.
    pub(super) bounds: Indices,
}

#[cfg(feature = "flash-attn")]
impl Packed {
    pub(super) fn new(batch: &Batch, tables: &mut Tables) -> Self {
        let longest = batch.sequences.iter().map(|s| s.len()).max().unwrap_or(0);
        let ends = batch.sequences.iter().scan(0, |end, s| {
            *end += s.len() as u32;
            Some(*end)
        });
        Packed { longest, bounds: tables.indices(std::iter::once(0).chain(ends)) }
    }
}

/// Indices and weights of the rows to pool, in one group per sequence. Groups are padded to equal length.
pub(super) struct Picked {
    pub(super) groups: usize,
    pub(super) longest: usize,
    rows: Indices,
    /// Pooling weights of the rows; zero for padding.
    weights: Numbers,
}

impl Picked {
    pub(super) fn new(batch: &Batch, pool: &Pool, tables: &mut Tables) -> Self {
        let groups = pool.parts.len();
        let size = |parts: &&[Part]| parts.iter().map(|p| p.rows.len()).sum::<usize>();
        let longest = pool.parts.iter().map(size).max().unwrap_or(0).max(1);
        let mut rows = Vec::with_capacity(groups * longest);
        let mut weights = Vec::with_capacity(groups * longest);
        let mut start = 0;
        for (n, (sequence, parts)) in batch.sequences.iter().zip(&pool.parts).enumerate() {
            for part in *parts {
                rows.extend(part.rows.clone().map(|row| (start + row) as u32));
                weights.resize(rows.len(), part.weight);
            }
            // Padding repeats the group's first row with weight zero, so it changes neither a maximum nor a sum.
            let filler = rows.get(n * longest).copied().unwrap_or(start as u32);
            rows.resize((n + 1) * longest, filler);
            weights.resize((n + 1) * longest, 0.0);
            start += sequence.len();
        }
        Picked { groups, longest, rows: tables.indices(rows), weights: tables.numbers(weights) }
    }

    pub(super) fn rows(&self, sent: &Sent) -> Result<Tensor> {
        sent.indices(&self.rows)
    }

    /// Returns the pooling weights with the shape (groups, 1, longest).
    pub(super) fn weights(&self, sent: &Sent) -> Result<Tensor> {
        sent.numbers(&self.weights, (self.groups, 1, self.longest))
    }
}
