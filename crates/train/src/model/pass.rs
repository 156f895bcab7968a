//! A pass through the trained layers on the CPU, and the way back.
//!
//! The same as the graph of [`Layer::run`], which is what runs on a GPU and what this is tested against. A graph clears a
//! tensor for every gradient and then adds the gradient to it; here each is written where it belongs, once, into vectors
//! that are used again from step to step.

use std::collections::HashMap;

use candle_core::{Result as Candle, Tensor, TensorId};

use super::{
    DropoutConfig, Packed,
    batch::Site,
    buffer_pool::BufferPool,
    layers::{Layer, Tables},
};
use crate::ops::{
    attention::Attention,
    dropout::{Dropout, drop_of},
    held, linear,
    norm::Normed,
};
use turnwise_encoder::network::Shape;

/// The gradients of parameters, by their tensors.
pub(super) type Slopes = HashMap<TensorId, Tensor>;

/// What a pass is made with.
pub(super) struct With<'a> {
    pub(super) shape: &'a Shape,
    pub(super) packed: &'a Packed,
    pub(super) chance: Option<&'a DropoutConfig>,
    pub(super) room: &'a BufferPool,
}

impl With<'_> {
    fn dropped(&self, layer: usize, site: Site) -> Option<Dropout> {
        self.chance.and_then(|chance| chance.at(layer, site))
    }

    fn normed(&self, layer: usize, site: Site) -> Normed {
        Normed { epsilon: self.shape.norm_epsilon, dropped: self.dropped(layer, site) }
    }

    fn attention(&self, layer: usize) -> Attention {
        Attention {
            lengths: self.packed.lengths.clone(),
            heads: self.shape.heads,
            dropped: self.dropped(layer, Site::Attention),
        }
    }

    /// BufferPool for a row of so many numbers for each token.
    fn rows(&self, width: usize) -> Vec<f32> {
        self.room.take(self.packed.tokens() * width)
    }
}

/// A product with its parameters at hand.
fn apply(x: &[f32], (weight, bias): &(Tensor, Tensor), out: &mut [f32]) -> Candle<()> {
    linear::apply(x, held(weight).get()?, held(bias).get()?, out);
    Ok(())
}

/// The gradients of a product's parameters.
fn of_parameters(
    x: &[f32],
    (weight, bias): &(Tensor, Tensor),
    gradient: &[f32],
    slopes: &mut Slopes,
) -> Candle<()> {
    let (outputs, inputs) = weight.dims2()?;
    keep(slopes, weight, linear::of_weight(gradient, x, outputs, inputs))?;
    keep(slopes, bias, linear::of_bias(gradient, outputs))
}

/// The gradient of a product's input.
fn of_input((weight, bias): &(Tensor, Tensor), gradient: &[f32], of_x: &mut [f32], add: bool) -> Candle<()> {
    linear::of_input(gradient, held(weight).get()?, bias.elem_count(), of_x, add);
    Ok(())
}

fn keep(slopes: &mut Slopes, of: &Tensor, numbers: Vec<f32>) -> Candle<()> {
    slopes.insert(of.id(), Tensor::from_vec(numbers, of.shape(), of.device())?);
    Ok(())
}

/// What a layer made of its input, kept for the way back.
pub(super) struct Through {
    x: Vec<f32>,
    projected: Vec<f32>,
    attended: Vec<f32>,
    context: Vec<f32>,
    /// The input of the feed-forward part.
    middle: Vec<f32>,
    /// Before the activation, and after it.
    inner: [Vec<f32>; 2],
    outer: Vec<f32>,
}

impl Through {
    /// Everything that it keeps, to be used again.
    pub(super) fn vectors(self) -> impl Iterator<Item = Vec<f32>> {
        let [before, after] = self.inner;
        [self.x, self.projected, self.attended, self.context, self.middle, before, after, self.outer]
            .into_iter()
    }
}

/// Runs a layer: its states, and what the way back needs.
pub(super) fn forward(layer: &Layer, number: usize, x: Vec<f32>, with: &With) -> Candle<(Vec<f32>, Through)> {
    let (width, between) = (with.shape.hidden, with.shape.intermediate);
    let mut projected = with.rows(3 * width);
    apply(&x, &layer.projection, &mut projected)?;
    let mut attended = with.rows(width);
    with.attention(number).apply(&projected, width, &mut attended);
    let mut context = with.rows(width);
    apply(&attended, &layer.context, &mut context)?;
    let mut middle = with.rows(width);
    with.normed(number, Site::Context).apply(held(&layer.context_norm).get()?, &x, &context, &mut middle);
    let mut inner = [with.rows(between), with.rows(between)];
    apply(&middle, &layer.inner, &mut inner[0])?;
    let [before, after] = &mut inner;
    linear::activate(with.shape.activation, before, after);
    let mut outer = with.rows(width);
    apply(after, &layer.outer, &mut outer)?;
    let mut out = with.rows(width);
    with.normed(number, Site::Feed).apply(held(&layer.outer_norm).get()?, &middle, &outer, &mut out);
    Ok((out, Through { x, projected, attended, context, middle, inner, outer }))
}

/// From the gradient of a layer's states to that of its input; what it kept is given back.
pub(super) fn backward(
    layer: &Layer,
    number: usize,
    through: Through,
    gradient: Vec<f32>,
    with: &With,
    slopes: &mut Slopes,
) -> Candle<Vec<f32>> {
    let (width, between) = (with.shape.hidden, with.shape.intermediate);
    // The names of gradients are those of what they are gradients of.
    let (mut middle, mut outer) = (with.rows(width), with.rows(width));
    let norm = with.normed(number, Site::Feed).back(
        held(&layer.outer_norm).get()?,
        [&through.middle, &through.outer],
        &gradient,
        [&mut middle, &mut outer],
    );
    keep(slopes, &layer.outer_norm, norm)?;
    let [before, after] = &through.inner;
    of_parameters(after, &layer.outer, &outer, slopes)?;
    let mut of_after = with.rows(between);
    of_input(&layer.outer, &outer, &mut of_after, false)?;
    let mut of_before = with.rows(between);
    linear::activate_back(with.shape.activation, before, &of_after, &mut of_before);
    of_parameters(&through.middle, &layer.inner, &of_before, slopes)?;
    of_input(&layer.inner, &of_before, &mut middle, true)?;
    with.room.give([of_after, of_before]);

    let (mut x, mut context) = (gradient, outer);
    let norm = with.normed(number, Site::Context).back(
        held(&layer.context_norm).get()?,
        [&through.x, &through.context],
        &middle,
        [&mut x, &mut context],
    );
    keep(slopes, &layer.context_norm, norm)?;
    of_parameters(&through.attended, &layer.context, &context, slopes)?;
    let mut attended = middle;
    of_input(&layer.context, &context, &mut attended, false)?;
    let mut projected = with.rows(3 * width);
    with.attention(number).back(&through.projected, width, &attended, &mut projected);
    of_parameters(&through.x, &layer.projection, &projected, slopes)?;
    of_input(&layer.projection, &projected, &mut x, true)?;
    with.room.give([projected, attended, context]);
    with.room.give(through.vectors());
    Ok(x)
}

/// What embeddings were made of: the rows of words, and the sum of all other rows.
pub(super) struct Embedded([Vec<f32>; 2]);

impl Embedded {
    /// Everything that it keeps, to be used again.
    pub(super) fn vectors(self) -> impl Iterator<Item = Vec<f32>> {
        self.0.into_iter()
    }
}

/// Looks up the embeddings.
pub(super) fn embed(tables: &Tables, with: &With) -> Candle<(Vec<f32>, Embedded)> {
    let width = with.shape.hidden;
    let (mut words, mut more) = (with.rows(width), with.rows(width));
    more.fill(0.0);
    for (n, (table, rows)) in tables.rows(with.packed, with.shape).into_iter().enumerate() {
        let table = held(table);
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
    let mut out = with.rows(width);
    let normed = Normed { epsilon: with.shape.norm_epsilon, dropped: None };
    normed.apply(held(&tables.norm).get()?, &words, &more, &mut out);
    if let Some(dropped) = with.dropped(0, Site::Feed) {
        drop_of(dropped, &mut out);
    }
    Ok((out, Embedded([words, more])))
}

/// From the gradient of the embeddings to those of their tables.
pub(super) fn embed_backward(
    tables: &Tables,
    embedded: Embedded,
    mut gradient: Vec<f32>,
    with: &With,
    slopes: &mut Slopes,
) -> Candle<()> {
    let width = with.shape.hidden;
    if let Some(dropped) = with.dropped(0, Site::Feed) {
        drop_of(dropped, &mut gradient);
    }
    let (mut words, mut more) = (with.rows(width), with.rows(width));
    let normed = Normed { epsilon: with.shape.norm_epsilon, dropped: None };
    let [x, y] = &embedded.0;
    let norm = normed.back(held(&tables.norm).get()?, [x, y], &gradient, [&mut words, &mut more]);
    keep(slopes, &tables.norm, norm)?;
    for (n, (table, rows)) in tables.rows(with.packed, with.shape).into_iter().enumerate() {
        let from = if n == 0 { &words } else { &more };
        let mut of_table = vec![0.0; table.elem_count()];
        for (from, row) in from.chunks_exact(width).zip(rows) {
            let to = &mut of_table[row as usize * width..][..width];
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        }
        keep(slopes, table, of_table)?;
    }
    with.room.give([words, more, gradient]);
    with.room.give(embedded.vectors());
    Ok(())
}
