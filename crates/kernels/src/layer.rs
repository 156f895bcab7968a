//! Transformer layer with packed weights, and the layer norm of a residual sum. The attention heads are padded, so that
//! each head starts at a SIMD vector boundary.

use turnwise_core::Result;

use crate::{
    Precision,
    attention::{DistanceBias, HeadWorkspace, Heads, SPARE_ROWS, attend},
    codes::CodeBuffers,
    network::{Activation, Layer, Linear, Norm, Shape},
    pack::{Buffer, GRAIN, Packed},
    product::{Out, product},
    simd::{Kernel, Simd},
    spread::Team,
};

/// Number of tokens per block in the feed-forward sublayer. The intermediate states of a block stay in the cache.
const FEED_BLOCK: usize = 256;

/// Transformer layer with packed weights.
pub(super) struct PackedLayer {
    heads: Heads,
    activation: Activation,
    /// Query, key and value projections, computed as one product.
    projection: Packed,
    attention_output: Packed,
    attention_norm: PaddedNorm,
    intermediate: Packed,
    output: Packed,
    output_norm: PaddedNorm,
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
    projected: Buffer,
    context: Buffer,
    inner: Buffer,
    codes: CodeBuffers,
    /// Attention workspaces: one for each group of heads that is computed separately.
    heads: Vec<HeadWorkspace>,
}

/// Returns the parameters of a layer norm, padded with zeros to a multiple of [`GRAIN`].
pub(super) fn padded_norm(norm: &Norm, shape: &Shape) -> PaddedNorm {
    let fill = |numbers: &[f32]| {
        let mut numbers = numbers.to_vec();
        numbers.resize(shape.hidden.next_multiple_of(GRAIN), 0.0);
        numbers
    };
    PaddedNorm {
        width: shape.hidden,
        weight: fill(&norm.weight),
        bias: fill(&norm.bias),
        epsilon: shape.norm_epsilon,
    }
}

impl PackedLayer {
    /// Packs a layer for the SIMD level of `S`.
    pub fn new<S: Simd>(layer: &Layer, shape: &Shape, precision: Precision) -> Result<Self> {
        let (h, size) = (shape.hidden, shape.hidden / shape.heads);
        let squares = Heads::in_squares(Packed::squared::<S>(precision));
        let heads = Heads { count: shape.heads, stride: size.next_multiple_of(GRAIN), squares };
        // Converts a row number without padding of the heads to a row number with padding after each head.
        let place = |i: usize| i / size * heads.stride + i % size;
        let width = heads.width();

        let (mut weight, mut bias) = (vec![0.0; 3 * width * h], vec![0.0; 3 * width]);
        let scale = 1.0 / (size as f64).sqrt();
        for (part, linear) in [&layer.query, &layer.key, &layer.value].into_iter().enumerate() {
            // The query weights are multiplied by the scale of the scores, which is the inverse square root of the head
            // size.
            let scaled = |x: &f32| if part == 0 { (f64::from(*x) * scale) as f32 } else { *x };
            for i in 0..h {
                let to = part * width + place(i);
                let from = linear.weight[i * h..(i + 1) * h].iter().map(scaled);
                weight[to * h..(to + 1) * h].iter_mut().zip(from).for_each(|(to, from)| *to = from);
                bias[to] = scaled(&linear.bias[i]);
            }
        }
        let projection = Packed::new::<S>(precision, (h, 3 * width), &weight, &bias)?;

        let mut weight = vec![0.0; h * width];
        for (to, from) in weight.chunks_exact_mut(width).zip(layer.attention_output.weight.chunks_exact(h)) {
            from.iter().enumerate().for_each(|(i, w)| to[place(i)] = *w);
        }
        let attention_output =
            Packed::new::<S>(precision, (width, h), &weight, &layer.attention_output.bias)?;
        let plain = |l: &Linear| Packed::new::<S>(precision, (l.inputs, l.outputs), &l.weight, &l.bias);
        Ok(PackedLayer {
            heads,
            activation: shape.activation,
            projection,
            attention_output,
            attention_norm: padded_norm(&layer.attention_norm, shape),
            intermediate: plain(&layer.intermediate)?,
            output: plain(&layer.output)?,
            output_norm: padded_norm(&layer.output_norm, shape),
        })
    }

    /// Applies the layer to the hidden states in `workspace.x`, in place. `lengths` holds the number of tokens of each
    /// sequence, and `tokens` is their sum. The biases, if any, are added to the attention scores.
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
        biases: Option<&DistanceBias>,
        team: &Team,
    ) {
        let Workspace { x, y, projected, context, inner, codes, heads } = workspace;
        let h = self.output.outputs;
        let (three, width) = (self.projection.outputs, self.heads.width());
        projected.reserve::<f32>((tokens + SPARE_ROWS) * three);
        context.reserve::<f32>(tokens * width);
        y.reserve::<f32>(tokens * h);
        let (projected, context) = (projected.of_mut::<f32>(), context.of_mut::<f32>());
        let (x, y) = (x.of_mut::<f32>(), y.of_mut::<f32>());
        // SAFETY: the caller guarantees the processor features; the called functions check the lengths.
        unsafe {
            linear::<S>(&self.projection, codes, (x, h), tokens, (projected, three), None, team);
            let (mut start, mut count) = (0, 0);
            for length in lengths {
                let queries = match rows {
                    Rows::All => length,
                    Rows::First => length.min(1),
                };
                let of = (self.heads, biases);
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
            AddNorm { x, y: Some(y), stride: h, norm: &self.attention_norm }.run::<S::Base>();
            // Each row gets one extra cache line. If the row stride were a power of two, the rows would evict each
            // other from the cache.
            let middle = self.intermediate.outputs + GRAIN;
            inner.reserve::<f32>(FEED_BLOCK.min(tokens) * middle);
            let inner = inner.of_mut::<f32>();
            for start in (0..tokens).step_by(FEED_BLOCK) {
                let n = FEED_BLOCK.min(tokens - start);
                let (x, y) = (&mut x[start * h..(start + n) * h], &mut y[start * h..(start + n) * h]);
                linear::<S>(
                    &self.intermediate,
                    codes,
                    (x, h),
                    n,
                    (inner, middle),
                    Some(self.activation),
                    team,
                );
                linear::<S>(&self.output, codes, (inner, middle), n, (y, h), None, team);
                AddNorm { x, y: Some(y), stride: h, norm: &self.output_norm }.run::<S::Base>();
            }
        }
    }
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

/// Parameters of a layer norm, padded with zeros beyond the true width.
#[derive(Clone)]
pub(super) struct PaddedNorm {
    /// Width without padding.
    pub width: usize,
    pub weight: Vec<f32>,
    pub bias: Vec<f32>,
    pub epsilon: f32,
}

/// Kernel that computes `x = norm(x + y)`, row by row.
pub(super) struct AddNorm<'a> {
    /// Rows to normalize in place.
    pub x: &'a mut [f32],
    /// Rows to add to `x` before the normalization, if any.
    pub y: Option<&'a [f32]>,
    /// Row stride of `x` and `y`; a multiple of the number of lanes.
    pub stride: usize,
    pub norm: &'a PaddedNorm,
}

impl AddNorm<'_> {
    /// Runs the kernel.
    ///
    /// # Safety
    ///
    /// The processor must have the features of `S`.
    pub unsafe fn run<S: Simd>(self) {
        assert!(self.stride.is_multiple_of(S::LANES) && self.x.len().is_multiple_of(self.stride));
        assert!(self.y.is_none_or(|y| y.len() >= self.x.len()));
        assert!(self.norm.width <= self.stride);
        assert!(self.norm.weight.len() >= self.stride && self.norm.bias.len() >= self.stride);
        // SAFETY: the caller guarantees the processor features; the asserts check the lengths.
        unsafe { S::enter(self) }
    }
}

impl<S: Simd> Kernel<S> for AddNorm<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        let AddNorm { x, y, stride, norm } = self;
        let (whole, width) = (norm.width / S::LANES * S::LANES, norm.width as f32);
        for row in 0..x.len() / stride {
            // SAFETY: `run` has checked that the rows and the norm's parameters have `stride` numbers.
            unsafe {
                let row_x = x.as_mut_ptr().add(row * stride);
                let mut sum = S::splat(0.0);
                for i in (0..stride).step_by(S::LANES) {
                    let mut v = S::load(row_x.add(i));
                    if let Some(y) = y {
                        v = S::add(v, S::load(y.as_ptr().add(row * stride + i)));
                        S::store(row_x.add(i), v);
                    }
                    sum = S::add(sum, v);
                }
                let mean = S::splat(S::total(sum) / width);
                let mut squares = S::splat(0.0);
                for i in (0..stride).step_by(S::LANES) {
                    let mut d = S::sub(S::load(row_x.add(i)), mean);
                    if i >= whole {
                        d = S::first(norm.width.saturating_sub(i), d, S::splat(0.0));
                    }
                    squares = S::fma(d, d, squares);
                }
                let factor = S::splat(1.0 / (S::total(squares) / width + norm.epsilon).sqrt());
                for i in (0..stride).step_by(S::LANES) {
                    let d = S::mul(S::sub(S::load(row_x.add(i)), mean), factor);
                    let (w, b) = (S::load(norm.weight.as_ptr().add(i)), S::load(norm.bias.as_ptr().add(i)));
                    S::store(row_x.add(i), S::fma(d, w, b));
                }
            }
        }
    }
}
