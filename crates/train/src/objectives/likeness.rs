//! Cosines and the loss that pulls one of several likenesses above the others.

use std::sync::Arc;

use candle_core::{D, Device, Result, Tensor};

use crate::{
    device,
    model::{Packed, Parameter, Trainable},
    ops::{Segments, pool},
};
use turnwise_core::{error, random::mixed};
use turnwise_encoder::{Sequence, Vectors};

/// The mean of the tokens of each sequence.
pub(crate) fn means(states: &Tensor, packed: &Packed) -> Result<Tensor> {
    let parts = (0..packed.sequences.len()).map(|n| packed.mean(n, 1.0)).collect();
    pool(states, &Arc::new(Segments::new(parts)))
}

/// Sequences that are encoded together.
const TOGETHER: usize = 64;

/// The means of sequences by a model as it is, of length 1, without a graph.
pub(crate) fn unit_means(model: &Trainable, sequences: &[Sequence]) -> error::Result<Vectors> {
    let mut vectors = Vectors::new(model.width());
    for chunk in sequences.chunks(TOGETHER) {
        let packed = Packed::new(chunk.to_vec());
        let states = model.states(&packed, None)?;
        let rows = means(&states, &packed).and_then(|means| unit(&means)?.to_vec2::<f32>());
        rows.map_err(device::error)?.iter().for_each(|row| vectors.push(row));
    }
    Ok(vectors)
}

/// What is added to the likeness of each to each, so that what is said word for word again is no other utterance.
pub(super) fn said_twice(said: &[Sequence]) -> Vec<f32> {
    let same = |a: usize, b: usize| a != b && said[a].ids == said[b].ids;
    let pairs = (0..said.len()).flat_map(|a| (0..said.len()).map(move |b| (a, b)));
    pairs.map(|(a, b)| if same(a, b) { NEVER } else { 0.0 }).collect()
}

/// A layer of an objective's own, `[outputs, inputs]`: weights that belong to a seed and a stream, and no bias yet.
pub(super) fn layer(
    name: &str,
    shape: [usize; 2],
    seed: u64,
    stream: u64,
    device: &Device,
) -> error::Result<[Parameter; 2]> {
    let weight = drawn(shape, seed, stream);
    Ok([
        Parameter::new(format!("{name}.weight"), weight, &shape, true, device)?,
        Parameter::new(format!("{name}.bias"), vec![0.0; shape[0]], &shape[..1], false, device)?,
    ])
}

/// Numbers for a layer to begin with, within 1/√inputs.
pub(super) fn drawn(shape: [usize; 2], seed: u64, stream: u64) -> Vec<f32> {
    let bound = 1.0 / (shape[1] as f64).sqrt();
    let unit = |i| (mixed(mixed(seed, stream), i) >> 11) as f64 / (1u64 << 53) as f64;
    (0..(shape[0] * shape[1]) as u64).map(|i| ((2.0 * unit(i) - 1.0) * bound) as f32).collect()
}

/// Added to a likeness that is not asked about.
pub(super) const NEVER: f32 = -1e4;

/// The products of rows with rows, and what is added to them.
pub(super) fn scores(a: &Tensor, b: &Tensor, added: &[f32]) -> Result<Tensor> {
    let products = a.matmul(&b.t()?)?;
    let added = Tensor::from_slice(added, products.shape(), a.device())?.to_dtype(a.dtype())?;
    products + added
}

/// Rows of length 1. Of what is nearly nothing, nearly nothing is left.
pub(super) fn unit(x: &Tensor) -> Result<Tensor> {
    x.broadcast_div(&(x.sqr()?.sum_keepdim(D::Minus1)? + 1e-12)?.sqrt()?)
}

/// The cosines of rows with rows.
pub(super) fn cosines(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    (unit(a)? * unit(b)?)?.sum(D::Minus1)
}

/// `log softmax(scores/τ)` of each row.
pub(super) fn log_shares(scores: &Tensor, temperature: f64) -> Result<Tensor> {
    let scores = (scores / temperature)?;
    // Against the largest of the row, so that no power overflows.
    let scores = scores.broadcast_sub(&scores.max_keepdim(1)?.detach())?;
    scores.broadcast_sub(&scores.exp()?.sum_keepdim(1)?.log()?)
}

/// The mean over rows of `-log softmax(scores/τ)` at the first place.
pub(super) fn first_of(scores: &Tensor, temperature: f64) -> Result<Tensor> {
    log_shares(scores, temperature)?.narrow(1, 0, 1)?.mean_all()?.neg()
}

/// The mean over rows of `-log softmax(scores/τ)` at the row's own place.
pub(super) fn diagonal_of(scores: &Tensor, temperature: f64) -> Result<Tensor> {
    let own = Tensor::eye(scores.dim(0)?, scores.dtype(), scores.device())?;
    (log_shares(scores, temperature)? * own)?.sum(1)?.mean_all()?.neg()
}
