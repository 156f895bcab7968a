//! Multi-head self-attention on packed sequences.

use std::sync::Arc;

use candle_core::{D, Result, Tensor};
use rayon::prelude::*;
use turnwise_kernels::{
    DistanceBias,
    training::{self, Attended},
};

use super::{Dropout, mask::attention_mask};

/// Computes self-attention with candle's operations: pads the sequences to equal length and masks the padding.
///
/// Each row of `projected` holds the concatenated query, key and value of one token. `bias` is added to the scores; its
/// shape is (1, heads, longest, longest).
pub fn attention(
    projected: &Tensor,
    lengths: &[usize],
    heads: usize,
    bias: Option<&Tensor>,
    dropped: Option<Dropout>,
) -> Result<Tensor> {
    let (tokens, width) = projected.dims2()?;
    let (width, device, dtype) = (width / 3, projected.device(), projected.dtype());
    let (count, longest, size) = (lengths.len(), lengths.iter().copied().max().unwrap_or(0), width / heads);
    // `from`: source token of each padded position (any token for padding). `to`: padded position of each token.
    let (mut from, mut to, mut mask) =
        (vec![0u32; count * longest], Vec::new(), vec![-1e4f32; count * longest]);
    let mut start = 0;
    for (n, length) in lengths.iter().enumerate() {
        for i in 0..*length {
            from[n * longest + i] = (start + i) as u32;
            mask[n * longest + i] = 0.0;
            to.push((n * longest + i) as u32);
        }
        start += length;
    }
    let rows = projected.index_select(&Tensor::from_vec(from, count * longest, device)?, 0)?;
    let rows = rows.reshape((count, longest, 3, heads, size))?;
    let part = |n: usize| rows.narrow(2, n, 1)?.squeeze(2)?.transpose(1, 2)?.contiguous();
    let (queries, keys, values) = ((part(0)? / (size as f64).sqrt())?, part(1)?, part(2)?);
    let mask = Tensor::from_vec(mask, (count, 1, 1, longest), device)?.to_dtype(dtype)?;
    let mut scores = queries.matmul(&keys.t()?)?.broadcast_add(&mask)?;
    if let Some(bias) = bias {
        scores = scores.broadcast_add(bias)?;
    }
    let mut weights = candle_nn::ops::softmax(&scores, D::Minus1)?;
    if let Some(dropped) = dropped {
        let factors = attention_mask(dropped, lengths, heads, device)?;
        weights = (weights * factors.to_dtype(dtype)?)?;
    }
    let context = weights.matmul(&values)?.transpose(1, 2)?.contiguous()?;
    let to = Tensor::from_vec(to, tokens, device)?;
    context.reshape((count * longest, width))?.index_select(&to, 0)
}

/// Self-attention on the CPU, without padding.
#[derive(Debug, Clone)]
pub(crate) struct Attention<'a> {
    pub(crate) lengths: Arc<[usize]>,
    pub(crate) heads: usize,
    pub(crate) bias: Option<&'a DistanceBias>,
    pub(crate) dropped: Option<Dropout>,
}

impl Attention<'_> {
    /// Writes the attention output to `out`, one row of `width` elements per token.
    pub(crate) fn apply(&self, projected: &[f32], width: usize, out: &mut [f32]) {
        self.each(projected, out, None, (width, width), |_, of, out, _| training::attend(of, out));
    }

    /// Writes the gradients with respect to the queries, keys and values to `of_projected`. Adds the gradient with
    /// respect to the table of the relative position bias to `of_bias`, if there is one.
    pub(crate) fn backward(
        &self,
        projected: &[f32],
        width: usize,
        gradient: &[f32],
        of_projected: &mut [f32],
        of_bias: Option<&mut [f32]>,
    ) {
        // Every sequence has its own sum. The sums are added in a fixed order, so that the result does not depend on
        // the threads.
        let elements = of_bias.as_ref().map_or(0, |of_bias| of_bias.len());
        let mut sums = vec![0.0; elements * self.lengths.len()];
        self.each(projected, of_projected, Some(&mut sums), (width, 3 * width), |first, of, out, sum| {
            let rows = &gradient[first * width..][..out.len() / 3];
            training::attend_backward(of, rows, out, Some(sum).filter(|sum| !sum.is_empty()));
        });
        if let Some(of_bias) = of_bias.filter(|of_bias| !of_bias.is_empty()) {
            for sum in sums.chunks_exact(elements) {
                of_bias.iter_mut().zip(sum).for_each(|(to, from)| *to += from);
            }
        }
    }

    /// Calls `f` for every sequence in parallel, with its first row, its rows of `projected`, its rows of `out`, and its
    /// part of `sums`, which has an equal part for each sequence.
    ///
    /// `numbers` is the row width of `out`.
    fn each(
        &self,
        projected: &[f32],
        out: &mut [f32],
        sums: Option<&mut [f32]>,
        (width, numbers): (usize, usize),
        f: impl Fn(usize, &Attended, &mut [f32], &mut [f32]) + Sync,
    ) {
        let mut jobs = Vec::with_capacity(self.lengths.len());
        let mut sums = sums.unwrap_or_default();
        let elements = sums.len() / self.lengths.len().max(1);
        let (mut projected, mut out, mut first) = (projected, out, 0);
        for (n, length) in self.lengths.iter().enumerate() {
            let (rows, more) = projected.split_at(length * 3 * width);
            let (to, rest) = std::mem::take(&mut out).split_at_mut(length * numbers);
            let (sum, other_sums) = std::mem::take(&mut sums).split_at_mut(elements);
            jobs.push((n, first, rows, to, sum));
            (projected, out, sums, first) = (more, rest, other_sums, first + length);
        }
        let (heads, bias) = (self.heads, self.bias);
        jobs.into_par_iter().for_each(|(n, first, rows, out, sum)| {
            let dropout = self.dropped.map(|d| d.of(n as u32));
            f(first, &Attended { projected: rows, heads, width, dropout, bias }, out, sum);
        });
    }
}
