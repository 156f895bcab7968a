//! The left side of a product in the numbers of the right side, row by row.

use super::{
    buffer::{Buffer, units},
    pack::{Packed, short_factor},
    simd::{Kernel, SIDE, SQUARE, Simd, Squared},
};
use crate::Precision;

/// Room for codes.
#[derive(Default)]
pub(super) struct CodeRoom {
    codes: Buffer,
    scales: Buffer,
    lows: Buffer,
}

/// The left side of a product.
#[derive(Clone, Copy)]
pub(super) struct Left<'a> {
    /// Rows of units.
    pub units: &'a [u32],
    /// From row to row.
    pub stride: usize,
    /// What 1 stands for in each row; empty for floats.
    pub scales: &'a [f32],
    /// What 0 stands for in each row; empty for floats.
    pub lows: &'a [f32],
}

impl CodeRoom {
    /// Brings `rows` rows of `width` numbers, `stride` apart, into the form that a product with weights of `precision`
    /// takes.
    ///
    /// # Safety
    ///
    /// The processor has the features of `S`.
    pub unsafe fn prepare<'a, S: Simd>(
        &'a mut self,
        precision: Precision,
        x: &'a [f32],
        rows: usize,
        (width, stride): (usize, usize),
    ) -> Left<'a> {
        assert!(x.len() >= rows * stride && width <= stride && width.is_multiple_of(super::pack::GRAIN));
        let x = &x[..rows * stride];
        let squared = Packed::squared::<S>(precision);
        let plain = precision == Precision::F32 || (precision == Precision::Bf16 && !S::BF16);
        if plain && squared.is_none() {
            return Left { units: units(x), stride, scales: &[], lows: &[] };
        }
        let places = Places::new(squared, width, Packed::numbers_in_unit(precision));
        self.codes.reserve::<u32>(places.units(rows));
        if places.gaps {
            self.codes.of_mut::<u32>()[..places.units(rows)].fill(0);
        }
        self.scales.reserve::<f32>(rows);
        self.lows.reserve::<f32>(rows);
        let (scales, lows) = (&mut self.scales.of_mut()[..rows], &mut self.lows.of_mut()[..rows]);
        let from = Source { x, width, stride, places };
        // SAFETY: the features by our caller; `codes`, `scales` and `lows` have room for `rows` rows as long as `x`'s.
        unsafe {
            match precision {
                Precision::Int16 => {
                    let codes = self.codes.of_mut::<i16>();
                    lows.fill(0.0);
                    S::Base::enter(Shorts { from, codes, scales });
                }
                Precision::Int8 => {
                    let codes = self.codes.of_mut::<u8>();
                    S::Base::enter(Bytes { from, codes, scales, lows, most: S::BYTE_MAX });
                }
                Precision::F32 => {
                    let codes = self.codes.of_mut::<u16>();
                    S::Base::enter(Halves::<{ Squared::Thirds.planes() }> { from, codes });
                }
                Precision::Bf16 | Precision::F16 => {
                    let codes = self.codes.of_mut::<u16>();
                    S::Base::enter(Halves::<1> { from, codes });
                }
            }
        }
        Left { units: self.codes.of(), stride: places.row, scales: self.scales.of(), lows: self.lows.of() }
    }
}

/// Where the codes go.
#[derive(Clone, Copy)]
struct Places {
    /// Units of a row.
    row: usize,
    /// Numbers in a unit.
    in_unit: usize,
    /// Whether rows are those of squares: 16 of them take turns, a line each.
    squares: bool,
    /// Numbers of a line, as a power of two.
    line: u32,
    /// How far it is from a line of a row to its next, in numbers.
    next_line: usize,
    /// How far it is from plane to plane, in numbers.
    next_plane: usize,
    /// Whether there are places without a code.
    gaps: bool,
}

impl Places {
    fn new(squared: Option<Squared>, width: usize, in_unit: usize) -> Self {
        let Some(squared) = squared else {
            let line = usize::BITS - 1;
            let row = width / in_unit;
            return Places { row, in_unit, squares: false, line, next_line: 0, next_plane: 0, gaps: false };
        };
        let in_unit = squared.in_unit();
        let in_line = SIDE * in_unit;
        let steps = width.div_ceil(in_line);
        let next_plane = SQUARE * in_unit;
        Places {
            row: steps * SIDE * squared.planes(),
            in_unit,
            squares: true,
            line: in_line.trailing_zeros(),
            next_line: next_plane * squared.planes(),
            next_plane,
            gaps: !width.is_multiple_of(in_line),
        }
    }

    /// The units that so many rows take. Squares are read whole: what is in the rows beyond the last does not matter, for
    /// nothing of theirs is kept.
    fn units(&self, rows: usize) -> usize {
        self.row * if self.squares { rows.next_multiple_of(SIDE) } else { rows }
    }

    /// Where a row begins, in numbers.
    #[inline(always)]
    fn first(&self, row: usize) -> usize {
        match self.squares {
            true => row / SIDE * SIDE * self.row * self.in_unit + ((row % SIDE) << self.line),
            false => row * self.row * self.in_unit,
        }
    }

    /// How far a number is from where its row begins.
    #[inline(always)]
    fn at(&self, i: usize) -> usize {
        (i >> self.line) * self.next_line + (i & ((1 << self.line) - 1))
    }
}

/// The numbers, and where their codes go.
#[derive(Clone, Copy)]
struct Source<'a> {
    x: &'a [f32],
    width: usize,
    stride: usize,
    places: Places,
}

/// To 16-bit integers, as long as overflow allows.
struct Shorts<'a> {
    from: Source<'a>,
    codes: &'a mut [i16],
    scales: &'a mut [f32],
}

impl<S: Simd> Kernel<S> for Shorts<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        let Source { x, width, stride, places } = self.from;
        for (row, scale) in self.scales.iter_mut().enumerate() {
            // SAFETY: `prepare` made room for as many rows as there are scales; rows are a multiple of the lanes.
            unsafe {
                let x = x.as_ptr().add(row * stride);
                let codes = self.codes.as_mut_ptr().add(places.first(row));
                let (mut squares, mut largest) = (S::splat(0.0), S::splat(0.0));
                for i in (0..width).step_by(S::LANES) {
                    let v = S::load(x.add(i));
                    squares = S::fma(v, v, squares);
                    largest = S::max(largest, S::abs(v));
                }
                let (length, largest) = (f64::from(S::total(squares)).sqrt(), f64::from(S::largest(largest)));
                let factor = short_factor(length, largest, width);
                *scale = if factor > 0.0 { (1.0 / factor) as f32 } else { 0.0 };
                let factor = S::splat(factor as f32);
                for i in (0..width).step_by(S::LANES) {
                    S::store_shorts(codes.add(places.at(i)), S::mul(S::load(x.add(i)), factor));
                }
            }
        }
    }
}

/// To bytes from 0, the row's smallest number, to `most`, its largest.
struct Bytes<'a> {
    from: Source<'a>,
    codes: &'a mut [u8],
    scales: &'a mut [f32],
    lows: &'a mut [f32],
    most: f32,
}

impl<S: Simd> Kernel<S> for Bytes<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        let Source { x, width, stride, places } = self.from;
        for (row, (scale, low)) in self.scales.iter_mut().zip(self.lows).enumerate() {
            // SAFETY: `prepare` made room for as many rows as there are scales; rows are a multiple of the lanes.
            unsafe {
                let x = x.as_ptr().add(row * stride);
                let codes = self.codes.as_mut_ptr().add(places.first(row));
                let (mut least, mut most) = (S::load(x), S::load(x));
                for i in (S::LANES..width).step_by(S::LANES) {
                    let v = S::load(x.add(i));
                    least = S::min(least, v);
                    most = S::max(most, v);
                }
                let least = -S::largest(S::sub(S::splat(0.0), least));
                let range = (S::largest(most) - least).max(f32::MIN_POSITIVE);
                (*scale, *low) = (range / self.most, least);
                let factor = S::splat(self.most / range);
                let shift = S::splat(least);
                for i in (0..width).step_by(S::LANES) {
                    let code = S::mul(S::sub(S::load(x.add(i)), shift), factor);
                    S::store_bytes(codes.add(places.at(i)), S::min(code, S::splat(self.most)));
                }
            }
        }
    }
}

/// To `N` of bf16 that together are the number, or as near to it as they come.
struct Halves<'a, const N: usize> {
    from: Source<'a>,
    codes: &'a mut [u16],
}

impl<S: Simd, const N: usize> Kernel<S> for Halves<'_, N> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        let Source { x, width, stride, places } = self.from;
        for (row, x) in x.chunks_exact(stride).enumerate() {
            // SAFETY: `prepare` made room for as many rows of `N` planes; rows are a multiple of the lanes.
            unsafe {
                let codes = self.codes.as_mut_ptr().add(places.first(row));
                for i in (0..width).step_by(S::LANES) {
                    let mut rest = S::load(x.as_ptr().add(i));
                    for plane in 0..N {
                        let half = S::round_bf16(rest);
                        S::store_bf16(codes.add(places.at(i) + plane * places.next_plane), half);
                        rest = S::sub(rest, half);
                    }
                }
            }
        }
    }
}
