//! Micro-kernel: the innermost kernel of a matrix product. It computes one tile of the output, a few rows by a few
//! vectors of columns. All sums of a tile stay in registers.

use std::marker::PhantomData;

use crate::{
    format::Format,
    math,
    network::Activation,
    simd::{Kernel, Simd},
};

/// Epilogue of a product: converts a complete sum to the output value.
pub(super) trait Epilogue<S: Simd>: Copy {
    /// True if the loop over the sums of a tile is also unrolled if it applies the epilogue. If it were not, the compiler
    /// would write all sums to memory in each step of a large tile.
    const IS_SHORT: bool = true;

    /// Converts one vector of sums. `row` and `column` are relative to the row and column for which the epilogue was
    /// created.
    unsafe fn apply(self, sum: S::F32, row: usize, column: usize) -> S::F32;
}

/// Epilogue that returns the sum unchanged.
#[derive(Clone, Copy)]
pub(super) struct Identity;

impl<S: Simd> Epilogue<S> for Identity {
    #[inline(always)]
    unsafe fn apply(self, sum: S::F32, _: usize, _: usize) -> S::F32 {
        sum
    }
}

/// Epilogue that multiplies each row by a factor.
#[derive(Clone, Copy)]
pub(super) struct RowScale(pub *const f32);

impl<S: Simd> Epilogue<S> for RowScale {
    #[inline(always)]
    unsafe fn apply(self, sum: S::F32, row: usize, _: usize) -> S::F32 {
        // SAFETY: the code that creates the epilogue guarantees one number per row.
        unsafe { S::mul(sum, S::splat(self.0.add(row).read())) }
    }
}

/// Epilogue that adds a bias to each column.
#[derive(Clone, Copy)]
pub(super) struct ColumnBias(pub *const f32);

impl<S: Simd> Epilogue<S> for ColumnBias {
    #[inline(always)]
    unsafe fn apply(self, sum: S::F32, _: usize, column: usize) -> S::F32 {
        // SAFETY: the code that creates the epilogue guarantees one number per column.
        unsafe { S::add(sum, S::load(self.0.add(column))) }
    }
}

/// Epilogue that dequantizes integer sums and adds the bias.
#[derive(Clone, Copy)]
pub(super) struct Dequantize {
    pub rows: *const f32,
    /// Pointer to the zero point of each row, the value that code 0 represents.
    pub lows: *const f32,
    pub columns: *const f32,
    /// Pointer to the sums of the dequantized weights, one sum per column.
    pub weights: *const f32,
    pub bias: *const f32,
}

impl<S: Simd> Epilogue<S> for Dequantize {
    const IS_SHORT: bool = false;

    #[inline(always)]
    unsafe fn apply(self, sum: S::F32, row: usize, column: usize) -> S::F32 {
        // SAFETY: the code that creates the epilogue guarantees numbers for all rows and columns.
        unsafe {
            let (factor, low) = (S::splat(self.rows.add(row).read()), S::splat(self.lows.add(row).read()));
            let base = S::fma(low, S::load(self.weights.add(column)), S::load(self.bias.add(column)));
            S::fma(sum, S::mul(factor, S::load(self.columns.add(column))), base)
        }
    }
}

/// Kernel for a column of tiles. A tile multiplies `M` rows of the left operand by a panel of `V` vectors of columns.
pub(super) struct Tiles<F, E, const M: usize, const V: usize> {
    /// Number of tiles in the column.
    pub count: usize,
    /// Pointer to the units of the first row of the left operand, and row stride.
    pub left: (*const u32, usize),
    /// Pointer to the packed panel of the right operand: for each step, `V` times [`Format::RIGHT`] vectors.
    pub right: *const u32,
    /// Number of multiplication steps along a row.
    pub steps: usize,
    /// Pointer to the first output row, and row stride.
    pub out: (*mut f32, usize),
    /// True if the sums start at zero. If false, they start from the partial sums in `out`.
    pub first: bool,
    /// True if the sums are complete after this call. If false, the partial sums are written to `out`.
    pub last: bool,
    /// Epilogue that converts complete sums to results.
    pub epilogue: E,
    pub activation: Option<Activation>,
    /// Pointer to the memory to prefetch, and number of 32-bit units to prefetch with each tile.
    pub next: (*const u32, usize),
    pub format: PhantomData<F>,
}

impl<S: Simd, F: Format<S>, E: Epilogue<S>, const M: usize, const V: usize> Kernel<S> for Tiles<F, E, M, V> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        for tile in 0..self.count {
            // SAFETY: the code that creates the kernel guarantees `count · M` rows on the left and in `out`, and a
            // panel of `steps` steps. Prefetched addresses may be invalid.
            unsafe {
                for unit in (0..self.next.1).step_by(UNITS_IN_LINE) {
                    S::fetch(self.next.0.wrapping_add(tile * self.next.1 + unit));
                }
                self.tile::<S>(tile * M);
                if self.last && !E::IS_SHORT {
                    self.finish::<S>(tile * M);
                }
            }
        }
        if let (Some(activation), true) = (self.activation, self.last) {
            let (rows, columns) = (self.count * M, V * S::LANES);
            // SAFETY: the tiles have just written these rows and columns.
            unsafe { S::enter(Activate { out: self.out, rows, columns, activation }) }
        }
    }
}

/// Number of 32-bit units in a cache line.
pub(super) const UNITS_IN_LINE: usize = 16;

impl<F, E, const M: usize, const V: usize> Tiles<F, E, M, V> {
    /// Computes the tile that starts at row `row`.
    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, row: usize)
    where
        F: Format<S>,
        E: Epilogue<S>,
    {
        let stride = self.left.1;
        let mut right = self.right;
        // SAFETY: the code that creates the kernel guarantees the rows and columns.
        unsafe {
            let mut left = self.left.0.add(row * stride);
            let out = self.out.0.add(row * self.out.1);
            let mut sums = [[F::zero(); V]; M];
            if !self.first {
                for m in 0..M {
                    for v in 0..V {
                        sums[m][v] = F::load(out.add(m * self.out.1 + v * S::LANES));
                    }
                }
            }
            let ahead = F::RIGHT * V * S::LANES;
            // Short steps are unrolled four times. Without unrolling, the loop overhead would cost a tenth of the time.
            let fours = if F::RIGHT == 1 { self.steps / 4 } else { 0 };
            for _ in 0..fours {
                F::step::<M, V>(&mut sums, left, stride, right);
                F::step::<M, V>(&mut sums, left.add(F::LEFT), stride, right.add(ahead));
                F::step::<M, V>(&mut sums, left.add(2 * F::LEFT), stride, right.add(2 * ahead));
                F::step::<M, V>(&mut sums, left.add(3 * F::LEFT), stride, right.add(3 * ahead));
                left = left.add(4 * F::LEFT);
                right = right.add(4 * ahead);
            }
            for _ in 0..self.steps - 4 * fours {
                F::step::<M, V>(&mut sums, left, stride, right);
                left = left.add(F::LEFT);
                right = right.add(ahead);
            }
            for m in 0..M {
                for v in 0..V {
                    let to = out.add(m * self.out.1 + v * S::LANES);
                    if self.last && E::IS_SHORT {
                        S::store(to, self.epilogue.apply(F::value(sums[m][v]), row + m, v * S::LANES));
                    } else if self.last {
                        S::store(to, F::value(sums[m][v]));
                    } else {
                        F::store(to, sums[m][v]);
                    }
                }
            }
        }
    }

    /// Applies a long epilogue to the sums of the tile that starts at row `row`. The sums are read from memory again.
    #[inline(always)]
    unsafe fn finish<S: Simd>(&self, row: usize)
    where
        E: Epilogue<S>,
    {
        for m in 0..M {
            for v in 0..V {
                // SAFETY: the code that creates the kernel guarantees the rows and columns.
                unsafe {
                    let to = self.out.0.add((row + m) * self.out.1 + v * S::LANES);
                    S::store(to, self.epilogue.apply(S::load(to), row + m, v * S::LANES));
                }
            }
        }
    }
}

/// Kernel that applies an activation function to the results of tiles.
pub(super) struct Activate {
    /// Pointer to the first row of results, and row stride.
    pub out: (*mut f32, usize),
    pub rows: usize,
    /// Number of elements per row; a multiple of the number of lanes.
    pub columns: usize,
    pub activation: Activation,
}

impl<S: Simd> Kernel<S> for Activate {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        let vectors = self.rows * (self.columns / S::LANES);
        let grouped = vectors / GROUP * GROUP;
        // SAFETY: the code that creates the kernel guarantees the rows and columns.
        unsafe {
            for from in (0..grouped).step_by(GROUP) {
                self.several::<S, GROUP>(from);
            }
            for from in grouped..vectors {
                self.several::<S, 1>(from);
            }
        }
    }
}

impl Activate {
    /// Applies the activation function to `W` vectors. `from` is the index of the first vector, counted over all rows.
    /// This function is not a closure, because a closure cannot be forced inline. Code that is not inlined is compiled
    /// without the processor's features, and every intrinsic becomes a call.
    #[inline(always)]
    unsafe fn several<S: Simd, const W: usize>(&self, from: usize) {
        let in_row = self.columns / S::LANES;
        // SAFETY: the code that creates the kernel guarantees the rows and columns.
        unsafe {
            let place = |i: usize| self.out.0.add(i / in_row * self.out.1 + i % in_row * S::LANES);
            let mut x = [S::splat(0.0); W];
            for i in 0..W {
                x[i] = S::load(place(from + i));
            }
            let y = math::activate::<S, W>(self.activation, x);
            for i in 0..W {
                S::store(place(from + i), y[i]);
            }
        }
    }
}

/// Number of vectors to which the activation function is applied at the same time, to hide latency.
const GROUP: usize = 4;

/// Calls the macro `$run` with `$rows` and `$vectors` as literals, so that they can be the constants `M` and `V` of a
/// tile.
macro_rules! with_tile {
    ($rows:expr, $vectors:expr, $most_rows:expr, $most_vectors:expr, $run:ident) => {
        match ($rows, $vectors) {
            (1, 1) => $run!(1, 1),
            (2, 1) => $run!(2, 1),
            (3, 1) => $run!(3, 1),
            (4, 1) if $most_rows >= 4 => $run!(4, 1),
            (5, 1) if $most_rows >= 5 => $run!(5, 1),
            (6, 1) if $most_rows >= 6 => $run!(6, 1),
            (7, 1) if $most_rows >= 7 => $run!(7, 1),
            (8, 1) if $most_rows >= 8 => $run!(8, 1),
            (1, 2) if $most_vectors >= 2 => $run!(1, 2),
            (2, 2) if $most_vectors >= 2 => $run!(2, 2),
            (3, 2) if $most_vectors >= 2 => $run!(3, 2),
            (4, 2) if $most_vectors >= 2 && $most_rows >= 4 => $run!(4, 2),
            (5, 2) if $most_vectors >= 2 && $most_rows >= 5 => $run!(5, 2),
            (6, 2) if $most_vectors >= 2 && $most_rows >= 6 => $run!(6, 2),
            (7, 2) if $most_vectors >= 2 && $most_rows >= 7 => $run!(7, 2),
            (8, 2) if $most_vectors >= 2 && $most_rows >= 8 => $run!(8, 2),
            (1, 3) if $most_vectors >= 3 => $run!(1, 3),
            (2, 3) if $most_vectors >= 3 => $run!(2, 3),
            (3, 3) if $most_vectors >= 3 => $run!(3, 3),
            (4, 3) if $most_vectors >= 3 && $most_rows >= 4 => $run!(4, 3),
            (5, 3) if $most_vectors >= 3 && $most_rows >= 5 => $run!(5, 3),
            (6, 3) if $most_vectors >= 3 && $most_rows >= 6 => $run!(6, 3),
            (7, 3) if $most_vectors >= 3 && $most_rows >= 7 => $run!(7, 3),
            (8, 3) if $most_vectors >= 3 && $most_rows >= 8 => $run!(8, 3),
            _ => unreachable!("tiles have 1 to 8 rows and 1 to 3 vectors"),
        }
    };
}
pub(super) use with_tile;

/// Kernel of a gated feed-forward block. A row holds `width` elements, followed by `width` factors: each element becomes
/// its activation times the factor.
pub(super) struct Gate<'a> {
    pub rows: &'a mut [f32],
    /// Row stride.
    pub stride: usize,
    /// A multiple of the number of lanes.
    pub width: usize,
    pub activation: Activation,
}

impl Gate<'_> {
    /// Runs the kernel.
    ///
    /// # Safety
    ///
    /// The processor must have the features of `S`.
    pub unsafe fn run<S: Simd>(self) {
        assert!(self.rows.len().is_multiple_of(self.stride) && 2 * self.width <= self.stride);
        assert!(self.width.is_multiple_of(S::LANES));
        // SAFETY: the caller guarantees the processor features; the asserts check the lengths.
        unsafe { S::enter(self) }
    }

    /// Computes `W` vectors.
    #[inline(always)]
    unsafe fn several<S: Simd, const W: usize>(&self, elements: *mut f32) {
        // SAFETY: `run` has checked that the row has `width` elements and factors.
        unsafe {
            let mut x = [S::splat(0.0); W];
            for w in 0..W {
                x[w] = S::load(elements.add(w * S::LANES));
            }
            let activations = math::activate::<S, W>(self.activation, x);
            for w in 0..W {
                let element = elements.add(w * S::LANES);
                S::store(element, S::mul(activations[w], S::load(element.add(self.width))));
            }
        }
    }
}

impl<S: Simd> Kernel<S> for Gate<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        let vectors = self.width / S::LANES;
        let grouped = vectors / GROUP * GROUP;
        let rows = self.rows.as_mut_ptr();
        for row in 0..self.rows.len() / self.stride {
            // SAFETY: `run` has checked the lengths.
            unsafe {
                let row = rows.add(row * self.stride);
                for from in (0..grouped).step_by(GROUP) {
                    self.several::<S, GROUP>(row.add(from * S::LANES));
                }
                for from in grouped..vectors {
                    self.several::<S, 1>(row.add(from * S::LANES));
                }
            }
        }
    }
}
