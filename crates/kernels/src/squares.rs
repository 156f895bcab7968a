//! Matrix products with AMX tiles. The output is computed in blocks of two by two tiles, with the sums in memory. In
//! identifiers, an AMX tile is a `square`, because the module `tile` is about tiles in vector registers.

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

/// Number of rows of a block, which is also its number of columns. A block consists of two by two AMX tiles.
const BLOCK: usize = 2 * SIDE;

/// Maximum size in bytes of a part of the left operand. Each part is multiplied by all panels before the next part is
/// read, so it stays in the L2 cache.
const LEFT_BLOCK: usize = 1024 * 1024;

/// Maximum number of rows that are multiplied by a panel of columns before the next panel is used. Meanwhile, each step
/// prefetches [`LINES_AHEAD`] cache lines of the next panel per plane. With `ROWS` rows, all steps together prefetch
/// exactly the part of the next panel that is needed.
const ROWS: usize = 8 * BLOCK;

thread_local! {
    /// Buffer for the sums of the blocks of one product.
    static SUMS: RefCell<Buffer> = RefCell::default();
}

impl Job<'_> {
    /// Computes the output columns that belong to the given panels of the weights.
    ///
    /// # Safety
    ///
    /// The processor must have the features of `S`. The pointers in the epilogues must be valid for all rows and
    /// columns.
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
            // SAFETY: the caller guarantees the processor features.
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
                        // SAFETY: the caller guarantees the processor features and the pointers in the epilogues.
                        unsafe { self.part::<S, F, E>(part, sums, kept > 0, &epilogue) };
                    }
                }
            }
            // SAFETY: the caller guarantees the processor features.
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

/// Part of a product that [`Job::part`] computes in one call.
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
            // Converts several rows at a time, to hide the latency of the activation function.
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

/// Number of rows that are converted at the same time, to hide the latency of the activation function.
const GROUP: usize = 4;

impl<F, E> Finish<F, E> {
    /// Converts `W` vectors of sums, `V` vectors of each row, starting at `row`. Always inlined, so that it is compiled
    /// with the processor's features.
    #[inline(always)]
    unsafe fn several<S: Simd, const V: usize, const W: usize>(&self, row: usize)
    where
        F: Format<S>,
        E: Epilogue<S>,
    {
        // SAFETY: the code that creates the kernel guarantees the rows and columns.
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
