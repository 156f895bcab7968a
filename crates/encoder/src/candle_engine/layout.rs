//! Where tokens lie: end to end for the linear layers; for attention in rows of equal length, or end to end too.

use candle_core::{DType, Result, Tensor};

use super::staging::{Indices, Numbers, Sent, Tables};
use crate::{Batch, Part, Pool};

/// Added to the scores of what is no token. Finite, and within the range of f16; its exponential is zero.
const NO_TOKEN: f32 = -30_000.0;

/// What attention sees of a batch.
pub(super) enum Layout {
    /// The sequences as rows of equal length.
    Rows(Rows),
    /// The sequences end to end.
    #[cfg(feature = "flash-attn")]
    Packed(Packed),
}

/// A batch's sequences as rows of equal length.
pub(super) struct Rows {
    pub(super) sequences: usize,
    pub(super) longest: usize,
    /// Absent where all sequences have one length.
    ragged: Option<Ragged>,
}

struct Ragged {
    /// For each place of each row, a token of the batch; behind a sequence's end any.
    padded: Indices,
    /// For each token of the batch, its place in the rows.
    unpadded: Indices,
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
        let mut mask = vec![NO_TOKEN; sequences * longest];
        let mut unpadded = Vec::with_capacity(batch.tokens());
        let mut token = 0;
        for (row, sequence) in batch.sequences.iter().enumerate() {
            for place in row * longest..row * longest + sequence.len() {
                padded[place] = token;
                mask[place] = 0.0;
                unpadded.push(place as u32);
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

    pub(super) fn pad(&self, tokens: &Tensor, sent: &Sent) -> Result<Tensor> {
        match &self.ragged {
            Some(ragged) => tokens.index_select(&sent.indices(&ragged.padded)?, 0),
            None => Ok(tokens.clone()),
        }
    }

    pub(super) fn unpad(&self, rows: &Tensor, sent: &Sent) -> Result<Tensor> {
        match &self.ragged {
            Some(ragged) => rows.index_select(&sent.indices(&ragged.unpadded)?, 0),
            None => Ok(rows.clone()),
        }
    }

    pub(super) fn mask(&self, dtype: DType, sent: &Sent) -> Result<Option<Tensor>> {
        let mask = |ragged: &Ragged| {
            sent.numbers(&ragged.mask, (self.sequences, 1, 1, self.longest))?.to_dtype(dtype)
        };
        self.ragged.as_ref().map(mask).transpose()
    }
}

/// A batch's sequences end to end.
#[cfg(feature = "flash-attn")]
pub(super) struct Packed {
    pub(super) longest: usize,
    /// Where each sequence begins, and where the last one ends.
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

/// The rows that are pooled, as a table of equal length.
pub(super) struct Picked {
    pub(super) groups: usize,
    pub(super) longest: usize,
    rows: Indices,
    /// Zero behind a group's end.
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
            // What fills up repeats a row of the group, which changes no maximum, and weighs nothing.
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

    /// (groups, 1, longest)
    pub(super) fn weights(&self, sent: &Sent) -> Result<Tensor> {
        sent.numbers(&self.weights, (self.groups, 1, self.longest))
    }
}
