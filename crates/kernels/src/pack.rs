//! Packed weights: weights that are converted to the number format of the product, and stored in the order in which the
//! kernels read them. The memory is aligned to cache lines, so that no vector load crosses a line boundary.

use turnwise_core::{Error, Result};

use crate::{
    Precision,
    simd::{SIDE, Simd, Squared},
};

/// The inputs and outputs of a layer are padded with zeros to a multiple of this number. It is the number of lanes of
/// the widest vectors. It is also a multiple of the number of elements in a byte chain ([`Simd::BYTE_CHAIN`]).
pub(super) const GRAIN: usize = 16;

/// Maximum Euclidean norm of a row of 16-bit codes. Its square is below 2³¹. By the Cauchy–Schwarz inequality, the
/// dot product of two such rows, and every partial sum of it, fits into 32 bits.
pub(super) const LONGEST: f64 = 46_340.0;

/// Returns the largest factor that converts a row to 16-bit codes without overflow; 0 for a row of zeros. `length` is
/// the row's norm, `largest` its largest absolute value, and `n` the number of codes.
pub(super) fn short_factor(length: f64, largest: f64, n: usize) -> f64 {
    // Rounding can increase the norm of `n` codes by `√n / 2`. The factor 0.999 allows for the rounding errors of the
    // norm itself, which is computed in f32.
    let longest = (LONGEST - (n as f64).sqrt() / 2.0) * 0.999;
    if largest > 0.0 { (longest / length).min(32_767.0 / largest) } else { 0.0 }
}

/// Packed weights of a linear layer. A column holds the weights of one output.
pub(super) struct Packed {
    pub precision: Precision,
    /// Number of inputs, including padding.
    pub inputs: usize,
    /// Number of outputs, including padding.
    pub outputs: usize,
    /// Number of columns per panel. A kernel multiplies all columns of a panel together. The last panel may have fewer
    /// columns.
    pub panel: usize,
    /// Number of 32-bit units per column.
    pub depth: usize,
    /// Number format of the AMX tiles if the product uses AMX tiles; `None` if the product uses SIMD vectors.
    pub squared: Option<Squared>,
    /// All panels, concatenated. A panel holds, for each unit of inputs, one 32-bit unit per column. For AMX tiles, the
    /// units are in the order of [`Squares`](super::simd::Squares), and the last panel is padded.
    pub units: Buffer,
    /// Scale of each column: the value that code 1 represents. Integer precisions only.
    pub scales: Vec<f32>,
    /// Sum of the dequantized weights of each column. Int8 only.
    pub sums: Vec<f32>,
    pub bias: Vec<f32>,
}

impl Packed {
    /// Returns the number of elements per 32-bit unit in products that do not use AMX tiles.
    pub fn numbers_in_unit(precision: Precision) -> usize {
        match precision {
            Precision::F32 => 1,
            Precision::Bf16 | Precision::F16 | Precision::Int16 => 2,
            Precision::Int8 => 4,
        }
    }

    /// Returns the format of the AMX tiles for products of this precision; `None` if such products use SIMD vectors.
    pub fn squared<S: Simd>(precision: Precision) -> Option<Squared> {
        let squared = match precision {
            Precision::F32 => Squared::Thirds,
            Precision::Bf16 => Squared::Bf16,
            Precision::Int8 => Squared::Bytes,
            Precision::Int16 | Precision::F16 => return None,
        };
        S::SQUARES.then_some(squared)
    }

    /// Packs `outputs` rows of `inputs` weights for the SIMD level of `S`. Returns an error for f16.
    pub fn new<S: Simd>(
        precision: Precision,
        (inputs, outputs): (usize, usize),
        weight: &[f32],
        bias: &[f32],
    ) -> Result<Self> {
        assert!(
            weight.len() == inputs * outputs && bias.len() == outputs,
            "the weights have a different shape"
        );
        let group = Packed::numbers_in_unit(precision);
        let padded = (inputs.next_multiple_of(GRAIN), outputs.next_multiple_of(GRAIN));
        let squared = Packed::squared::<S>(precision);
        let (depth, panel, columns) = match squared {
            Some(squared) => {
                let steps = padded.0.div_ceil(SIDE * squared.in_unit());
                (steps * SIDE * squared.planes(), 2 * SIDE, padded.1.next_multiple_of(2 * SIDE))
            }
            None => (padded.0 / group, S::VECTORS * S::LANES, padded.1),
        };
        let mut packed = Packed {
            precision,
            inputs: padded.0,
            outputs: padded.1,
            panel,
            depth,
            squared,
            units: Buffer::zeros::<u32>(depth * columns),
            scales: vec![0.0; padded.1],
            sums: vec![0.0; padded.1],
            bias: vec![0.0; padded.1],
        };
        packed.bias[..outputs].copy_from_slice(bias);
        let mut row = vec![0.0; padded.0];
        for output in 0..outputs {
            row[..inputs].copy_from_slice(&weight[output * inputs..(output + 1) * inputs]);
            match precision {
                Precision::F32 if squared.is_some() => {
                    let mut rest = row.clone();
                    for plane in 0..Squared::Thirds.planes() {
                        packed.put_in(plane, output, rest.iter_mut().map(take_bf16_part));
                    }
                }
                Precision::F32 => packed.put(output, row.iter().map(|w| w.to_bits())),
                Precision::Bf16 => packed.put(output, row.iter().map(|w| half::bf16::from_f32(*w).to_bits())),
                Precision::Int16 => {
                    let codes = short_codes(&row);
                    packed.scales[output] = codes.scale;
                    packed.put(output, codes.codes.iter().map(|c| *c as u16));
                }
                Precision::Int8 => {
                    let codes = byte_codes(&row, S::BYTE_CHAIN, f64::from(S::BYTE_MAX));
                    packed.scales[output] = codes.scale;
                    let sum: i64 = codes.codes.iter().map(|c| i64::from(*c)).sum();
                    packed.sums[output] = (sum as f64 * f64::from(codes.scale)) as f32;
                    packed.put(output, codes.codes.iter().map(|c| *c as i8 as u8));
                }
                Precision::F16 => return Err(f16_error()),
            }
        }
        Ok(packed)
    }

    pub fn panels(&self) -> usize {
        self.outputs.div_ceil(self.panel)
    }

    /// Writes the weights of one output.
    fn put<T: Plain>(&mut self, output: usize, numbers: impl Iterator<Item = T>) {
        self.put_in(0, output, numbers);
    }

    /// Writes the weights of one output to a plane (see [`Squared::planes`]).
    fn put_in<T: Plain>(&mut self, plane: usize, output: usize, numbers: impl Iterator<Item = T>) {
        let group = size_of::<u32>() / size_of::<T>();
        let (panel, column) = (output / self.panel, output % self.panel);
        let width = match self.squared {
            Some(_) => self.panel,
            None => self.panel.min(self.outputs - panel * self.panel),
        };
        let start = panel * self.panel * self.depth;
        let squared = self.squared;
        let places = self.units.of_mut::<T>();
        for (input, number) in numbers.enumerate() {
            let unit = input / group;
            let row = match squared {
                Some(squared) => (unit / SIDE * squared.planes() + plane) * SIDE + unit % SIDE,
                None => unit,
            };
            places[(start + row * width + column) * group + input % group] = number;
        }
    }
}

/// Returns the error for f16, which only GPUs support.
pub(super) fn f16_error() -> Error {
    Error::input("f16 is not supported on the CPU")
        .with_hint("use `bf16` or `int16`: both have 16 bits, and `int16` is more accurate")
}

/// Rounds `number` to bf16 and returns the bits. Replaces `number` with the remainder, the rounding error.
pub(super) fn take_bf16_part(number: &mut f32) -> u16 {
    let part = half::bf16::from_f32(*number);
    *number -= part.to_f32();
    part.to_bits()
}

struct Codes {
    codes: Vec<i16>,
    /// Value that code 1 represents.
    scale: f32,
}

/// Quantizes a row to 16-bit codes. The norm of the codes is at most [`LONGEST`].
fn short_codes(row: &[f32]) -> Codes {
    let square = |x: f64| x * x;
    let length = row.iter().map(|w| square(f64::from(*w))).sum::<f64>().sqrt();
    let largest = row.iter().fold(0.0f64, |m, w| m.max(f64::from(w.abs())));
    let factor = short_factor(length, largest, row.len());
    let codes: Vec<i16> = row.iter().map(|w| (f64::from(*w) * factor).round() as i16).collect();
    assert!(codes.iter().map(|c| square(f64::from(*c))).sum::<f64>() <= square(LONGEST));
    Codes { codes, scale: if factor > 0.0 { (1.0 / factor) as f32 } else { 0.0 } }
}

/// Quantizes a row to 8-bit codes.
///
/// Some SIMD levels sum the products of `chain` groups of four codes in 16 bits. For these levels, the codes are
/// limited so that no such sum saturates, whatever the activation codes from 0 to `most` are.
fn byte_codes(row: &[f32], chain: usize, most: f64) -> Codes {
    let largest = row.iter().fold(0.0f64, |m, w| m.max(f64::from(w.abs())));
    if largest == 0.0 {
        return Codes { codes: vec![0; row.len()], scale: 0.0 };
    }
    let mut factor = 127.0 / largest;
    let code = |w: f32, factor: f64| (f64::from(w) * factor).round();
    if chain > 1 {
        let limit = (f64::from(i16::MAX) / most).floor();
        // A 16-bit lane sums the products of one half of each group. Activation codes are not negative, so a sum is
        // largest if it has only positive codes, or only negative ones. Each sign is therefore checked separately.
        let heaviest = |factor: f64| {
            row.chunks(4 * chain).fold(0.0f64, |heaviest, links| {
                let mut sums = [[0.0f64; 2]; 2];
                for (i, w) in links.iter().enumerate() {
                    let c = code(*w, factor);
                    sums[i / 2 % 2][usize::from(c < 0.0)] += c.abs();
                }
                sums.as_flattened().iter().fold(heaviest, |m, s| m.max(*s))
            })
        };
        factor = factor.min(factor * limit / heaviest(factor));
        while heaviest(factor) > limit {
            factor *= 0.995;
        }
    }
    let codes = row.iter().map(|w| code(*w, factor) as i16).collect();
    Codes { codes, scale: (1.0 / factor) as f32 }
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u32; 16]);

/// Plain number types: every bit pattern is a valid value.
///
/// # Safety
///
/// The type must have no padding, no invalid bit patterns and no destructor, and its size must divide 64.
pub(super) unsafe trait Plain: Copy {}
macro_rules! plain {
    ($($number:ty),*) => {
        // SAFETY: these are plain number types of 1, 2 and 4 bytes.
        $(unsafe impl Plain for $number {})*
    };
}
plain!(u8, i8, i16, u16, u32, f32);

/// Memory that is aligned to cache lines and can be viewed as a slice of any plain type.
#[derive(Default, Clone)]
pub(super) struct Buffer {
    lines: Vec<Line>,
}

impl Buffer {
    /// Creates a buffer of `n` elements, all zero.
    pub fn zeros<T: Plain>(n: usize) -> Self {
        let mut buffer = Buffer::default();
        buffer.reserve::<T>(n);
        buffer
    }

    /// Grows the buffer to at least `n` elements. New elements are zero. The buffer never shrinks.
    pub fn reserve<T: Plain>(&mut self, n: usize) {
        let lines = (n * size_of::<T>()).div_ceil(size_of::<Line>());
        if lines > self.lines.len() {
            self.lines.resize(lines, Line([0; 16]));
        }
    }

    /// Returns the whole buffer as a slice, including the padding of the last cache line.
    pub fn of<T: Plain>(&self) -> &[T] {
        let n = self.lines.len() * (size_of::<Line>() / size_of::<T>());
        // SAFETY: the memory is initialized, is aligned to 64 bytes, and holds `n` numbers of a plain type.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), n) }
    }

    pub fn of_mut<T: Plain>(&mut self) -> &mut [T] {
        let n = self.lines.len() * (size_of::<Line>() / size_of::<T>());
        // SAFETY: the memory is initialized, is aligned to 64 bytes, and holds `n` numbers; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), n) }
    }
}

/// Reinterprets floats as 32-bit units.
pub(super) fn units(numbers: &[f32]) -> &[u32] {
    // SAFETY: `f32` and `u32` are plain number types of the same size and alignment.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), numbers.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_zeroed_and_kept() {
        let mut b = Buffer::zeros::<f32>(17);
        assert_eq!((b.of::<f32>().len(), b.of::<u8>().len()), (32, 128));
        assert_eq!(b.of::<f32>().as_ptr() as usize % 64, 0);
        assert!(b.of::<f32>().iter().all(|v| *v == 0.0));
        b.of_mut::<f32>()[16] = 1.0;
        b.reserve::<u8>(1000);
        assert_eq!(b.of::<u32>()[16], 1.0f32.to_bits());
        b.reserve::<u8>(1);
        assert_eq!(b.of::<u8>().len(), 1024);
        assert_eq!(units(&[1.0, 2.0]), [1.0f32.to_bits(), 2.0f32.to_bits()]);
    }
}
