//! Products where the processor multiplies whole squares: blocks of two by two, whose sums go through memory.

use std::{marker::PhantomData, ops::Range};

use super::{
    format::Format,
    math,
    product::Job,
    simd::{InUnits, Kernel, SIDE, Simd, Squares},
    tile::{Ending, UNITS_IN_LINE},
};
use crate::network::Activation;

/// Rows and columns of a block.
const BLOCK: usize = 2 * SIDE;

/// The sums of a block.
#[repr(C, align(64))]
struct Sums([f32; BLOCK * BLOCK]);

/// Bytes of the left side that are worked on together: they stay in the second-level cache.
const LEFT_BLOCK: usize = 1024 * 1024;

impl Job<'_> {
    /// The columns of some panels.
    ///
    /// # Safety
    ///
    /// As [`super::product::product`]; `E` is good for all rows and columns.
    pub unsafe fn in_squares<S: Simd, F: Format<S::Base>, E: Ending<S::Base>>(
        &self,
        numbers: InUnits,
        panels: Range<usize>,
        ending: impl Fn(usize, usize) -> E,
    ) {
        let Job { left, weights, .. } = self;
        assert!(S::LANES == SIDE && weights.panel == BLOCK && weights.depth.is_multiple_of(SIDE));
        assert!(left.stride >= weights.depth);
        assert!(left.units.len() >= self.rows.next_multiple_of(SIDE) * left.stride);
        let right = &weights.units.of::<u32>()[..weights.depth * weights.outputs];
        let most = (LEFT_BLOCK / (4 * left.stride)).next_multiple_of(BLOCK);
        let mut sums = Sums([0.0; BLOCK * BLOCK]);
        // SAFETY: the features by our caller.
        unsafe { S::begin_squares() };
        for start in (0..self.rows).step_by(most) {
            let end = (start + most).min(self.rows);
            for panel in panels.clone() {
                let column = panel * BLOCK;
                let width = BLOCK.min(weights.outputs - column);
                let units = right[column * weights.depth..].as_ptr();
                // What comes after this panel, shared out among the blocks.
                let next = units.wrapping_add(width * weights.depth);
                let fetch = (width * weights.depth).div_ceil((end - start).div_ceil(BLOCK));
                for (block, row) in (start..end).step_by(BLOCK).enumerate() {
                    let rows = BLOCK.min(end - row);
                    let squares = Squares {
                        left: (left.units[row * left.stride..].as_ptr(), left.stride),
                        right: (units, width),
                        steps: weights.depth / SIDE,
                        to: (sums.0.as_mut_ptr(), BLOCK),
                    };
                    // SAFETY: rows, columns and units lie within what the asserts have seen.
                    unsafe {
                        match (rows > SIDE, width > SIDE) {
                            (false, false) => S::squares::<1, 1>(numbers, squares),
                            (false, true) => S::squares::<1, 2>(numbers, squares),
                            (true, false) => S::squares::<2, 1>(numbers, squares),
                            (true, true) => S::squares::<2, 2>(numbers, squares),
                        }
                        S::Base::enter(Finish::<F, E> {
                            sums: sums.0.as_ptr(),
                            out: (self.out.0.at(row * self.out.1 + column), self.out.1),
                            rows,
                            width,
                            ending: ending(row, column),
                            activation: self.activation,
                            next: (next.wrapping_add(block * fetch), fetch),
                            format: PhantomData,
                        });
                    }
                }
            }
        }
        // SAFETY: as above.
        unsafe { S::end_squares() };
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
    /// What will be needed next, and how many units of it are to be fetched.
    next: (*const u32, usize),
    format: PhantomData<F>,
}

impl<S: Simd, F: Format<S>, E: Ending<S>> Kernel<S> for Finish<F, E> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        // SAFETY: whoever makes one vouches for rows and columns; what is fetched ahead need not exist.
        unsafe {
            for unit in (0..self.next.1).step_by(UNITS_IN_LINE) {
                S::fetch(self.next.0.wrapping_add(unit));
            }
            // Two rows of two vectors at a time: one waits for its own results most of the time.
            let pairs = if self.width == BLOCK { self.rows / 2 } else { 0 };
            for pair in 0..pairs {
                self.several::<S, 2, 2>(2 * pair);
            }
            for row in 2 * pairs..self.rows {
                if self.width == BLOCK {
                    self.several::<S, 1, 2>(row);
                } else {
                    self.several::<S, 1, 1>(row);
                }
            }
        }
    }
}

impl<F, E> Finish<F, E> {
    /// `R` rows of `V` vectors. Always inlined, so that it has the processor's features.
    #[inline(always)]
    unsafe fn several<S: Simd, const R: usize, const V: usize>(&self, row: usize)
    where
        F: Format<S>,
        E: Ending<S>,
    {
        // SAFETY: as in `call`.
        unsafe {
            let mut x = [[S::splat(0.0); V]; R];
            for r in 0..R {
                for v in 0..V {
                    let sum = F::value(F::load(self.sums.add((row + r) * BLOCK + v * S::LANES)));
                    x[r][v] = self.ending.end(sum, row + r, v * S::LANES);
                }
            }
            if let Some(activation) = self.activation {
                if (R, V) == (2, 2) {
                    let y = math::activate::<S, 4>(
                        activation,
                        [x[0][0], x[0][V - 1], x[R - 1][0], x[R - 1][V - 1]],
                    );
                    (x[0][0], x[0][V - 1], x[R - 1][0], x[R - 1][V - 1]) = (y[0], y[1], y[2], y[3]);
                } else {
                    for r in 0..R {
                        x[r] = math::activate::<S, V>(activation, x[r]);
                    }
                }
            }
            for r in 0..R {
                for v in 0..V {
                    S::store(self.out.0.add((row + r) * self.out.1 + v * S::LANES), x[r][v]);
                }
            }
        }
    }
}
