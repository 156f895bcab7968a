//! Where tokens lie: end to end for the linear layers, in rows of equal length for attention.

use candle_core::{DType, Device, Result, Tensor};

use crate::encoder::{Batch, Part, Pool};

/// Added to the scores of what is no token. Finite, and within the range of f16; its exponential is zero.
const NO_TOKEN: f32 = -30_000.0;

/// A batch's sequences as rows of equal length.
pub(super) struct Layout {
    pub(super) sequences: usize,
    pub(super) longest: usize,
    /// Absent where all sequences have one length.
    ragged: Option<Ragged>,
}

struct Ragged {
    /// For each place of each row, a token of the batch; behind a sequence's end any.
    padded: Tensor,
    /// For each token of the batch, its place in the rows.
    unpadded: Tensor,
    mask: Tensor,
}

impl Layout {
    pub(super) fn new(batch: &Batch, device: &Device) -> Result<Self> {
        let sequences = batch.sequences.len();
        let longest = batch.sequences.iter().map(|s| s.len()).max().unwrap_or(0);
        if batch.sequences.iter().all(|s| s.len() == longest) {
            return Ok(Layout { sequences, longest, ragged: None });
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
        let tokens = unpadded.len();
        let ragged = Ragged {
            padded: Tensor::from_vec(padded, sequences * longest, device)?,
            unpadded: Tensor::from_vec(unpadded, tokens, device)?,
            mask: Tensor::from_vec(mask, (sequences, 1, 1, longest), device)?,
        };
        Ok(Layout { sequences, longest, ragged: Some(ragged) })
    }

    pub(super) fn pad(&self, tokens: &Tensor) -> Result<Tensor> {
        match &self.ragged {
            Some(ragged) => tokens.index_select(&ragged.padded, 0),
            None => Ok(tokens.clone()),
        }
    }

    pub(super) fn unpad(&self, rows: &Tensor) -> Result<Tensor> {
        match &self.ragged {
            Some(ragged) => rows.index_select(&ragged.unpadded, 0),
            None => Ok(rows.clone()),
        }
    }

    pub(super) fn mask(&self, dtype: DType) -> Result<Option<Tensor>> {
        self.ragged.as_ref().map(|ragged| ragged.mask.to_dtype(dtype)).transpose()
    }
}

/// The rows that are pooled, as a table of equal length.
pub(super) struct Picked {
    pub(super) groups: usize,
    pub(super) longest: usize,
    pub(super) rows: Tensor,
    /// (groups, 1, longest); zero behind a group's end.
    pub(super) weights: Tensor,
}

impl Picked {
    pub(super) fn new(batch: &Batch, pool: &Pool, device: &Device) -> Result<Self> {
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
        Ok(Picked {
            groups,
            longest,
            rows: Tensor::from_vec(rows, groups * longest, device)?,
            weights: Tensor::from_vec(weights, (groups, 1, longest), device)?,
        })
    }
}
