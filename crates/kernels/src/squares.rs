//! Matrix products with AMX tiles (called squares here): blocks of two by two squares, with the sums in memory.

use std::{cell::RefCell, marker::PhantomData, ops::Range};

use crate::{
    format::Format,
    math,
    network::Activation,
    pack::Buffer,
    product::{Job, even_parts},
    simd::{Kernel, LINES_AHEAD, SIDE, SQUARE, Simd, Squared, Squares},
    tile::{Epilogue, UNITS_IN_LINE},
};

/// Number of rows and of columns of a block.
const BLOCK: usize = 2 * SIDE;

/// Bytes of the left operand per block. A block stays in the second-level cache.
const LEFT_BLOCK: usize = 1024 * 1024;

/// Maximum number of rows that are multiplied by a panel of columns before the next panel. The next panel is prefetched
/// at the same time: with `ROWS` rows, a step takes as long as fetching [`LINES_AHEAD`] cache lines.
const ROWS: usize = 8 * BLOCK;

thread_local! {
    /// Buffer for the sums of the blocks of one product.
    static SUMS: RefCell<Buffer> = RefCell::default();
}

impl Job<'_> {
    /// Computes the output columns of some panels of the weights.
    ///
    /// # Safety
    ///
    /// The processor has the features of `S`. The pointers in `E` are valid for all rows and columns.
    pub unsafe fn in_squares<S: Simd, F: Format<S::Base>, E: Epilogue<S::Base>>(
        &self,
        squared: Squared,
        panels: Range<usize>,
        epilogue: impl Fn(usize, usize) -> E,
    ) {
        let Job { left, weights, .. } = self;
        assert!(S::LANES == SIDE && weights.panel == BLOCK && left.stride == weights.depth);
        assert!(left.units.len() >= self.rows.next_multiple_of(SIDE) * left.stride);
        let line = SIDE * squared.planes();
        let all_steps = weights.depth / line;
        SUMS.with_borrow_mut(|sums| {
            // SAFETY: the caller guarantees the features.
            unsafe { S::begin_squares() };
            for blocks in even_parts(0..self.rows.div_ceil(BLOCK), ROWS / BLOCK) {
                let most = (LEFT_BLOCK / (blocks.len() * BLOCK * line * size_of::<u32>())).max(1);
                // If one pass completes the sums, all blocks use the same memory.
                let kept = if most < all_steps { blocks.len() * BLOCK * BLOCK } else { 0 };
                sums.reserve::<f32>(panels.len().max(1) * kept.max(BLOCK * BLOCK));
                for steps in even_parts(0..all_steps, most) {
                    for panel in panels.clone() {
                        let sums = &mut sums.of_mut::<f32>()[(panel - panels.start) * kept..];
                        let part = Part { squared, panel, blocks: blocks.clone(), steps: steps.clone() };
                        // SAFETY: guaranteed by the caller.
                        unsafe { self.part::<S, F, E>(part, sums, kept > 0, &epilogue) };
                    }
                }
            }
            // SAFETY: as above.
            unsafe { S::end_squares() };
        });
    }

    /// Computes the blocks and steps in `part` for its panel. If `kept` is true, `sums` has separate memory for each
    /// block, so that later parts can continue the sums.
    unsafe fn part<S: Simd, F: Format<S::Base>, E: Epilogue<S::Base>>(
        &self,
        part: Part,
        sums: &mut [f32],
        kept: bool,
        epilogue: &impl Fn(usize, usize) -> E,
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
            // SAFETY: rows, columns and units are within the bounds that `in_squares` has checked; prefetched
            // addresses may be invalid.
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
                        epilogue: epilogue(row, column),
                        activation: self.activation,
                        format: PhantomData,
                    });
                }
            }
        }
    }
}

/// The part of a product that [`Job::part`] computes in one call.
struct Part {
    squared: Squared,
    panel: usize,
    blocks: Range<usize>,
    steps: Range<usize>,
}

/// Kernel that converts the sums of a block to the final outputs.
struct Finish<F, E> {
    sums: *const f32,
    /// Pointer to the first output row, and row stride.
    out: (*mut f32, usize),
    rows: usize,
    width: usize,
    epilogue: E,
    activation: Option<Activation>,
    format: PhantomData<F>,
}

impl<S: Simd, F: Format<S>, E: Epilogue<S>> Kernel<S> for Finish<F, E> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        // SAFETY: the code that creates the kernel guarantees the rows and columns.
        unsafe {
            // Several rows at a time, to hide the latency of the polynomial.
            let grouped = if self.width == BLOCK { self.rows / GROUP * GROUP } else { 0 };
            for row in (0..grouped).step_by(GROUP) {
                self.several::<S, 2, { 2 * GROUP }>(row);
            }
            for row in grouped..self.rows {
                if self.width == BLOCK {
                    self.several::<S, 2, 2>(row);
                } else {
                    self.several::<S, 1, 1>(row);
                }
            }
        }
    }
}

/// Number of rows for which a polynomial is evaluated at the same time.
const GROUP: usize = 4;

impl<F, E> Finish<F, E> {
    /// Converts `W` vectors, `V` of each row. Always inlined, so that it is compiled with the processor's features.
    #[inline(always)]
    unsafe fn several<S: Simd, const V: usize, const W: usize>(&self, row: usize)
    where
        F: Format<S>,
        E: Epilogue<S>,
    {
        // SAFETY: as in `call`.
        unsafe {
            let mut x = [S::splat(0.0); W];
            for i in 0..W {
                let (row, column) = (row + i / V, i % V * S::LANES);
                x[i] =
                    self.epilogue.apply(F::value(F::load(self.sums.add(row * BLOCK + column))), row, column);
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
