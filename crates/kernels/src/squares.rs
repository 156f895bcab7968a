//! Products where the processor multiplies whole squares: blocks of two by two, whose sums go through memory.

use std::{cell::RefCell, marker::PhantomData, ops::Range};

use super::{
    buffer::Buffer,
    format::Format,
    math,
    product::{Job, even_parts},
    simd::{Kernel, LINES_AHEAD, SIDE, SQUARE, Simd, Squared, Squares},
    tile::{Ending, UNITS_IN_LINE},
};
use crate::network::Activation;

/// Rows and columns of a block.
const BLOCK: usize = 2 * SIDE;

/// Bytes of the left side that are worked on together: they stay in the second-level cache.
const LEFT_BLOCK: usize = 1024 * 1024;

/// Rows that are worked on together. While they are multiplied with one panel the next is fetched, and with so many rows
/// a step takes as long as fetching [`LINES_AHEAD`] lines.
const ROWS: usize = 8 * BLOCK;

thread_local! {
    /// The sums of blocks, which are not needed from one product to the next.
    static SUMS: RefCell<Buffer> = RefCell::default();
}

impl Job<'_> {
    /// The columns of some panels.
    ///
    /// # Safety
    ///
    /// As [`super::product::product`]; `E` is good for all rows and columns.
    pub unsafe fn in_squares<S: Simd, F: Format<S::Base>, E: Ending<S::Base>>(
        &self,
        squared: Squared,
        panels: Range<usize>,
        ending: impl Fn(usize, usize) -> E,
    ) {
        let Job { left, weights, .. } = self;
        assert!(S::LANES == SIDE && weights.panel == BLOCK && left.stride == weights.depth);
        assert!(left.units.len() >= self.rows.next_multiple_of(SIDE) * left.stride);
        let line = SIDE * squared.planes();
        let all_steps = weights.depth / line;
        SUMS.with_borrow_mut(|sums| {
            // SAFETY: the features by our caller.
            unsafe { S::begin_squares() };
            for blocks in even_parts(0..self.rows.div_ceil(BLOCK), ROWS / BLOCK) {
                let most = (LEFT_BLOCK / (blocks.len() * BLOCK * line * size_of::<u32>())).max(1);
                // Sums that begin and end in one go need not be kept.
                let kept = if most < all_steps { blocks.len() * BLOCK * BLOCK } else { 0 };
                sums.reserve::<f32>(panels.len().max(1) * kept.max(BLOCK * BLOCK));
                for steps in even_parts(0..all_steps, most) {
                    for panel in panels.clone() {
                        let sums = &mut sums.of_mut::<f32>()[(panel - panels.start) * kept..];
                        let part = Part { squared, panel, blocks: blocks.clone(), steps: steps.clone() };
                        // SAFETY: as our caller.
                        unsafe { self.part::<S, F, E>(part, sums, kept > 0, &ending) };
                    }
                }
            }
            // SAFETY: as above.
            unsafe { S::end_squares() };
        });
    }

    /// Some blocks of a panel, some steps deep. With `kept` each block has sums of its own, which go on from part to part.
    unsafe fn part<S: Simd, F: Format<S::Base>, E: Ending<S::Base>>(
        &self,
        part: Part,
        sums: &mut [f32],
        kept: bool,
        ending: &impl Fn(usize, usize) -> E,
    ) {
        let Job { left, weights, .. } = self;
        let Part { squared, panel, blocks, steps } = part;
        let planes = squared.planes();
        let (column, last) = (panel * BLOCK, steps.end * SIDE * planes == weights.depth);
        let begin = steps.start * planes * SQUARE;
        let panel_units = weights.depth * BLOCK;
        let right = weights.units.of::<u32>()[panel * panel_units..][..panel_units][2 * begin..].as_ptr();
        for (i, block) in blocks.enumerate() {
            let row = block * BLOCK;
            let rows = BLOCK.min(self.rows - row);
            let left_units = left.units[row * left.stride..].as_ptr().wrapping_add(begin);
            let sums = &mut sums[if kept { i * BLOCK * BLOCK } else { 0 }..][..BLOCK * BLOCK];
            let ahead = i * steps.len() * planes * LINES_AHEAD * UNITS_IN_LINE;
            let squares = Squares {
                left: left_units,
                low_left: left_units.wrapping_add(SIDE * left.stride),
                right,
                steps: steps.len(),
                to: sums.as_mut_ptr(),
                first: steps.start == 0,
                ahead: right.wrapping_add(panel_units + ahead),
            };
            // SAFETY: rows, columns and units lie within what `in_squares` has seen; what is fetched ahead need not exist.
            unsafe {
                if rows > SIDE {
                    S::squares::<true>(squared, squares);
                } else {
                    S::squares::<false>(squared, squares);
                }
                if last {
                    S::Base::enter(Finish::<F, E> {
                        sums: sums.as_ptr(),
                        out: (self.out.0.at(row * self.out.1 + column), self.out.1),
                        rows,
                        width: BLOCK.min(weights.outputs - column),
                        ending: ending(row, column),
                        activation: self.activation,
                        format: PhantomData,
                    });
                }
            }
        }
    }
}

/// What is multiplied in one go.
struct Part {
    squared: Squared,
    panel: usize,
    blocks: Range<usize>,
    steps: Range<usize>,
}

/// From a block's sums to numbers.
struct Finish<F, E> {
    sums: *const f32,
    /// Where the first row's numbers go, and how far it is to the next row.
    out: (*mut f32, usize),
    rows: usize,
    width: usize,
    ending: E,
    activation: Option<Activation>,
    format: PhantomData<F>,
}

impl<S: Simd, F: Format<S>, E: Ending<S>> Kernel<S> for Finish<F, E> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        // SAFETY: whoever makes one vouches for rows and columns.
        unsafe {
            // Some rows at a time: one waits for its own results most of the time.
            let together = if self.width == BLOCK { self.rows / TOGETHER * TOGETHER } else { 0 };
            for row in (0..together).step_by(TOGETHER) {
                self.several::<S, 2, { 2 * TOGETHER }>(row);
            }
            for row in together..self.rows {
                if self.width == BLOCK {
                    self.several::<S, 2, 2>(row);
                } else {
                    self.several::<S, 1, 1>(row);
                }
            }
        }
    }
}

/// Rows that go through a polynomial side by side.
const TOGETHER: usize = 4;

impl<F, E> Finish<F, E> {
    /// `W` vectors, `V` of each row. Always inlined, so that it has the processor's features.
    #[inline(always)]
    unsafe fn several<S: Simd, const V: usize, const W: usize>(&self, row: usize)
    where
        F: Format<S>,
        E: Ending<S>,
    {
        // SAFETY: as in `call`.
        unsafe {
            let mut x = [S::splat(0.0); W];
            for i in 0..W {
                let (row, column) = (row + i / V, i % V * S::LANES);
                x[i] = self.ending.end(F::value(F::load(self.sums.add(row * BLOCK + column))), row, column);
            }
            if let Some(activation) = self.activation {
                x = math::activate::<S, W>(activation, x);
            }
            for i in 0..W {
                S::store(self.out.0.add((row + i / V) * self.out.1 + i % V * S::LANES), x[i]);
            }
        }
    }
}
