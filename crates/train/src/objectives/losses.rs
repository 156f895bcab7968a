//! Building blocks of the losses: mean pooling, cosine similarities, cross-entropy and NT-Xent.

use candle_core::{D, Device, Result, Tensor};

use crate::{
    device,
    model::{Packed, Parameter, Trainable},
    ops::{linear, pool},
};
use turnwise_core::{error, random::hash64};
use turnwise_encoder::{Sequence, Vectors, network::Activation};

/// Mean-pools the tokens of each sequence.
pub(crate) fn means(states: &Tensor, packed: &Packed) -> Result<Tensor> {
    let parts = (0..packed.sequences.len()).map(|n| packed.mean(n, 1.0)).collect();
    pool(states, parts)
}

/// Number of sequences that are encoded together.
const BATCH: usize = 64;

/// Encodes sequences without gradients. Returns the L2-normalized mean of the hidden states of each sequence.
pub(crate) fn unit_means(model: &Trainable, sequences: &[Sequence]) -> error::Result<Vectors> {
    let mut vectors = Vectors::new(model.width());
    for chunk in sequences.chunks(BATCH) {
        let packed = Packed::new(chunk.to_vec());
        let states = model.states(&packed, None)?;
        let rows = means(&states, &packed).and_then(|means| unit(&means)?.to_vec2::<f32>());
        rows.map_err(device::error)?.iter().for_each(|row| vectors.push(row));
    }
    Ok(vectors)
}

/// Returns a mask that is added to in-batch scores, with one row per example and one column per positive. A row masks
/// each duplicate of the row's own positive, because a duplicate is not a negative.
pub(super) fn duplicate_mask(positives: &[Sequence]) -> Vec<f32> {
    let same = |a: usize, b: usize| a != b && positives[a].ids == positives[b].ids;
    let count = positives.len();
    let pairs = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
    pairs.map(|(a, b)| if same(a, b) { MASKED } else { 0.0 }).collect()
}

/// Creates the parameters of a linear layer with shape `[outputs, inputs]`: random weights and a zero bias.
pub(super) fn layer(
    name: &str,
    shape: [usize; 2],
    seed: u64,
    stream: u64,
    device: &Device,
) -> error::Result<[Parameter; 2]> {
    let weight = random_weights(shape, seed, stream);
    Ok([
        Parameter::new(format!("{name}.weight"), weight, &shape, true, device)?,
        Parameter::new(format!("{name}.bias"), vec![0.0; shape[0]], &shape[..1], false, device)?,
    ])
}

/// Creates the parameters of the pooling layer of BERT. Without a pre-trained layer, the seed initializes a new one.
pub(super) fn pooler(
    name: &str,
    width: usize,
    trained: Option<[Vec<f32>; 2]>,
    seed: u64,
    stream: u64,
    device: &Device,
) -> error::Result<[Parameter; 2]> {
    let Some([weight, bias]) = trained else { return layer(name, [width, width], seed, stream, device) };
    Ok([
        Parameter::new(format!("{name}.weight"), weight, &[width, width], true, device)?,
        Parameter::new(format!("{name}.bias"), bias, &[width], false, device)?,
    ])
}

/// Returns the states of the first tokens of the first `count` sequences.
pub(super) fn first_states(packed: &Packed, states: &Tensor, count: usize) -> Result<Tensor> {
    let first: Vec<u32> = packed.starts[..count].iter().map(|start| *start as u32).collect();
    states.index_select(&indices(&first, states)?, 0)
}

/// Returns the variables of parameters as tensors.
pub(super) fn tensors(parameters: &[Parameter]) -> Vec<Tensor> {
    parameters.iter().map(|parameter| parameter.var.as_tensor().clone()).collect()
}

/// Applies a linear layer. The first two entries of `layer` are its weight and its bias.
pub(super) fn apply(layer: &[Tensor], x: &Tensor, activation: Option<Activation>) -> Result<Tensor> {
    linear(x, &layer[0].to_dtype(x.dtype())?, &layer[1].to_dtype(x.dtype())?, activation)
}

/// Returns row indices as a tensor on the device of `like`.
pub(super) fn indices(rows: &[u32], like: &Tensor) -> Result<Tensor> {
    Tensor::from_slice(rows, rows.len(), like.device())
}

/// Returns random initial weights of a linear layer, uniformly distributed in ±1/√inputs.
pub(super) fn random_weights(shape: [usize; 2], seed: u64, stream: u64) -> Vec<f32> {
    let bound = 1.0 / (shape[1] as f64).sqrt();
    let unit = |i| (hash64(hash64(seed, stream), i) >> 11) as f64 / (1u64 << 53) as f64;
    (0..(shape[0] * shape[1]) as u64).map(|i| ((2.0 * unit(i) - 1.0) * bound) as f32).collect()
}

/// Value that is added to a score to exclude it from the softmax.
pub(super) const MASKED: f32 = -1e4;

/// Computes the dot product of each row of `a` with each row of `b`, and adds a mask.
pub(super) fn scores(a: &Tensor, b: &Tensor, mask: &[f32]) -> Result<Tensor> {
    let products = a.matmul(&b.t()?)?;
    let mask = Tensor::from_slice(mask, products.shape(), a.device())?.to_dtype(a.dtype())?;
    products + mask
}

/// L2-normalizes the rows. A small epsilon avoids a division by zero, so zero rows stay zero.
pub(super) fn unit(x: &Tensor) -> Result<Tensor> {
    x.broadcast_div(&(x.sqr()?.sum_keepdim(D::Minus1)? + 1e-12)?.sqrt()?)
}

/// Computes the cosine similarity of each row of `a` with the same row of `b`.
pub(super) fn cosines(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    (unit(a)? * unit(b)?)?.sum(D::Minus1)
}

/// `log softmax(scores/τ)` of each row.
pub(super) fn log_softmax(scores: &Tensor, temperature: f64) -> Result<Tensor> {
    let scores = (scores / temperature)?;
    // Subtract the maximum of each row, so that `exp` does not overflow.
    let scores = scores.broadcast_sub(&scores.max_keepdim(1)?.detach())?;
    scores.broadcast_sub(&scores.exp()?.sum_keepdim(1)?.log()?)
}

/// NT-Xent loss with the positives in the first column: the mean of `-log softmax(scores/τ)` over this column.
pub(super) fn nt_xent_first(scores: &Tensor, temperature: f64) -> Result<Tensor> {
    log_softmax(scores, temperature)?.narrow(1, 0, 1)?.mean_all()?.neg()
}

/// NT-Xent loss with the positives on the diagonal: the mean of `-log softmax(scores/τ)` over the diagonal.
pub(super) fn nt_xent_diagonal(scores: &Tensor, temperature: f64) -> Result<Tensor> {
    let own = Tensor::eye(scores.dim(0)?, scores.dtype(), scores.device())?;
    (log_softmax(scores, temperature)? * own)?.sum(1)?.mean_all()?.neg()
}

/// Logarithm of the softmax probability of the target class in each row, as a column.
pub(super) fn log_likelihoods(scores: &Tensor, classes: &[u32]) -> Result<Tensor> {
    let classes = Tensor::from_slice(classes, (classes.len(), 1), scores.device())?;
    log_softmax(scores, 1.0)?.gather(&classes, 1)
}

/// Mean binary cross-entropy of the logistic function of the outputs, one output per label (0 or 1).
pub(super) fn binary_cross_entropy(outputs: &Tensor, labels: &[f32]) -> Result<Tensor> {
    let labels = Tensor::from_slice(labels, labels.len(), outputs.device())?.to_dtype(outputs.dtype())?;
    // max(x, 0) − x·y + log(1 + e^(−|x|)) does not overflow.
    let softplus = ((outputs.abs()?.neg()?.exp()? + 1.0)?.log()? + outputs.relu()?)?;
    (softplus - (outputs * labels)?)?.mean_all()
}

/// Mean cross-entropy of the target classes, one class per row.
pub(super) fn cross_entropy(scores: &Tensor, classes: &[u32]) -> Result<Tensor> {
    log_likelihoods(scores, classes)?.mean_all()?.neg()
}
