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

/// Rows that are worked on together: the weights of a panel are fetched while the panel before is multiplied with them.
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
        let planes = squared.planes();
        let all_steps = weights.depth / (SIDE * planes);
        let panel_units = weights.depth * BLOCK;
        let right = &weights.units.of::<u32>()[..weights.panels() * panel_units];
        SUMS.with_borrow_mut(|sums| {
            // SAFETY: the features by our caller.
            unsafe { S::begin_squares() };
            for rows in even_parts(0..self.rows.div_ceil(BLOCK), ROWS / BLOCK) {
                let most = (LEFT_BLOCK / (rows.len() * BLOCK * SIDE * 4 * planes)).max(1);
                let whole = most >= all_steps;
                let sums_of = |panel: usize, block: usize| match whole {
                    true => 0,
                    false => ((panel - panels.start) * rows.len() + block) * BLOCK * BLOCK,
                };
                sums.reserve::<f32>(sums_of(panels.end.max(1) - 1, rows.len()) + BLOCK * BLOCK);
                let sums = sums.of_mut::<f32>();
                for steps in even_parts(0..all_steps, most) {
                    for panel in panels.clone() {
                        let column = panel * BLOCK;
                        let part = steps.start * planes * SQUARE;
                        let units = right[panel * panel_units + 2 * part..].as_ptr();
                        for (block, row) in rows.clone().map(|block| block * BLOCK).enumerate() {
                            let left_units = left.units[row * left.stride..].as_ptr().wrapping_add(part);
                            let to = &mut sums[sums_of(panel, block)..][..BLOCK * BLOCK];
                            let ahead = block * steps.len() * planes * LINES_AHEAD * UNITS_IN_LINE;
                            let squares = Squares {
                                left: left_units,
                                low_left: left_units.wrapping_add(SIDE * left.stride),
                                right: units,
                                steps: steps.len(),
                                to: to.as_mut_ptr(),
                                first: steps.start == 0,
                                ahead: units.wrapping_add(panel_units + ahead),
                            };
                            let rows = BLOCK.min(self.rows - row);
                            // SAFETY: rows, columns and units lie within what the asserts have seen; what is fetched
                            // ahead need not exist.
                            unsafe {
                                if rows > SIDE {
                                    S::squares::<true>(squared, squares);
                                } else {
                                    S::squares::<false>(squared, squares);
                                }
                                if steps.end == all_steps {
                                    S::Base::enter(Finish::<F, E> {
                                        sums: to.as_ptr(),
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
            }
            // SAFETY: as above.
            unsafe { S::end_squares() };
        });
    }
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
