//! Self-attention within one sequence, head by head: in f32 with SIMD vectors, or in bf16 with AMX tiles (see the
//! module `squares`).

use std::{marker::PhantomData, ops::Range};

use crate::{
    format::F32,
    math,
    pack::{Buffer, GRAIN},
    product::{even_parts, even_tiles},
    simd::{Kernel, Simd, Squared},
    spread::{Shared, Team},
    tile::{Epilogue, Identity, RowScale, Tiles, with_tile},
};

mod bias;
mod squares;

pub use bias::DistanceBias;

/// Properties of the attention heads of a layer: their number, their padded width, and how attention is computed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    pub count: usize,
    /// Number of heads of the keys and values.
    pub key_count: usize,
    /// Padded width of a head, a multiple of [`GRAIN`].
    pub stride: usize,
    /// True if attention is computed in bf16 with AMX tiles. If false, it is computed in f32 with SIMD vectors.
    pub squares: bool,
    /// If this is set, a query attends only to the keys whose distance is at most this number.
    pub window: Option<usize>,
    /// True if a query does not attend to the keys after it.
    pub causal: bool,
}

impl Heads {
    /// Returns whether attention uses AMX tiles. `weights` is the tile format of the layer's weights. Attention uses
    /// tiles if the weights are in tiles of bf16 or bytes. If the weights are in tiles of f32 ([`Squared::Thirds`]) or
    /// not in tiles (`None`), attention uses SIMD vectors.
    pub fn in_squares(weights: Option<Squared>) -> bool {
        matches!(weights, Some(Squared::Bf16 | Squared::Bytes))
    }

    /// Returns the total padded width of the heads of the queries.
    pub fn width(self) -> usize {
        self.count * self.stride
    }

    /// Returns the total padded width of the heads of the keys, which is also that of the values.
    pub fn key_width(self) -> usize {
        self.key_count * self.stride
    }

    /// Returns the width of a row with the queries, keys and values of all heads.
    pub fn row(self) -> usize {
        self.width() + 2 * self.key_width()
    }

    /// Returns the index of the first query, key and value of a head in a row.
    fn parts(self, head: usize) -> [usize; 3] {
        let key = self.width() + head / (self.count / self.key_count) * self.stride;
        [head * self.stride, key, key + self.key_width()]
    }

    /// Returns true if queries attend only to some of the keys.
    fn is_masked(self) -> bool {
        self.causal || self.window.is_some()
    }

    /// Returns the keys to which at least one of the `queries` attends. `n` is the number of tokens.
    fn keys(self, queries: &Range<usize>, n: usize) -> Range<usize> {
        let window = self.window.unwrap_or(usize::MAX);
        let after = if self.causal { 0 } else { window };
        queries.start.saturating_sub(window)..n.min(queries.end.saturating_add(after))
    }

    /// Sets the scores of the keys to which a query does not attend to negative infinity. `scores` are those of the query
    /// for the key number `first` and the next ones.
    fn mask(self, scores: &mut [f32], first: usize, query: usize) {
        let n = scores.len();
        let keys = self.keys(&(query..query + 1), first + n);
        scores[..keys.start.saturating_sub(first).min(n)].fill(f32::NEG_INFINITY);
        scores[keys.end.saturating_sub(first).min(n)..].fill(f32::NEG_INFINITY);
    }
}

/// Kernel that adds biases to rows of scores.
struct AddBias {
    scores: *mut f32,
    /// Number of scores of a row, a multiple of the number of lanes.
    columns: usize,
    stride: usize,
    rows: usize,
    /// Biases of the first row. Those of the next rows start one element before.
    bias: *const f32,
}

impl<S: Simd> Kernel<S> for AddBias {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        for row in 0..self.rows {
            for i in (0..self.columns).step_by(S::LANES) {
                // SAFETY: the caller guarantees the rows of scores, and `DistanceBias` the elements.
                unsafe {
                    let score = self.scores.add(row * self.stride + i);
                    S::store(score, S::add(S::load(score), S::load(self.bias.sub(row).add(i))));
                }
            }
        }
    }
}

/// Buffers for the attention of one head.
#[derive(Default)]
pub(super) struct HeadWorkspace {
    queries: Buffer,
    keys: Buffer,
    values: Buffer,
    scores: Buffer,
    weights: Buffer,
    factors: Vec<f32>,
}

/// Number of readable rows that must follow the last token, because keys are transposed in whole blocks.
pub(super) const SPARE_ROWS: usize = GRAIN;

/// Computes self-attention over one sequence, whose tokens are the rows `tokens` of `projected`. Writes the output of
/// all heads for the first `queries` tokens to the same rows of `context`. A row of `projected` holds the scaled queries,
/// the keys and the values of all heads. After the last token, `projected` must have [`SPARE_ROWS`] more rows. The biases,
/// if any, are added to the scores.
///
/// # Safety
///
/// The processor must have the features of `S`.
pub(super) unsafe fn attend<S: Simd>(
    (heads, biases): (Heads, Option<&DistanceBias>),
    projected: &[f32],
    (tokens, queries): (Range<usize>, usize),
    context: &mut [f32],
    workspaces: &mut Vec<HeadWorkspace>,
    team: &Team,
) {
    let (stride, width) = (heads.row(), heads.width());
    let (count, head_stride) = (heads.count, heads.stride);
    assert!(heads.stride.is_multiple_of(GRAIN) && queries <= tokens.len());
    assert!(heads.count.is_multiple_of(heads.key_count));
    assert!(projected.len() >= (tokens.end + SPARE_ROWS) * stride && context.len() >= tokens.end * width);
    assert!(biases.is_none_or(|biases| biases.fits(heads.count, tokens.len())));
    let heads = (heads, biases);
    let parts = team.parts(count, queries, 2 * tokens.len() * head_stride);
    if workspaces.len() < parts {
        workspaces.resize_with(parts, HeadWorkspace::default);
    }
    let context = Shared::of(context);
    // Each part writes only the columns of its own heads.
    team.each(&mut workspaces[..parts], count, |workspace, which| {
        let tokens = tokens.clone();
        // SAFETY: the caller guarantees the processor features; the asserts check the lengths.
        unsafe {
            if heads.0.squares {
                squares::attend_heads::<S>(heads, which, projected, (tokens, queries), context, workspace);
            } else {
                attend_heads::<S::Base>(heads, which, projected, (tokens, queries), context, workspace);
            }
        }
    });
}

/// Maximum number of query tiles per block. Only the scores of one block are in memory at a time.
const BLOCK: usize = 4;

/// Computes attention for the heads in the range `which`.
///
/// # Safety
///
/// The processor must have the features of `S`. The caller must have checked the buffer lengths.
pub(super) unsafe fn attend_heads<S: Simd>(
    (heads, biases): (Heads, Option<&DistanceBias>),
    which: Range<usize>,
    projected: &[f32],
    (tokens, queries): (Range<usize>, usize),
    context: Shared,
    workspace: &mut HeadWorkspace,
) {
    let (n, stride, width) = (tokens.len(), heads.row(), heads.width());
    let columns = n.next_multiple_of(S::LANES);
    let panel = S::VECTORS * S::LANES;
    workspace.keys.reserve::<f32>(columns * heads.stride);
    workspace.values.reserve::<f32>(n * heads.stride);
    workspace.scores.reserve::<f32>(BLOCK * S::ROWS * columns);
    workspace.factors.resize(BLOCK * S::ROWS, 0.0);
    for head in which {
        let [first, first_key, first_value] = heads.parts(head).map(|part| tokens.start * stride + part);
        let (keys, values) = (workspace.keys.of_mut::<f32>(), workspace.values.of_mut::<f32>());
        let (scores, factors) = (workspace.scores.of_mut::<f32>(), &mut workspace.factors[..]);
        let depth = heads.stride;
        // SAFETY: the caller guarantees the processor features. `attend` has checked that `projected` contains `tokens`
        // and the spare rows, and that `context` contains `tokens`. The buffers have just been reserved.
        unsafe {
            S::enter(Arrange {
                keys: projected[first_key..].as_ptr(),
                values: projected[first_value..].as_ptr(),
                stride,
                n,
                depth,
                to_keys: keys.as_mut_ptr(),
                to_values: values.as_mut_ptr(),
            });
            for block in even_parts(0..queries, BLOCK * S::ROWS) {
                // Scores are computed for whole panels of keys. The first key is the first of a panel.
                let keys_of_block = heads.keys(&block, n);
                let start_key = keys_of_block.start / panel * panel;
                for start in (start_key..keys_of_block.end).step_by(panel) {
                    let vectors = (columns - start).min(panel) / S::LANES;
                    for (count, high, row) in even_tiles(0..block.len(), S::ROWS) {
                        tiles::<S, _>(
                            (projected[first + (block.start + row) * stride..].as_ptr(), stride),
                            keys[start * depth..].as_ptr(),
                            depth,
                            (scores[row * columns + start..].as_mut_ptr(), columns),
                            Identity,
                            (count, high, vectors),
                        );
                    }
                }
                let (rows, n_keys) = (block.len(), keys_of_block.end - start_key);
                if let Some(biases) = biases {
                    S::enter(AddBias {
                        scores: scores[start_key..].as_mut_ptr(),
                        columns: n_keys.next_multiple_of(S::LANES),
                        stride: columns,
                        rows,
                        bias: biases.first(head, block.start).wrapping_add(start_key),
                    });
                }
                if heads.is_masked() {
                    for (row, query) in block.clone().enumerate() {
                        heads.mask(&mut scores[row * columns + start_key..][..n_keys], start_key, query);
                    }
                }
                let masked = scores[start_key..].as_mut_ptr();
                S::enter(Softmax { scores: masked, n: n_keys, stride: columns, rows, factors });
                for start in (0..depth).step_by(panel) {
                    let vectors = (depth - start).min(panel) / S::LANES;
                    for (count, high, row) in even_tiles(0..block.len(), S::ROWS) {
                        let to = (tokens.start + block.start + row) * width + head * depth + start;
                        tiles::<S, _>(
                            (scores[row * columns + start_key..].as_ptr(), columns),
                            values[start * n + start_key * vectors * S::LANES..].as_ptr(),
                            n_keys,
                            (context.at(to), width),
                            RowScale(factors[row..].as_ptr()),
                            (count, high, vectors),
                        );
                    }
                }
            }
        }
    }
}

/// Computes tiles of a product in f32. The last argument holds the number of tiles, the number of rows of a tile, and
/// the number of vectors per row of a tile.
unsafe fn tiles<S: Simd, E: Epilogue<S>>(
    left: (*const f32, usize),
    right: *const f32,
    steps: usize,
    out: (*mut f32, usize),
    epilogue: E,
    (count, rows, vectors): (usize, usize, usize),
) {
    macro_rules! run {
        ($m:literal, $v:literal) => {
            // SAFETY: `attend` guarantees the rows, the columns and the features.
            unsafe {
                S::enter(Tiles::<F32, E, $m, $v> {
                    count,
                    left: (left.0.cast(), left.1),
                    right: right.cast(),
                    steps,
                    out,
                    first: true,
                    last: true,
                    epilogue,
                    activation: None,
                    next: (right.cast(), 0),
                    format: PhantomData,
                })
            }
        };
    }
    with_tile!(rows, vectors, S::ROWS, S::VECTORS, run)
}

/// Kernel that packs keys and values into panels. It transposes the keys, but not the values.
struct Arrange {
    keys: *const f32,
    values: *const f32,
    stride: usize,
    n: usize,
    depth: usize,
    to_keys: *mut f32,
    to_values: *mut f32,
}

impl<S: Simd> Kernel<S> for Arrange {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        let Arrange { n, stride, depth, .. } = self;
        let (columns, panel) = (n.next_multiple_of(S::LANES), S::VECTORS * S::LANES);
        // SAFETY: `attend` guarantees `columns` rows of keys, `n` rows of values, and buffers of that size.
        unsafe {
            for key in (0..columns).step_by(S::LANES) {
                let start = key / panel * panel;
                let width = (columns - start).min(panel);
                for number in (0..depth).step_by(S::LANES) {
                    let to = self.to_keys.add(start * depth + number * width + key - start);
                    S::transpose(self.keys.add(key * stride + number), stride, to, width);
                }
            }
            for start in (0..depth).step_by(panel) {
                let width = (depth - start).min(panel);
                for value in 0..n {
                    for i in (0..width).step_by(S::LANES) {
                        let v = S::load(self.values.add(value * stride + start + i));
                        S::store(self.to_values.add(start * n + value * width + i), v);
                    }
                }
            }
        }
    }
}

/// Kernel that computes a softmax without the division. It replaces each score with its exponential, after subtracting
/// the maximum of the row. To `factors`, it writes the factor that normalizes each row.
struct Softmax<'a> {
    scores: *mut f32,
    n: usize,
    stride: usize,
    rows: usize,
    factors: &'a mut [f32],
}

impl<S: Simd> Kernel<S> for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        let whole = self.n / S::LANES * S::LANES;
        let rest = self.n - whole;
        for row in 0..self.rows {
            // SAFETY: `attend` guarantees `rows` rows of `stride` scores; the first `n` of a row are used.
            unsafe {
                let scores = self.scores.add(row * self.stride);
                let mut most = S::splat(f32::NEG_INFINITY);
                for i in (0..whole).step_by(S::LANES) {
                    most = S::max(S::load(scores.add(i)), most);
                }
                if rest > 0 {
                    let v = S::load(scores.add(whole));
                    most = S::max(S::first(rest, v, S::splat(f32::NEG_INFINITY)), most);
                }
                let most = S::splat(S::largest(most));
                let mut sum = S::splat(0.0);
                // Processes two vectors at a time, to hide the latency of the exponential.
                for i in (0..whole / (2 * S::LANES)).map(|i| i * 2 * S::LANES) {
                    let (x, y) = (S::load(scores.add(i)), S::load(scores.add(i + S::LANES)));
                    let e = math::exp::<S, 2>([S::sub(x, most), S::sub(y, most)]);
                    S::store(scores.add(i), e[0]);
                    S::store(scores.add(i + S::LANES), e[1]);
                    sum = S::add(sum, S::add(e[0], e[1]));
                }
                for i in (whole / (2 * S::LANES) * 2 * S::LANES..self.n).step_by(S::LANES) {
                    let [e] = math::exp::<S, 1>([S::sub(S::load(scores.add(i)), most)]);
                    S::store(scores.add(i), e);
                    sum = S::add(sum, S::first(self.n - i, e, S::splat(0.0)));
                }
                self.factors[row] = 1.0 / S::total(sum);
            }
        }
    }
}
