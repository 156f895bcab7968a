//! The innermost kernel: a few rows times a few vectors of columns, all sums in registers.

use std::marker::PhantomData;

use super::{
    format::Format,
    math,
    simd::{Kernel, Simd},
};
use crate::network::Activation;

/// What becomes of a complete sum before it is written.
pub(super) trait Ending<S: Simd>: Copy {
    /// The number for row `row` of the tile; `column` counts from the first of the tile.
    unsafe fn end(self, sum: S::F32, row: usize, column: usize) -> S::F32;
}

/// Nothing.
#[derive(Clone, Copy)]
pub(super) struct AsIs;

impl<S: Simd> Ending<S> for AsIs {
    #[inline(always)]
    unsafe fn end(self, sum: S::F32, _: usize, _: usize) -> S::F32 {
        sum
    }
}

/// Every row has its factor.
#[derive(Clone, Copy)]
pub(super) struct ByRow(pub *const f32);

impl<S: Simd> Ending<S> for ByRow {
    #[inline(always)]
    unsafe fn end(self, sum: S::F32, row: usize, _: usize) -> S::F32 {
        // SAFETY: whoever makes one vouches for a number a row.
        unsafe { S::mul(sum, S::splat(self.0.add(row).read())) }
    }
}

/// Every column has its summand.
#[derive(Clone, Copy)]
pub(super) struct Biased(pub *const f32);

impl<S: Simd> Ending<S> for Biased {
    #[inline(always)]
    unsafe fn end(self, sum: S::F32, _: usize, column: usize) -> S::F32 {
        // SAFETY: whoever makes one vouches for a number a column.
        unsafe { S::add(sum, S::load(self.0.add(column))) }
    }
}

/// The way back from whole numbers: factors and summands of columns, factors and lowest numbers of rows.
#[derive(Clone, Copy)]
pub(super) struct Scaled {
    /// A factor a row.
    pub rows: *const f32,
    /// What code 0 stands for in a row.
    pub lows: *const f32,
    /// A factor a column.
    pub columns: *const f32,
    /// The sum of a column's weights.
    pub weights: *const f32,
    /// A summand a column.
    pub bias: *const f32,
}

impl<S: Simd> Ending<S> for Scaled {
    #[inline(always)]
    unsafe fn end(self, sum: S::F32, row: usize, column: usize) -> S::F32 {
        // SAFETY: whoever makes one vouches for numbers for all rows and columns.
        unsafe {
            let (factor, low) = (S::splat(self.rows.add(row).read()), S::splat(self.lows.add(row).read()));
            let base = S::fma(low, S::load(self.weights.add(column)), S::load(self.bias.add(column)));
            S::fma(sum, S::mul(factor, S::load(self.columns.add(column))), base)
        }
    }
}

/// Tiles one below the other, each of `M` rows of the left side, times one panel of `V` vectors of columns.
pub(super) struct Tiles<F, E, const M: usize, const V: usize> {
    /// How many.
    pub count: usize,
    /// The first row's units, and how far it is to the next row.
    pub left: (*const u32, usize),
    /// The panel's units, `V` vectors for each unit of a row.
    pub right: *const u32,
    /// How many steps.
    pub steps: usize,
    /// Where the first row's numbers go, and how far it is to the next row.
    pub out: (*mut f32, usize),
    /// Whether the sums begin here; else they were put aside in `out`.
    pub first: bool,
    /// Whether they end here; else they are put aside in `out`.
    pub last: bool,
    /// How they end.
    pub ending: E,
    /// What is put on the numbers then.
    pub activation: Option<Activation>,
    /// What will be needed next, and how many units of it are to be fetched with each tile.
    pub next: (*const u32, usize),
    /// In which numbers.
    pub format: PhantomData<F>,
}

impl<S: Simd, F: Format<S>, E: Ending<S>, const M: usize, const V: usize> Kernel<S> for Tiles<F, E, M, V> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        for tile in 0..self.count {
            // SAFETY: whoever makes tiles vouches for `count · M` rows on the left and in `out`, and for a panel of
            // `steps` steps. What is fetched ahead need not exist.
            unsafe {
                for unit in (0..self.next.1).step_by(UNITS_IN_LINE) {
                    S::fetch(self.next.0.wrapping_add(tile * self.next.1 + unit));
                }
                self.tile::<S>(tile * M);
            }
        }
        if let (Some(activation), true) = (self.activation, self.last) {
            let (rows, columns) = (self.count * M, V * S::LANES);
            // SAFETY: the numbers that were written just now.
            unsafe { S::enter(Activate { out: self.out, rows, columns, activation }) }
        }
    }
}

/// A cache line's units.
pub(super) const UNITS_IN_LINE: usize = 16;

impl<F, E, const M: usize, const V: usize> Tiles<F, E, M, V> {
    /// One tile, its first row `row`.
    #[inline(always)]
    unsafe fn tile<S: Simd>(&self, row: usize)
    where
        F: Format<S>,
        E: Ending<S>,
    {
        let stride = self.left.1;
        let mut right = self.right;
        // SAFETY: as in `call`.
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
            // Short steps four at a time, written out: the loop itself would cost a tenth.
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
                    if self.last {
                        S::store(to, self.ending.end(F::value(sums[m][v]), row + m, v * S::LANES));
                    } else {
                        F::store(to, sums[m][v]);
                    }
                }
            }
        }
    }
}

/// Puts a function on the numbers of a tile.
pub(super) struct Activate {
    /// The first row's numbers, and how far it is to the next row.
    pub out: (*mut f32, usize),
    /// How many rows.
    pub rows: usize,
    /// How many numbers of each; a multiple of the lanes.
    pub columns: usize,
    /// Which function.
    pub activation: Activation,
}

impl<S: Simd> Kernel<S> for Activate {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        let vectors = self.rows * (self.columns / S::LANES);
        let together = vectors / TOGETHER * TOGETHER;
        // SAFETY: whoever makes one vouches for the numbers.
        unsafe {
            for from in (0..together).step_by(TOGETHER) {
                self.several::<S, TOGETHER>(from);
            }
            for from in together..vectors {
                self.several::<S, 1>(from);
            }
        }
    }
}

impl Activate {
    /// `W` vectors from one on, counted through all rows. Always inlined, as a closure is not: out of line it would
    /// lack the processor's features, and every instruction would be a call.
    #[inline(always)]
    unsafe fn several<S: Simd, const W: usize>(&self, from: usize) {
        let in_row = self.columns / S::LANES;
        // SAFETY: as in `call`.
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

/// Vectors that go through a polynomial side by side: one waits for its own results most of the time.
const TOGETHER: usize = 4;

/// Calls a macro with the constants `M` and `V` that a tile of `rows` rows and `vectors` vectors needs.
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
