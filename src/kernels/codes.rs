//! The left side of a product in the numbers of the right side, row by row.

use super::{
    buffer::{Buffer, units},
    pack::{Packed, short_factor},
    simd::{Kernel, SIDE, Simd},
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
        if precision == Precision::F32 || (precision == Precision::Bf16 && !S::BF16) {
            return Left { units: units(x), stride, scales: &[], lows: &[] };
        }
        let in_unit = Packed::numbers_in_unit(precision);
        let depth = width / in_unit;
        let squares = Packed::in_squares::<S>(precision);
        // An odd number of lines: rows that are a power of two apart would fight for the same lines of the cache.
        let unit_stride = if squares { (depth.div_ceil(SIDE) | 1) * SIDE } else { depth };
        let to = unit_stride * in_unit;
        // Squares are read whole: rows beyond the last may hold anything, for nothing of theirs is kept.
        self.codes.reserve::<u32>(if squares { rows.next_multiple_of(SIDE) } else { rows } * unit_stride);
        if squares && !depth.is_multiple_of(SIDE) {
            for row in self.codes.of_mut::<u32>().chunks_exact_mut(unit_stride).take(rows) {
                row[depth..].fill(0);
            }
        }
        self.scales.reserve::<f32>(rows);
        self.lows.reserve::<f32>(rows);
        let (scales, lows) = (&mut self.scales.of_mut()[..rows], &mut self.lows.of_mut()[..rows]);
        // SAFETY: the features by our caller; `codes`, `scales` and `lows` have room for `rows` rows as long as `x`'s.
        unsafe {
            match precision {
                Precision::Int16 => {
                    let codes = self.codes.of_mut::<i16>();
                    lows.fill(0.0);
                    S::Base::enter(Shorts { x, width, stride, codes, to, scales });
                }
                Precision::Int8 => {
                    let codes = self.codes.of_mut::<u8>();
                    S::Base::enter(Bytes { x, width, stride, codes, to, scales, lows, most: S::BYTE_MAX });
                }
                _ => {
                    let codes = self.codes.of_mut::<u16>();
                    S::Base::enter(Halves { x, width, stride, codes, to });
                }
            }
        }
        Left { units: self.codes.of(), stride: unit_stride, scales: self.scales.of(), lows: self.lows.of() }
    }
}

/// To 16-bit integers, as long as overflow allows.
struct Shorts<'a> {
    x: &'a [f32],
    width: usize,
    stride: usize,
    codes: &'a mut [i16],
    /// From row to row of codes.
    to: usize,
    scales: &'a mut [f32],
}

impl<S: Simd> Kernel<S> for Shorts<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        for (row, scale) in self.scales.iter_mut().enumerate() {
            // SAFETY: `prepare` made room for as many rows as there are scales; rows are a multiple of the lanes.
            unsafe {
                let x = self.x.as_ptr().add(row * self.stride);
                let codes = self.codes.as_mut_ptr().add(row * self.to);
                let (mut squares, mut largest) = (S::splat(0.0), S::splat(0.0));
                for i in (0..self.width).step_by(S::LANES) {
                    let v = S::load(x.add(i));
                    squares = S::fma(v, v, squares);
                    largest = S::max(largest, S::abs(v));
                }
                let (length, largest) = (f64::from(S::total(squares)).sqrt(), f64::from(S::largest(largest)));
                let factor = short_factor(length, largest, self.width);
                *scale = if factor > 0.0 { (1.0 / factor) as f32 } else { 0.0 };
                let factor = S::splat(factor as f32);
                for i in (0..self.width).step_by(S::LANES) {
                    S::store_shorts(codes.add(i), S::mul(S::load(x.add(i)), factor));
                }
            }
        }
    }
}

/// To bytes from 0, the row's smallest number, to `most`, its largest.
struct Bytes<'a> {
    x: &'a [f32],
    width: usize,
    stride: usize,
    codes: &'a mut [u8],
    /// From row to row of codes.
    to: usize,
    scales: &'a mut [f32],
    lows: &'a mut [f32],
    most: f32,
}

impl<S: Simd> Kernel<S> for Bytes<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        for (row, (scale, low)) in self.scales.iter_mut().zip(self.lows).enumerate() {
            // SAFETY: `prepare` made room for as many rows as there are scales; rows are a multiple of the lanes.
            unsafe {
                let x = self.x.as_ptr().add(row * self.stride);
                let codes = self.codes.as_mut_ptr().add(row * self.to);
                let (mut least, mut most) = (S::load(x), S::load(x));
                for i in (S::LANES..self.width).step_by(S::LANES) {
                    let v = S::load(x.add(i));
                    least = S::min(least, v);
                    most = S::max(most, v);
                }
                let least = -S::largest(S::sub(S::splat(0.0), least));
                let range = (S::largest(most) - least).max(f32::MIN_POSITIVE);
                (*scale, *low) = (range / self.most, least);
                let factor = S::splat(self.most / range);
                let shift = S::splat(least);
                for i in (0..self.width).step_by(S::LANES) {
                    let code = S::mul(S::sub(S::load(x.add(i)), shift), factor);
                    S::store_bytes(codes.add(i), S::min(code, S::splat(self.most)));
                }
            }
        }
    }
}

/// To bf16.
struct Halves<'a> {
    x: &'a [f32],
    width: usize,
    stride: usize,
    codes: &'a mut [u16],
    /// From row to row of codes.
    to: usize,
}

impl<S: Simd> Kernel<S> for Halves<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        for (row, x) in self.x.chunks_exact(self.stride).enumerate() {
            for i in (0..self.width).step_by(S::LANES) {
                // SAFETY: `prepare` made room for as many codes as there are numbers; rows are a multiple of the lanes.
                unsafe {
                    let to = self.codes.as_mut_ptr().add(row * self.to + i);
                    S::store_bf16(to, S::load(x.as_ptr().add(i)));
                }
            }
        }
    }
}
