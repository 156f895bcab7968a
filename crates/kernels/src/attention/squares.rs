//! Attention in bf16 with AMX tiles. In identifiers, an AMX tile is a `square`, because the module `tile` is about
//! tiles in vector registers.
//!
//! Scores are the product of queries and keys; contexts are the product of attention weights and values. So queries
//! and weights have the memory layout of a left operand, and keys and values have that of a right operand (see
//! [`Squares`]). The softmax converts scores to weights.

use std::ops::Range;

use crate::{
    attention::{AddBias, DistanceBias, HeadWorkspace, Heads},
    math,
    simd::{Kernel, SIDE, SQUARE, Simd, Squared, Squares},
    spread::Shared,
};

/// Number of rows of a block, which is also its number of columns. A block consists of two by two AMX tiles.
const BLOCK: usize = 2 * SIDE;

/// Number of bf16 elements in a row of an AMX tile, which is the length of one step along a row of an operand.
const STEP: usize = 2 * SIDE;

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
    assert!(S::LANES == SIDE);
    let (n, stride, width) = (tokens.len(), heads.row(), heads.width());
    // `depth` is the number of steps along a query. `blocks` is the number of blocks of tokens, which is also the
    // number of steps along a row of attention weights.
    let (depth, blocks) = (heads.stride.div_ceil(STEP), n.div_ceil(BLOCK));
    let query_blocks = queries.div_ceil(BLOCK);
    let HeadWorkspace { queries, keys, values, scores, weights, factors } = workspace;
    for buffer in [&mut *queries, keys, values] {
        // Padding that is never written stays zero: see `Arrange`.
        buffer.reserve::<u32>(blocks * depth * 2 * SQUARE);
    }
    scores.reserve::<f32>(blocks * BLOCK * BLOCK);
    weights.reserve::<u32>(blocks * 2 * SQUARE);
    factors.resize(BLOCK, 0.0);
    let (queries, keys, values) = (queries.of_mut::<u32>(), keys.of_mut::<u32>(), values.of_mut::<u32>());
    let (scores, weights) = (scores.of_mut::<f32>(), weights.of_mut::<u32>());
    // SAFETY: the caller guarantees the processor features. `attend` has checked that `projected` and `context` contain
    // `tokens`. The buffers have just been reserved.
    unsafe {
        S::begin_squares();
        for head in which {
            let parts = heads.parts(head).map(|part| projected[tokens.start * stride + part..].as_ptr());
            S::Base::enter(Arrange {
                parts,
                stride,
                n,
                numbers: heads.stride,
                queries: queries.as_mut_ptr(),
                keys: keys.as_mut_ptr(),
                values: values.as_mut_ptr(),
            });
            for block in 0..query_blocks {
                let rows = BLOCK.min(n - block * BLOCK);
                let product = |left: *const u32, right: *const u32, steps: usize, to: *mut f32| {
                    let squares = Squares {
                        left,
                        low_left: left.wrapping_add(steps * SQUARE),
                        right,
                        steps,
                        to,
                        first: true,
                        ahead: right,
                    };
                    if rows > SIDE {
                        S::squares::<true>(Squared::Bf16, squares);
                    } else {
                        S::squares::<false>(Squared::Bf16, squares);
                    }
                };
                // The blocks of keys to which the queries attend.
                let keys_of_block = heads.keys(&(block * BLOCK..block * BLOCK + rows), n);
                let first_block = keys_of_block.start / BLOCK;
                let key_blocks = keys_of_block.end.div_ceil(BLOCK) - first_block;
                for others in 0..key_blocks {
                    let key_block = first_block + others;
                    product(
                        queries[block * 2 * depth * SQUARE..].as_ptr(),
                        keys[key_block * 2 * depth * SQUARE..].as_ptr(),
                        depth,
                        scores[others * BLOCK * BLOCK..].as_mut_ptr(),
                    );
                    if let Some(biases) = biases {
                        S::Base::enter(AddBias {
                            scores: scores[others * BLOCK * BLOCK..].as_mut_ptr(),
                            columns: BLOCK,
                            stride: BLOCK,
                            rows,
                            bias: biases.first(head, block * BLOCK).wrapping_add(key_block * BLOCK),
                        });
                    }
                    if heads.is_masked() {
                        for row in 0..rows {
                            let scores = &mut scores[(others * BLOCK + row) * BLOCK..][..BLOCK];
                            heads.mask(scores, key_block * BLOCK, block * BLOCK + row);
                        }
                    }
                }
                S::Base::enter(Softmax {
                    scores: scores.as_ptr(),
                    weights: weights.as_mut_ptr(),
                    n: keys_of_block.end - first_block * BLOCK,
                    rows,
                    factors,
                });
                for part in 0..depth {
                    let panel = values[(part * blocks + first_block) * 2 * SQUARE..].as_ptr();
                    product(weights.as_ptr(), panel, key_blocks, scores.as_mut_ptr());
                    let to = (tokens.start + block * BLOCK) * width + head * heads.stride + part * STEP;
                    S::Base::enter(Finish {
                        sums: scores.as_ptr(),
                        factors,
                        rows,
                        columns: STEP.min(heads.stride - part * STEP),
                        to: context.at(to),
                        stride: width,
                    });
                }
            }
        }
        S::end_squares();
    }
}

/// Kernel that packs queries as a left operand, and keys and values as right operands. It transposes the keys, and
/// interleaves pairs of value rows.
///
/// Padding rows may hold data of earlier sequences. For queries and keys, this is harmless: the scores of padding keys
/// and the output rows of padding queries are not used. The padding of a head's width is always zero, because all heads
/// have the same width. Padding rows of the values have weights of zero. These rows must still be set to zero, because
/// the product of zero and a NaN or an infinity is not zero.
struct Arrange {
    /// The first query, key and value.
    parts: [*const f32; 3],
    stride: usize,
    n: usize,
    /// Padded width of a head, a multiple of the number of lanes.
    numbers: usize,
    queries: *mut u32,
    keys: *mut u32,
    values: *mut u32,
}

impl<S: Simd> Kernel<S> for Arrange {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        let Arrange { parts, stride, n, numbers, queries, keys, values } = self;
        let [first_query, first_key, first_value] = parts;
        let (depth, blocks) = (numbers.div_ceil(STEP), n.div_ceil(BLOCK));
        let mut square = [0u32; SQUARE];
        // SAFETY: `attend_heads` guarantees `n` rows of queries, keys and values, and buffers for `blocks` blocks.
        unsafe {
            for row in 0..n {
                let from = first_query.add(row * stride);
                let to = queries.add(row / SIDE * depth * SQUARE + row % SIDE * SIDE).cast::<u16>();
                for i in (0..numbers).step_by(S::LANES) {
                    S::store_bf16(to.add(i / STEP * 2 * SQUARE + i % STEP), S::load(from.add(i)));
                }
            }
            for row in (0..n).step_by(SIDE) {
                for step in 0..depth {
                    for key in row..n.min(row + SIDE) {
                        let from = first_key.add(key * stride + step * STEP);
                        let to = square.as_mut_ptr().add((key - row) * SIDE).cast::<u16>();
                        for i in (0..STEP.min(numbers - step * STEP)).step_by(S::LANES) {
                            S::store_bf16(to.add(i), S::load(from.add(i)));
                        }
                    }
                    let block = keys.add((row / BLOCK * depth + step) * 2 * SQUARE + row % BLOCK);
                    S::transpose(square.as_ptr().cast(), SIDE, block.cast(), BLOCK);
                }
            }
            for row in (0..blocks * BLOCK).step_by(2) {
                for i in (0..numbers).step_by(S::LANES) {
                    let from = first_value.wrapping_add(row * stride + i);
                    let value = if row < n { S::load(from) } else { S::splat(0.0) };
                    let next = if row + 1 < n { S::load(from.wrapping_add(stride)) } else { S::splat(0.0) };
                    let step = i / STEP * blocks + row / BLOCK;
                    let to = values.add(step * 2 * SQUARE + row % BLOCK / 2 * BLOCK + i % STEP);
                    S::istore(to, S::pair_bf16(value, next));
                }
            }
        }
    }
}

/// Kernel that converts scores, which are in blocks of keys, to unnormalized attention weights in bf16. To `factors`,
/// it writes the factor that normalizes the sum of each row to 1.
struct Softmax<'a> {
    scores: *const f32,
    weights: *mut u32,
    n: usize,
    rows: usize,
    factors: &'a mut [f32],
}

impl<S: Simd> Kernel<S> for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(mut self) {
        let pairs = self.rows / 2;
        // SAFETY: `attend_heads` guarantees the blocks of scores and weights.
        unsafe {
            for pair in 0..pairs {
                self.softmax_rows::<S, 4>(2 * pair);
            }
            for row in 2 * pairs..self.rows {
                self.softmax_rows::<S, 2>(row);
            }
        }
    }
}

impl Softmax<'_> {
    /// Computes the weights of `W / 2` rows, starting at `row`. A block has two vectors of each row. Processing several
    /// rows at once hides the latency. Always inlined, so that it is compiled with the processor's features.
    #[inline(always)]
    unsafe fn softmax_rows<S: Simd, const W: usize>(&mut self, row: usize) {
        let blocks = self.n.div_ceil(BLOCK);
        // SAFETY: `attend_heads` guarantees the blocks of scores and weights.
        unsafe {
            let mut most = self.scores::<S, W>(row, 0);
            for block in 1..blocks {
                let x = self.scores::<S, W>(row, block);
                for i in 0..W {
                    most[i] = S::max(x[i], most[i]);
                }
            }
            for i in (0..W).step_by(2) {
                let largest = S::splat(S::largest(S::max(most[i], most[i + 1])));
                (most[i], most[i + 1]) = (largest, largest);
            }
            let mut sums = [S::splat(0.0); W];
            for block in 0..blocks {
                let mut x = self.scores::<S, W>(row, block);
                for i in 0..W {
                    x[i] = S::sub(x[i], most[i]);
                }
                let weights = self.within::<S, W>(block, math::exp::<S, W>(x), 0.0);
                for i in 0..W {
                    let (row, column) = (row + i / 2, i % 2 * S::LANES);
                    let line = row / SIDE * blocks * SQUARE + block * SQUARE + row % SIDE * SIDE;
                    S::store_bf16(self.weights.add(line).cast::<u16>().add(column), weights[i]);
                    sums[i] = S::add(sums[i], weights[i]);
                }
            }
            for i in (0..W).step_by(2) {
                self.factors[row + i / 2] = 1.0 / S::total(S::add(sums[i], sums[i + 1]));
            }
        }
    }

    /// Returns the scores of `W / 2` rows, starting at `row`, for the keys of a block. The scores after the last key
    /// are negative infinity.
    #[inline(always)]
    unsafe fn scores<S: Simd, const W: usize>(&self, row: usize, block: usize) -> [S::F32; W] {
        // SAFETY: `attend_heads` guarantees the blocks of scores.
        unsafe {
            let mut x = [S::splat(0.0); W];
            for i in 0..W {
                let (row, column) = (row + i / 2, i % 2 * S::LANES);
                x[i] = S::load(self.scores.add((block * BLOCK + row) * BLOCK + column));
            }
            self.within::<S, W>(block, x, f32::NEG_INFINITY)
        }
    }

    /// Replaces the lanes of a block that are after the last key of the sequence with `other`.
    #[inline(always)]
    unsafe fn within<S: Simd, const W: usize>(
        &self,
        block: usize,
        mut x: [S::F32; W],
        other: f32,
    ) -> [S::F32; W] {
        let keys = self.n - block * BLOCK;
        if keys < BLOCK {
            for i in 0..W {
                // SAFETY: the caller guarantees the processor's features.
                x[i] = unsafe { S::first(keys.saturating_sub(i % 2 * S::LANES), x[i], S::splat(other)) };
            }
        }
        x
    }
}

/// Kernel that multiplies the sums of a block by the factors of the rows, and writes the attention outputs.
struct Finish<'a> {
    sums: *const f32,
    factors: &'a [f32],
    rows: usize,
    columns: usize,
    to: *mut f32,
    stride: usize,
}

impl<S: Simd> Kernel<S> for Finish<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        for row in 0..self.rows {
            for i in (0..self.columns).step_by(S::LANES) {
                // SAFETY: `attend_heads` guarantees the block of sums, one factor per row, and the output rows.
                unsafe {
                    let sum = S::load(self.sums.add(row * BLOCK + i));
                    S::store(self.to.add(row * self.stride + i), S::mul(sum, S::splat(self.factors[row])));
                }
            }
        }
    }
}
