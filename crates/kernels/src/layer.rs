//! Transformer layer with packed weights. The attention heads are padded, so that each head starts at a SIMD vector
//! boundary.

use turnwise_core::Result;

use crate::{
    Precision,
    attention::{DistanceBias, HeadWorkspace, Heads, SPARE_ROWS, attend},
    codes::CodeBuffers,
    network::{Activation, Layer, Linear, Norm, NormOrder, Shape},
    norm::{AddNorm, PaddedNorm, padded_norm},
    pack::{Buffer, GRAIN, Packed},
    product::{Out, product},
    rotary::{Rotate, Rotation},
    simd::Simd,
    spread::Team,
    tile::Gate,
};

/// Number of tokens per block in the feed-forward sublayer. The intermediate states of a block stay in the cache.
const FEED_BLOCK: usize = 256;

/// Transformer layer with packed weights.
pub(super) struct PackedLayer {
    heads: Heads,
    activation: Activation,
    norm_order: NormOrder,
    /// Query, key and value projections, computed as one product.
    projection: Packed,
    /// Norms of the queries and of the keys of each head.
    head_norms: Option<[PaddedNorm; 2]>,
    attention_output: Packed,
    attention_norm: Option<PaddedNorm>,
    /// First linear layer of the feed-forward block. If the block has a gate, the outputs of the gate follow.
    intermediate: Packed,
    gated: bool,
    output: Packed,
    output_norm: PaddedNorm,
    /// Norms of the outputs of attention and of the feed-forward block.
    result_norms: Option<[PaddedNorm; 2]>,
}

/// Rows (tokens) of each sequence that the output of a layer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rows {
    All,
    First,
}

/// Buffers for the intermediate results of the layers, reused from batch to batch.
#[derive(Default)]
pub(super) struct Workspace {
    pub x: Buffer,
    y: Buffer,
    normed: Buffer,
    projected: Buffer,
    context: Buffer,
    inner: Buffer,
    codes: CodeBuffers,
    /// Attention workspaces: one for each group of heads that is computed separately.
    heads: Vec<HeadWorkspace>,
}

/// Positions of the tokens of a batch, as far as attention needs them.
#[derive(Clone, Copy, Default)]
pub(super) struct Positions<'a> {
    /// Biases of the attention scores.
    pub biases: Option<&'a DistanceBias>,
    /// Rotations of the queries and keys.
    pub rotation: Option<&'a Rotation<'a>>,
}

impl PackedLayer {
    /// Packs a layer for the SIMD level of `S`.
    pub fn new<S: Simd>(layer: &Layer, shape: &Shape, precision: Precision) -> Result<Self> {
        let (h, size) = (shape.hidden, shape.head_size);
        let squares = Heads::in_squares(Packed::squared::<S>(precision));
        let stride = size.next_multiple_of(GRAIN);
        let heads = Heads {
            count: shape.heads,
            key_count: shape.key_heads,
            stride,
            squares,
            window: layer.window,
            causal: shape.causal,
        };
        // Converts a row number without padding of the heads to a row number with padding after each head.
        let place = |i: usize| i / size * heads.stride + i % size;
        let (width, key_width) = (heads.width(), heads.key_width());

        let (mut weight, mut bias) = (vec![0.0; heads.row() * h], vec![0.0; heads.row()]);
        let scale = 1.0 / (size as f64).sqrt();
        let starts = [0, width, width + key_width];
        for (start, linear) in starts.into_iter().zip([&layer.query, &layer.key, &layer.value]) {
            // The query weights are multiplied by the scale of the scores, which is the inverse square root of the head
            // size. If the queries are normalized, the weights of the norm are multiplied instead.
            let is_scaled = start == 0 && layer.head_norms.is_none();
            let scaled = |x: &f32| if is_scaled { (f64::from(*x) * scale) as f32 } else { *x };
            for i in 0..linear.outputs {
                let to = start + place(i);
                let from = linear.weight[i * h..(i + 1) * h].iter().map(scaled);
                weight[to * h..(to + 1) * h].iter_mut().zip(from).for_each(|(to, from)| *to = from);
                bias[to] = scaled(&linear.bias[i]);
            }
        }
        let projection = Packed::new::<S>(precision, (h, heads.row()), &weight, &bias)?;
        let norms = |norms: &[Norm; 2]| norms.each_ref().map(|norm| padded_norm(norm, shape));
        let mut head_norms = layer.head_norms.as_ref().map(norms);
        if let Some([queries, _]) = &mut head_norms {
            let numbers = queries.weight.iter_mut().chain(&mut queries.bias);
            numbers.for_each(|x| *x = (f64::from(*x) * scale) as f32);
        }

        let mut weight = vec![0.0; h * width];
        let rows = layer.attention_output.weight.chunks_exact(layer.attention_output.inputs);
        for (to, from) in weight.chunks_exact_mut(width).zip(rows) {
            from.iter().enumerate().for_each(|(i, w)| to[place(i)] = *w);
        }
        let attention_output =
            Packed::new::<S>(precision, (width, h), &weight, &layer.attention_output.bias)?;
        let plain = |l: &Linear| Packed::new::<S>(precision, (l.inputs, l.outputs), &l.weight, &l.bias);
        let intermediate = match &layer.gate {
            None => plain(&layer.intermediate)?,
            Some(gate) => plain(&stacked(&layer.intermediate, gate))?,
        };
        Ok(PackedLayer {
            heads,
            activation: shape.activation,
            norm_order: shape.norm_order,
            projection,
            head_norms,
            attention_output,
            attention_norm: layer.attention_norm.as_ref().map(|norm| padded_norm(norm, shape)),
            intermediate,
            gated: layer.gate.is_some(),
            output: plain(&layer.output)?,
            output_norm: padded_norm(&layer.output_norm, shape),
            result_norms: layer.result_norms.as_ref().map(norms),
        })
    }

    /// Applies the layer to the hidden states in `workspace.x`, in place. `lengths` holds the number of tokens of each
    /// sequence, and `tokens` is their sum.
    ///
    /// If `rows` is [`Rows::First`], only the states of the first tokens are computed. They are then the first rows of
    /// `workspace.x`, one per sequence.
    ///
    /// # Safety
    ///
    /// The processor must have the features of `S`, and the layer must be packed for `S`.
    pub unsafe fn run<S: Simd>(
        &self,
        workspace: &mut Workspace,
        lengths: impl Iterator<Item = usize>,
        (tokens, rows): (usize, Rows),
        positions: Positions,
        team: &Team,
    ) {
        let Workspace { x, y, normed, projected, context, inner, codes, heads } = workspace;
        let h = self.output.outputs;
        let (row, width) = (self.projection.outputs, self.heads.width());
        projected.reserve::<f32>((tokens + SPARE_ROWS) * row);
        context.reserve::<f32>(tokens * width);
        y.reserve::<f32>(tokens * h);
        let (projected, context) = (projected.of_mut::<f32>(), context.of_mut::<f32>());
        let before = self.norm_order == NormOrder::Before;
        if before {
            normed.reserve::<f32>(tokens * h);
        }
        let (x, y, normed) = (x.of_mut::<f32>(), y.of_mut::<f32>(), normed.of_mut::<f32>());
        // SAFETY: the caller guarantees the processor features; the called functions check the lengths.
        unsafe {
            let input = match &self.attention_norm {
                Some(norm) if before => {
                    let x = &mut x[..tokens * h];
                    AddNorm { x, y: None, to: Some(&mut *normed), stride: h, norm }.run::<S::Base>();
                    &*normed
                }
                _ => &*x,
            };
            linear::<S>(&self.projection, codes, (input, h), tokens, (projected, row), None, team);
            self.prepare_heads::<S>(&mut projected[..tokens * row], positions);
            let (mut start, mut count) = (0, 0);
            for length in lengths {
                let queries = match rows {
                    Rows::All => length,
                    Rows::First => length.min(1),
                };
                let of = (self.heads, positions.biases);
                attend::<S>(of, projected, (start..start + length, queries), context, heads, team);
                if rows == Rows::First {
                    // Rows that are not needed any more can be overwritten: `count` is at most `start`.
                    context.copy_within(start * width..(start + queries) * width, count * width);
                    x.copy_within(start * h..(start + queries) * h, count * h);
                }
                start += length;
                count += queries;
            }
            let tokens = count;
            let (x, y) = (&mut x[..tokens * h], &mut y[..tokens * h]);
            linear::<S>(&self.attention_output, codes, (context, width), tokens, (y, h), None, team);
            if let Some([norm, _]) = &self.result_norms {
                AddNorm { x: &mut *y, y: None, to: None, stride: h, norm }.run::<S::Base>();
            }
            let to = if before { Some(&mut *normed) } else { None };
            let norm = if before { Some(&self.output_norm) } else { self.attention_norm.as_ref() };
            match norm {
                Some(norm) => AddNorm { x, y: Some(y), to, stride: h, norm }.run::<S::Base>(),
                None => add(x, y),
            }
            self.feed_forward::<S>((x, y, normed), inner, codes, team);
        }
    }

    /// Normalizes and rotates the queries and keys in rows of projections.
    ///
    /// # Safety
    ///
    /// The processor must have the features of `S`.
    unsafe fn prepare_heads<S: Simd>(&self, projected: &mut [f32], positions: Positions) {
        let (row, stride) = (self.projection.outputs, self.heads.stride);
        // The heads of the queries and those of the keys follow each other.
        if let Some([of_queries, of_keys]) = &self.head_norms {
            let (width, key_width) = (self.heads.width(), self.heads.key_width());
            for row in projected.chunks_exact_mut(row) {
                let (queries, keys) = row[..width + key_width].split_at_mut(width);
                for (x, norm) in [(queries, of_queries), (keys, of_keys)] {
                    // SAFETY: the caller guarantees the processor features.
                    unsafe { AddNorm { x, y: None, to: None, stride, norm }.run::<S::Base>() };
                }
            }
        }
        if let Some(rotation) = positions.rotation {
            let tokens = projected.len() / row;
            let heads = (self.heads.count + self.heads.key_count, stride);
            // SAFETY: the caller guarantees the processor features.
            unsafe { Rotate { rows: projected, stride: row, tokens, heads, rotation }.run::<S::Base>() };
        }
    }

    /// Applies the feed-forward block to the states `x`. With norms before the sublayers, `normed` holds its input; `y` is
    /// a buffer.
    ///
    /// # Safety
    ///
    /// The processor must have the features of `S`, and the layer must be packed for `S`.
    unsafe fn feed_forward<S: Simd>(
        &self,
        (x, y, normed): (&mut [f32], &mut [f32], &[f32]),
        inner: &mut Buffer,
        codes: &mut CodeBuffers,
        team: &Team,
    ) {
        let h = self.output.outputs;
        let tokens = x.len() / h;
        // Each row gets one extra cache line. If the row stride were a power of two, the rows would evict each other from
        // the cache.
        let middle = self.intermediate.outputs + GRAIN;
        inner.reserve::<f32>(FEED_BLOCK.min(tokens) * middle);
        let inner = inner.of_mut::<f32>();
        let activation = (!self.gated).then_some(self.activation);
        for start in (0..tokens).step_by(FEED_BLOCK) {
            let n = FEED_BLOCK.min(tokens - start);
            let rows = start * h..(start + n) * h;
            let (x, y) = (&mut x[rows.clone()], &mut y[rows.clone()]);
            let before = self.norm_order == NormOrder::Before;
            let input = if before { &normed[rows] } else { &*x };
            // SAFETY: the caller guarantees the processor features; the called functions check the lengths.
            unsafe {
                linear::<S>(&self.intermediate, codes, (input, h), n, (inner, middle), activation, team);
                if self.gated {
                    let (width, activation) = (self.output.inputs, self.activation);
                    Gate { rows: &mut inner[..n * middle], stride: middle, width, activation }
                        .run::<S::Base>();
                }
                linear::<S>(&self.output, codes, (inner, middle), n, (y, h), None, team);
                if let Some([_, norm]) = &self.result_norms {
                    AddNorm { x: &mut *y, y: None, to: None, stride: h, norm }.run::<S::Base>();
                }
                if before {
                    add(x, y);
                } else {
                    AddNorm { x, y: Some(y), to: None, stride: h, norm: &self.output_norm }.run::<S::Base>();
                }
            }
        }
    }
}

/// Returns a linear layer with the outputs of two layers. Those of the second layer start at the first multiple of
/// [`GRAIN`] after those of the first layer.
fn stacked(first: &Linear, second: &Linear) -> Linear {
    let outputs = first.outputs.next_multiple_of(GRAIN);
    let (mut weight, mut bias) = (first.weight.clone(), first.bias.clone());
    weight.resize(outputs * first.inputs, 0.0);
    bias.resize(outputs, 0.0);
    weight.extend_from_slice(&second.weight);
    bias.extend_from_slice(&second.bias);
    Linear { inputs: first.inputs, outputs: bias.len(), weight, bias }
}

fn add(x: &mut [f32], y: &[f32]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

/// Writes `activation(x · weights + bias)` to `numbers`. `x` and `numbers` are paired with their row strides.
///
/// # Safety
///
/// The processor must have the features of `S`, and the weights must be packed for `S`.
unsafe fn linear<S: Simd>(
    weights: &Packed,
    codes: &mut CodeBuffers,
    (x, x_stride): (&[f32], usize),
    rows: usize,
    (numbers, stride): (&mut [f32], usize),
    activation: Option<Activation>,
    team: &Team,
) {
    // SAFETY: the caller guarantees the processor features.
    unsafe {
        let left = codes.prepare::<S>(weights.precision, x, rows, (weights.inputs, x_stride));
        product::<S>(left, weights, Out { numbers, rows, stride }, activation, team);
    }
}
