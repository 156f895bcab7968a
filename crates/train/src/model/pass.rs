//! Forward and backward pass through the trained layers on the CPU.
//!
//! The results equal those of the autograd graph of [`Layer::run`], which runs on GPUs and is the reference in the
//! tests. Autograd zeroes a tensor for every gradient and then accumulates into it. This module avoids most of this
//! work, and reuses its buffers between steps.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use candle_core::{Result as Candle, Tensor, TensorId};

use super::{
    DropoutConfig, Packed, Replaced,
    batch::Site,
    layers::{Layer, Tables},
};
use crate::ops::{Dropout, attention::Attention, drop_of, linear, norm::Normed, values_of};
use turnwise_encoder::network::Shape;
use turnwise_kernels::DistanceBias;

/// Gradients of the parameters, by tensor id.
pub(super) type GradientMap = HashMap<TensorId, Tensor>;

/// Inputs of a forward or backward pass: batch, network shape, dropout and buffers.
pub(super) struct PassConfig<'a> {
    pub(super) shape: &'a Shape,
    pub(super) packed: &'a Packed,
    pub(super) bias: Option<&'a DistanceBias>,
    pub(super) dropout: Option<&'a DropoutConfig>,
    pub(super) buffers: &'a BufferPool,
}

impl PassConfig<'_> {
    fn dropped(&self, layer: usize, site: Site) -> Option<Dropout> {
        self.dropout.and_then(|dropout| dropout.at(layer, site))
    }

    fn normed(&self, layer: usize, site: Site) -> Normed {
        Normed { epsilon: self.shape.norm_epsilon, dropped: self.dropped(layer, site) }
    }

    fn attention(&self, layer: usize) -> Attention<'_> {
        Attention {
            lengths: self.packed.lengths.clone(),
            heads: self.shape.heads,
            bias: self.bias,
            dropped: self.dropped(layer, Site::Attention),
        }
    }

    /// Returns a buffer with one row of `width` elements per token.
    fn rows(&self, width: usize) -> Vec<f32> {
        self.buffers.take(self.packed.tokens() * width)
    }
}

/// Applies a linear layer to the rows of `x`, and writes the result to `out`.
fn apply(x: &[f32], (weight, bias): &(Tensor, Tensor), out: &mut [f32]) -> Candle<()> {
    linear::apply(x, values_of(weight).get()?, values_of(bias).get()?, out);
    Ok(())
}

/// Computes the gradients of a linear layer's parameters, and stores them in `gradients`.
fn parameter_gradients(
    x: &[f32],
    (weight, bias): &(Tensor, Tensor),
    gradient: &[f32],
    gradients: &mut GradientMap,
) -> Candle<()> {
    let (outputs, inputs) = weight.dims2()?;
    store(gradients, weight, linear::of_weight(gradient, x, outputs, inputs))?;
    store(gradients, bias, linear::of_bias(gradient, outputs))
}

/// Writes the gradient of a linear layer's input to `of_x`, or adds it to `of_x` if `add` is true.
fn input_gradient(
    (weight, bias): &(Tensor, Tensor),
    gradient: &[f32],
    of_x: &mut [f32],
    add: bool,
) -> Candle<()> {
    linear::of_input(gradient, values_of(weight).get()?, bias.elem_count(), of_x, add);
    Ok(())
}

pub(super) fn store(gradients: &mut GradientMap, of: &Tensor, numbers: Vec<f32>) -> Candle<()> {
    gradients.insert(of.id(), Tensor::from_vec(numbers, of.shape(), of.device())?);
    Ok(())
}

/// Activations of a layer, saved for the backward pass.
pub(super) struct SavedLayer {
    x: Vec<f32>,
    /// Queries, keys and values.
    projected: Vec<f32>,
    /// Attention output, with the heads concatenated.
    attended: Vec<f32>,
    /// Attention output after the output projection, before the residual connection.
    context: Vec<f32>,
    /// Input of the feed-forward block.
    middle: Vec<f32>,
    /// Intermediate states, before and after the activation function.
    inner: [Vec<f32>; 2],
    /// Output of the feed-forward block, before the residual connection.
    outer: Vec<f32>,
}

impl SavedLayer {
    /// Returns all buffers for reuse.
    pub(super) fn vectors(self) -> impl Iterator<Item = Vec<f32>> {
        let [before, after] = self.inner;
        [self.x, self.projected, self.attended, self.context, self.middle, before, after, self.outer]
            .into_iter()
    }
}

/// Runs a layer. Returns its output and the saved activations.
pub(super) fn forward(
    layer: &Layer,
    number: usize,
    x: Vec<f32>,
    config: &PassConfig,
) -> Candle<(Vec<f32>, SavedLayer)> {
    let (width, between) = (config.shape.hidden, config.shape.intermediate);
    let mut projected = config.rows(3 * width);
    apply(&x, &layer.projection, &mut projected)?;
    let mut attended = config.rows(width);
    config.attention(number).apply(&projected, width, &mut attended);
    let mut context = config.rows(width);
    apply(&attended, &layer.context, &mut context)?;
    let mut middle = config.rows(width);
    config.normed(number, Site::Context).apply(
        values_of(&layer.context_norm).get()?,
        &x,
        &context,
        &mut middle,
    );
    let mut inner = [config.rows(between), config.rows(between)];
    apply(&middle, &layer.inner, &mut inner[0])?;
    let [before, after] = &mut inner;
    linear::activate(config.shape.activation, before, after);
    let mut outer = config.rows(width);
    apply(after, &layer.outer, &mut outer)?;
    let mut out = config.rows(width);
    config.normed(number, Site::Feed).apply(values_of(&layer.outer_norm).get()?, &middle, &outer, &mut out);
    Ok((out, SavedLayer { x, projected, attended, context, middle, inner, outer }))
}

/// Runs the backward pass of a layer. `gradient` is the gradient of its output. Returns the gradient of its input, and
/// adds the gradients of its parameters to `gradients` and that of the relative position bias to `of_bias`.
///
/// The saved activations go back to the buffer pool.
pub(super) fn backward(
    (layer, number): (&Layer, usize),
    saved: SavedLayer,
    gradient: Vec<f32>,
    config: &PassConfig,
    gradients: &mut GradientMap,
    of_bias: Option<&mut [f32]>,
) -> Candle<Vec<f32>> {
    let (width, between) = (config.shape.hidden, config.shape.intermediate);
    // Each gradient has the name of the activation that it belongs to.
    let (mut middle, mut outer) = (config.rows(width), config.rows(width));
    let norm = config.normed(number, Site::Feed).backward(
        values_of(&layer.outer_norm).get()?,
        [&saved.middle, &saved.outer],
        &gradient,
        [&mut middle, &mut outer],
    );
    store(gradients, &layer.outer_norm, norm)?;
    let [before, after] = &saved.inner;
    parameter_gradients(after, &layer.outer, &outer, gradients)?;
    let mut of_after = config.rows(between);
    input_gradient(&layer.outer, &outer, &mut of_after, false)?;
    let mut of_before = config.rows(between);
    linear::activate_back(config.shape.activation, before, &of_after, &mut of_before);
    parameter_gradients(&saved.middle, &layer.inner, &of_before, gradients)?;
    input_gradient(&layer.inner, &of_before, &mut middle, true)?;
    config.buffers.give([of_after, of_before]);

    let (mut x, mut context) = (gradient, outer);
    let norm = config.normed(number, Site::Context).backward(
        values_of(&layer.context_norm).get()?,
        [&saved.x, &saved.context],
        &middle,
        [&mut x, &mut context],
    );
    store(gradients, &layer.context_norm, norm)?;
    parameter_gradients(&saved.attended, &layer.context, &context, gradients)?;
    let mut attended = middle;
    input_gradient(&layer.context, &context, &mut attended, false)?;
    let mut projected = config.rows(3 * width);
    config.attention(number).backward(&saved.projected, width, &attended, &mut projected, of_bias);
    parameter_gradients(&saved.x, &layer.projection, &projected, gradients)?;
    input_gradient(&layer.projection, &projected, &mut x, true)?;
    config.buffers.give([projected, attended, context]);
    config.buffers.give(saved.vectors());
    Ok(x)
}

/// Saved inputs of the layer normalization of the embeddings: the word embeddings, and the sum of all other embeddings.
pub(super) struct SavedEmbeddings([Vec<f32>; 2]);

impl SavedEmbeddings {
    /// Returns all buffers for reuse.
    pub(super) fn vectors(self) -> impl Iterator<Item = Vec<f32>> {
        self.0.into_iter()
    }
}

/// Runs the embedding layer. Returns its output and the saved activations.
pub(super) fn embed(
    tables: &Tables,
    replaced: Option<&Replaced>,
    config: &PassConfig,
) -> Candle<(Vec<f32>, SavedEmbeddings)> {
    let width = config.shape.hidden;
    let (mut words, mut more) = (config.rows(width), config.rows(width));
    more.fill(0.0);
    for (n, (table, rows)) in tables.rows(config.packed, config.shape).into_iter().enumerate() {
        let table = values_of(table);
        let table = table.get()?;
        let row = |row: u32| &table[row as usize * width..][..width];
        match n {
            0 => words.chunks_exact_mut(width).zip(rows).for_each(|(to, id)| to.copy_from_slice(row(id))),
            _ => more
                .chunks_exact_mut(width)
                .zip(rows)
                .for_each(|(to, id)| to.iter_mut().zip(row(id)).for_each(|(to, from)| *to += from)),
        }
    }
    if let Some(Replaced { places, vectors }) = replaced {
        let vectors = vectors.contiguous()?;
        let vectors = values_of(&vectors);
        let vectors = vectors.get()?;
        for (row, vector) in places {
            words[*row as usize * width..][..width]
                .copy_from_slice(&vectors[*vector as usize * width..][..width]);
        }
    }
    let mut out = config.rows(width);
    let normed = Normed { epsilon: config.shape.norm_epsilon, dropped: None };
    normed.apply(values_of(&tables.norm).get()?, &words, &more, &mut out);
    if let Some(dropped) = config.dropped(0, Site::Feed) {
        drop_of(dropped, &mut out);
    }
    Ok((out, SavedEmbeddings([words, more])))
}

/// Runs the backward pass of the embedding layer. `gradient` is the gradient of its output. Adds the gradients of its
/// parameters to `gradients`, and returns the gradient of the input vectors if there are any.
pub(super) fn embed_backward(
    tables: &Tables,
    embedded: SavedEmbeddings,
    replaced: Option<&Replaced>,
    mut gradient: Vec<f32>,
    config: &PassConfig,
    gradients: &mut GradientMap,
) -> Candle<Option<Tensor>> {
    let width = config.shape.hidden;
    if let Some(dropped) = config.dropped(0, Site::Feed) {
        drop_of(dropped, &mut gradient);
    }
    let (mut words, mut more) = (config.rows(width), config.rows(width));
    let normed = Normed { epsilon: config.shape.norm_epsilon, dropped: None };
    let [x, y] = &embedded.0;
    let norm = normed.backward(values_of(&tables.norm).get()?, [x, y], &gradient, [&mut words, &mut more]);
    store(gradients, &tables.norm, norm)?;
    let of_vectors = match replaced {
        Some(replaced) => Some(take_replaced(replaced, &mut words, width)?),
        None => None,
    };
    for (n, (table, rows)) in tables.rows(config.packed, config.shape).into_iter().enumerate() {
        let from = if n == 0 { &words } else { &more };
        let mut of_table = vec![0.0; table.elem_count()];
        for (from, row) in from.chunks_exact(width).zip(rows) {
            let to = &mut of_table[row as usize * width..][..width];
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        }
        store(gradients, table, of_table)?;
    }
    config.buffers.give([words, more, gradient]);
    config.buffers.give(embedded.vectors());
    Ok(of_vectors)
}

/// Returns the gradient of the input vectors, and sets the gradient of the replaced word embeddings to zero.
fn take_replaced(replaced: &Replaced, words: &mut [f32], width: usize) -> Candle<Tensor> {
    let Replaced { places, vectors } = replaced;
    let mut of_vectors = vec![0.0; vectors.elem_count()];
    for (row, vector) in places {
        let from = &mut words[*row as usize * width..][..width];
        let to = &mut of_vectors[*vector as usize * width..][..width];
        to.iter_mut().zip(from.iter()).for_each(|(to, from)| *to += from);
        from.fill(0.0);
    }
    Tensor::from_vec(of_vectors, vectors.shape(), vectors.device())
}

/// Pool of `f32` buffers that are not in use.
///
/// Every step needs buffers of about the same sizes. Without the pool, zeroing new memory would take as long as some of
/// the computations.
#[derive(Default)]
pub(super) struct BufferPool(Mutex<Vec<Vec<f32>>>);

impl BufferPool {
    /// Returns a buffer of `length` elements with arbitrary contents.
    pub(super) fn take(&self, length: usize) -> Vec<f32> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = (0..free.len()).filter(|n| free[*n].capacity() >= length);
        let mut taken = match fits.min_by_key(|n| free[*n].capacity()) {
            Some(n) => free.swap_remove(n),
            None => {
                // Replace the largest buffer, which is too small. The extra capacity is for longer batches.
                if let Some(n) = (0..free.len()).max_by_key(|n| free[*n].capacity()) {
                    free.swap_remove(n);
                }
                Vec::with_capacity(length + length / 4)
            }
        };
        drop(free);
        taken.resize(length, 0.0);
        taken
    }

    pub(super) fn give(&self, vectors: impl IntoIterator<Item = Vec<f32>>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(vectors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_reused_if_it_is_large_enough() {
        let buffers = BufferPool::default();
        let long = buffers.take(1000);
        let at = long.as_ptr();
        buffers.give([long]);
        let again = buffers.take(900);
        assert_eq!((again.as_ptr(), again.len()), (at, 900));
        buffers.give([again, vec![1.0; 10]]);
        assert_eq!(buffers.take(8).capacity(), 10);
        assert_eq!(buffers.take(5000).len(), 5000);
        assert!(buffers.0.lock().unwrap().is_empty());
    }
}
