//! Conversion of the left operand of a product (the activations) to the number format of the weights, row by row.

use crate::{
    Precision,
    pack::{Buffer, Packed, short_factor, units},
    simd::{Kernel, SIDE, SQUARE, Simd, Squared},
};

/// Reusable buffers for the codes of a left operand, their scales and their zero points.
#[derive(Default)]
pub(super) struct CodeBuffers {
    codes: Buffer,
    scales: Buffer,
    lows: Buffer,
}

/// Left operand of a matrix product: activations in the number format of the weights.
#[derive(Clone, Copy)]
pub(super) struct Left<'a> {
    /// Rows of 32-bit units, which hold the activations.
    pub units: &'a [u32],
    /// Row stride, in units.
    pub stride: usize,
    /// Scale of each row: the difference between the values of two consecutive codes. Not used if the units are floats.
    pub scales: &'a [f32],
    /// Zero point of each row: the value that code 0 represents. Not used if the units are floats.
    pub lows: &'a [f32],
}

impl CodeBuffers {
    /// Converts `rows` rows of `x` for a product with weights of the given precision, and returns the converted rows.
    /// Each row has `width` elements, and the row stride is `stride`.
    ///
    /// # Safety
    ///
    /// The processor must have the features of `S`.
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
        let layout = Layout::new(squared, width, Packed::numbers_in_unit(precision));
        self.codes.reserve::<u32>(layout.units(rows));
        if layout.gaps {
            self.codes.of_mut::<u32>()[..layout.units(rows)].fill(0);
        }
        self.scales.reserve::<f32>(rows);
        self.lows.reserve::<f32>(rows);
        let (scales, lows) = (&mut self.scales.of_mut()[..rows], &mut self.lows.of_mut()[..rows]);
        let from = Source { x, width, stride, layout };
        // SAFETY: the caller guarantees the processor features; `codes`, `scales` and `lows` are large enough for
        // `rows` rows.
        unsafe {
            match precision {
                Precision::Int16 => {
                    let codes = self.codes.of_mut::<i16>();
                    lows.fill(0.0);
                    S::Base::enter(ToInt16 { from, codes, scales });
                }
                Precision::Int8 => {
                    let codes = self.codes.of_mut::<u8>();
                    S::Base::enter(ToInt8 { from, codes, scales, lows, most: S::BYTE_MAX });
                }
                Precision::F32 => {
                    let codes = self.codes.of_mut::<u16>();
                    S::Base::enter(ToBf16::<{ Squared::Thirds.planes() }> { from, codes });
                }
                Precision::Bf16 | Precision::F16 => {
                    let codes = self.codes.of_mut::<u16>();
                    S::Base::enter(ToBf16::<1> { from, codes });
                }
            }
        }
        Left { units: self.codes.of(), stride: layout.row, scales: self.scales.of(), lows: self.lows.of() }
    }
}

/// Memory layout of the codes in a buffer.
#[derive(Clone, Copy)]
struct Layout {
    /// Number of 32-bit units per row.
    row: usize,
    /// Number of elements per 32-bit unit.
    in_unit: usize,
    /// True if the codes are in AMX tiles: the lines (64-byte blocks) of each group of 16 rows are interleaved.
    squares: bool,
    /// Binary logarithm of the number of elements per line.
    line: u32,
    /// Stride between the lines of a row, in elements.
    next_line: usize,
    /// Stride between the planes of an element (see [`Squared::planes`]), in elements.
    next_plane: usize,
    /// True if rows contain padding, which must be zero.
    gaps: bool,
}

impl Layout {
    fn new(squared: Option<Squared>, width: usize, in_unit: usize) -> Self {
        let Some(squared) = squared else {
            let line = usize::BITS - 1;
            let row = width / in_unit;
            return Layout { row, in_unit, squares: false, line, next_line: 0, next_plane: 0, gaps: false };
        };
        let in_unit = squared.in_unit();
        let in_line = SIDE * in_unit;
        let steps = width.div_ceil(in_line);
        let next_plane = SQUARE * in_unit;
        Layout {
            row: steps * SIDE * squared.planes(),
            in_unit,
            squares: true,
            line: in_line.trailing_zeros(),
            next_line: next_plane * squared.planes(),
            next_plane,
            gaps: !width.is_multiple_of(in_line),
        }
    }

    /// Returns the number of 32-bit units in `rows` rows. For AMX tiles, the number of rows is rounded up to whole
    /// tiles. The added rows may hold arbitrary data, because their results are not used.
    fn units(&self, rows: usize) -> usize {
        self.row * if self.squares { rows.next_multiple_of(SIDE) } else { rows }
    }

    /// Returns the offset of a row, in elements.
    #[inline(always)]
    fn first(&self, row: usize) -> usize {
        match self.squares {
            true => row / SIDE * SIDE * self.row * self.in_unit + ((row % SIDE) << self.line),
            false => row * self.row * self.in_unit,
        }
    }

    /// Returns the offset of element `i` within a row.
    #[inline(always)]
    fn at(&self, i: usize) -> usize {
        (i >> self.line) * self.next_line + (i & ((1 << self.line) - 1))
    }
}

/// Elements to convert, and the memory layout of the codes.
#[derive(Clone, Copy)]
struct Source<'a> {
    x: &'a [f32],
    width: usize,
    stride: usize,
    layout: Layout,
}

/// Kernel that quantizes rows to 16-bit integers, with the factor from [`short_factor`].
struct ToInt16<'a> {
    from: Source<'a>,
    codes: &'a mut [i16],
    scales: &'a mut [f32],
}

impl<S: Simd> Kernel<S> for ToInt16<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        let Source { x, width, stride, layout } = self.from;
        for (row, scale) in self.scales.iter_mut().enumerate() {
            // SAFETY: `prepare` has allocated one row for each scale; the width is a multiple of the number of lanes.
            unsafe {
                let x = x.as_ptr().add(row * stride);
                let codes = self.codes.as_mut_ptr().add(layout.first(row));
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
                    S::store_shorts(codes.add(layout.at(i)), S::mul(S::load(x.add(i)), factor));
                }
            }
        }
    }
}

/// Kernel that quantizes rows to bytes: the smallest element of a row gets the code 0, and the largest gets `most`.
struct ToInt8<'a> {
    from: Source<'a>,
    codes: &'a mut [u8],
    scales: &'a mut [f32],
    lows: &'a mut [f32],
    most: f32,
}

impl<S: Simd> Kernel<S> for ToInt8<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        let Source { x, width, stride, layout } = self.from;
        for (row, (scale, low)) in self.scales.iter_mut().zip(self.lows).enumerate() {
            // SAFETY: `prepare` has allocated one row for each scale; the width is a multiple of the number of lanes.
            unsafe {
                let x = x.as_ptr().add(row * stride);
                let codes = self.codes.as_mut_ptr().add(layout.first(row));
                let (mut least, mut most) = (S::load(x), S::load(x));
                for i in (S::LANES..width).step_by(S::LANES) {
                    let v = S::load(x.add(i));
                    least = S::min(least, v);
                    most = S::max(most, v);
                }
                let least = -S::largest(S::sub(S::splat(0.0), least));
                let range = (S::largest(most) - least).max(f32::MIN_POSITIVE);
                *scale = range / self.most;
                *low = least + S::BYTE_ZERO * *scale;
                let factor = S::splat(self.most / range);
                let shift = S::splat(least);
                for i in (0..width).step_by(S::LANES) {
                    let code = S::mul(S::sub(S::load(x.add(i)), shift), factor);
                    S::store_bytes(codes.add(layout.at(i)), S::min(code, S::splat(self.most)));
                }
            }
        }
    }
}

/// Kernel that splits each element into `N` bf16 values: the rounded element, the rounded remainder, and so on.
struct ToBf16<'a, const N: usize> {
    from: Source<'a>,
    codes: &'a mut [u16],
}

impl<S: Simd, const N: usize> Kernel<S> for ToBf16<'_, N> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        let Source { x, width, stride, layout } = self.from;
        for (row, x) in x.chunks_exact(stride).enumerate() {
            // SAFETY: `prepare` has allocated `N` planes for each row; the width is a multiple of the number of
            // lanes.
            unsafe {
                let codes = self.codes.as_mut_ptr().add(layout.first(row));
                for i in (0..width).step_by(S::LANES) {
                    let mut rest = S::load(x.as_ptr().add(i));
                    for plane in 0..N {
                        let half = S::round_bf16(rest);
                        S::store_bf16(codes.add(layout.at(i) + plane * layout.next_plane), half);
                        rest = S::sub(rest, half);
                    }
                }
            }
        }
    }
}
