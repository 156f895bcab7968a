//! Attention in bf16, where the processor multiplies whole squares.
//!
//! Scores are queries times keys, contexts are weights times values. So queries and weights lie as the left sides of
//! products do, keys and values as the right sides (see [`Squares`]), and the softmax leads from one to the other.

use std::ops::Range;

use super::{HeadRoom, Heads};
use crate::{
    math,
    simd::{Kernel, SIDE, SQUARE, Simd, Squared, Squares},
    spread::Shared,
};

/// Rows and columns of a block: queries and keys, or queries and values.
const BLOCK: usize = 2 * SIDE;

/// The numbers that a line of units holds: a step along a row.
const STEP: usize = 2 * SIDE;

/// `attend` for some of the heads.
///
/// # Safety
///
/// As [`super::attend`], which has seen the lengths.
pub(super) unsafe fn attend_heads<S: Simd>(
    heads: Heads,
    which: Range<usize>,
    projected: &[f32],
    tokens: Range<usize>,
    context: Shared,
    room: &mut HeadRoom,
) {
    assert!(S::LANES == SIDE);
    let (n, stride, width) = (tokens.len(), 3 * heads.width(), heads.width());
    // Steps along a query, and blocks of tokens, each of which is a step along the weights as well.
    let (depth, blocks) = (heads.stride.div_ceil(STEP), n.div_ceil(BLOCK));
    let HeadRoom { queries, keys, values, scores, weights, factors } = room;
    for buffer in [&mut *queries, keys, values] {
        // Never anything but zeros where no number is written: see `Arrange`.
        buffer.reserve::<u32>(blocks * depth * 2 * SQUARE);
    }
    scores.reserve::<f32>(blocks * BLOCK * BLOCK);
    weights.reserve::<u32>(blocks * 2 * SQUARE);
    factors.resize(BLOCK, 0.0);
    let (queries, keys, values) = (queries.of_mut::<u32>(), keys.of_mut::<u32>(), values.of_mut::<u32>());
    let (scores, weights) = (scores.of_mut::<f32>(), weights.of_mut::<u32>());
    // SAFETY: the features by our caller; `attend` has seen `tokens` in `projected` and `context`, and the room was made
    // just now.
    unsafe {
        S::begin_squares();
        for head in which {
            let first = tokens.start * stride + head * heads.stride;
            S::Base::enter(Arrange {
                projected: projected[first..].as_ptr(),
                stride,
                width,
                n,
                numbers: heads.stride,
                queries: queries.as_mut_ptr(),
                keys: keys.as_mut_ptr(),
                values: values.as_mut_ptr(),
            });
            for block in 0..blocks {
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
                for others in 0..blocks {
                    product(
                        queries[block * 2 * depth * SQUARE..].as_ptr(),
                        keys[others * 2 * depth * SQUARE..].as_ptr(),
                        depth,
                        scores[others * BLOCK * BLOCK..].as_mut_ptr(),
                    );
                }
                S::Base::enter(Softmax {
                    scores: scores.as_ptr(),
                    weights: weights.as_mut_ptr(),
                    n,
                    rows,
                    factors,
                });
                for part in 0..depth {
                    let panel = values[part * 2 * blocks * SQUARE..].as_ptr();
                    product(weights.as_ptr(), panel, blocks, scores.as_mut_ptr());
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

/// Queries as the left side of a product, keys transposed and values in pairs of rows as right sides.
///
/// Places without a number of this sequence hold what earlier ones left there, and that does no harm: scores of keys
/// beyond the last are not looked at, rows of queries beyond the last are not kept, and steps that the numbers of a head
/// do not fill are zeros, for all heads of a room are equally wide. Values beyond the last are multiplied by weights of
/// zero; so that this is zero, they have to be numbers, and are zeros.
struct Arrange {
    projected: *const f32,
    stride: usize,
    width: usize,
    n: usize,
    /// Of a head, a multiple of the lanes.
    numbers: usize,
    queries: *mut u32,
    keys: *mut u32,
    values: *mut u32,
}

impl<S: Simd> Kernel<S> for Arrange {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        let Arrange { projected, stride, width, n, numbers, queries, keys, values } = self;
        let (depth, blocks) = (numbers.div_ceil(STEP), n.div_ceil(BLOCK));
        let mut square = [0u32; SQUARE];
        // SAFETY: `attend_heads` vouches for `n` rows of queries, keys and values, and for room for as many blocks.
        unsafe {
            for row in 0..n {
                let from = projected.add(row * stride);
                let to = queries.add(row / SIDE * depth * SQUARE + row % SIDE * SIDE).cast::<u16>();
                for i in (0..numbers).step_by(S::LANES) {
                    S::store_bf16(to.add(i / STEP * 2 * SQUARE + i % STEP), S::load(from.add(i)));
                }
            }
            for row in (0..n).step_by(SIDE) {
                for step in 0..depth {
                    for key in row..n.min(row + SIDE) {
                        let from = projected.add(key * stride + width + step * STEP);
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
                    let value = |row: usize| match row < n {
                        true => S::load(projected.add(row * stride + 2 * width + i)),
                        false => S::splat(0.0),
                    };
                    let step = i / STEP * blocks + row / BLOCK;
                    let to = values.add(step * 2 * SQUARE + row % BLOCK / 2 * BLOCK + i % STEP);
                    S::istore(to, S::pair_bf16(value(row), value(row + 1)));
                }
            }
        }
    }
}

/// Scores, in blocks of keys, to weights in bf16; the factor that makes a row's sum 1 goes to `factors`.
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
        // SAFETY: `attend_heads` vouches for the blocks of scores and weights.
        unsafe {
            for pair in 0..pairs {
                self.some::<S, 4>(2 * pair);
            }
            for row in 2 * pairs..self.rows {
                self.some::<S, 2>(row);
            }
        }
    }
}

impl Softmax<'_> {
    /// The rows that `W` vectors are of, two of each in every block. One row alone would wait for its own results most of
    /// the time. Always inlined, so that it has the processor's features.
    #[inline(always)]
    unsafe fn some<S: Simd, const W: usize>(&mut self, row: usize) {
        let blocks = self.n.div_ceil(BLOCK);
        let place = |i: usize| (row + i / 2, i % 2 * S::LANES);
        // SAFETY: as in `call`.
        unsafe {
            // In the last block, what is beyond the last key is another number.
            let within = |block: usize, mut x: [S::F32; W], other: f32| {
                let keys = self.n - block * BLOCK;
                if keys < BLOCK {
                    for i in 0..W {
                        x[i] = S::first(keys.saturating_sub(place(i).1), x[i], S::splat(other));
                    }
                }
                x
            };
            let scores = |block: usize| {
                let mut x = [S::splat(0.0); W];
                for i in 0..W {
                    let (row, column) = place(i);
                    x[i] = S::load(self.scores.add((block * BLOCK + row) * BLOCK + column));
                }
                within(block, x, f32::NEG_INFINITY)
            };
            let mut most = scores(0);
            for block in 1..blocks {
                let x = scores(block);
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
                let mut x = scores(block);
                for i in 0..W {
                    x[i] = S::sub(x[i], most[i]);
                }
                let weights = within(block, math::exp::<S, W>(x), 0.0);
                for i in 0..W {
                    let (row, column) = place(i);
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
}

/// From a block's sums to contexts.
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
                // SAFETY: `attend_heads` vouches for the sums, a factor a row, and the rows of contexts.
                unsafe {
                    let sum = S::load(self.sums.add(row * BLOCK + i));
                    S::store(self.to.add(row * self.stride + i), S::mul(sum, S::splat(self.factors[row])));
                }
            }
        }
    }
}
