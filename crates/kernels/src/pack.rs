//! Weights in the order in which the kernels read them, in the numbers in which they multiply.

use super::{
    buffer::Buffer,
    simd::{SIDE, Simd, Squared},
};
use turnwise_core::{Error, Result};

use crate::Precision;

/// Inputs and outputs are filled up with zeros to a multiple of this: the lanes of the widest vectors, and the numbers
/// of a whole chain of bytes.
pub(super) const GRAIN: usize = 16;

/// The longest that a row of 16-bit codes may be, as a vector: its square is under 2³¹, so that by Cauchy and Schwarz
/// no sum of products of two such rows, nor any part of one, leaves 32 bits.
pub(super) const LONGEST: f64 = 46_340.0;

/// The factor that makes the longest allowed 16-bit codes of a row with this length and this largest number.
/// Rounding can lengthen a row of `n` codes by `√n / 2`.
pub(super) fn short_factor(length: f64, largest: f64, n: usize) -> f64 {
    // 0.1% are for the length, which is summed in 32 bits.
    let room = (LONGEST - (n as f64).sqrt() / 2.0) * 0.999;
    if largest > 0.0 { (room / length).min(32_767.0 / largest) } else { 0.0 }
}

/// The weights of one linear layer.
pub(super) struct Packed {
    /// In which numbers.
    pub precision: Precision,
    /// Inputs, filled up.
    pub inputs: usize,
    /// Outputs, filled up.
    pub outputs: usize,
    /// Columns of a panel; the last panel may have fewer.
    pub panel: usize,
    /// Units of a column.
    pub depth: usize,
    /// Of which squares, where whole squares are multiplied.
    pub squared: Option<Squared>,
    /// Panels one after the other, each `[unit of inputs][column]`; of squares as [`Squares`](super::simd::Squares) has
    /// them, the last panel filled up.
    pub units: Buffer,
    /// What one step of a column's code stands for.
    pub scales: Vec<f32>,
    /// The sums of the weights of the columns.
    pub sums: Vec<f32>,
    /// A summand a column.
    pub bias: Vec<f32>,
}

impl Packed {
    /// How many numbers a unit of 32 bits holds.
    pub fn numbers_in_unit(precision: Precision) -> usize {
        match precision {
            Precision::F32 => 1,
            Precision::Bf16 | Precision::F16 | Precision::Int16 => 2,
            Precision::Int8 => 4,
        }
    }

    /// Of which squares products with weights of this precision are made, if they are.
    pub fn squared<S: Simd>(precision: Precision) -> Option<Squared> {
        let squared = match precision {
            Precision::F32 => Squared::Thirds,
            Precision::Bf16 => Squared::Bf16,
            Precision::Int8 => Squared::Bytes,
            Precision::Int16 | Precision::F16 => return None,
        };
        S::SQUARES.then_some(squared)
    }

    /// Packs `outputs` rows of `inputs` weights for the vectors of `S`.
    pub fn new<S: Simd>(
        precision: Precision,
        (inputs, outputs): (usize, usize),
        weight: &[f32],
        bias: &[f32],
    ) -> Result<Self> {
        assert!(weight.len() == inputs * outputs && bias.len() == outputs, "weights of another shape");
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
                        packed.put_in(plane, output, rest.iter_mut().map(take_a_third));
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
                Precision::F16 => {
                    return Err(Error::input("the CPU does not compute in f16").with_hint(
                        "take `bf16`, which is as small, or `int16`, which is as small and faster",
                    ));
                }
            }
        }
        Ok(packed)
    }

    /// How many panels.
    pub fn panels(&self) -> usize {
        self.outputs.div_ceil(self.panel)
    }

    /// Writes the numbers of one output to their places.
    fn put<T: super::buffer::Plain>(&mut self, output: usize, numbers: impl Iterator<Item = T>) {
        self.put_in(0, output, numbers);
    }

    /// The same for one of the squares that stand for a number each.
    fn put_in<T: super::buffer::Plain>(
        &mut self,
        plane: usize,
        output: usize,
        numbers: impl Iterator<Item = T>,
    ) {
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

/// The number rounded to bf16, which is taken off it.
pub(super) fn take_a_third(number: &mut f32) -> u16 {
    let third = half::bf16::from_f32(*number);
    *number -= third.to_f32();
    third.to_bits()
}

/// A row of weights as whole numbers.
struct Codes {
    codes: Vec<i16>,
    /// What 1 stands for.
    scale: f32,
}

/// As 16-bit numbers whose length as a vector is at most [`LONGEST`].
fn short_codes(row: &[f32]) -> Codes {
    let square = |x: f64| x * x;
    let length = row.iter().map(|w| square(f64::from(*w))).sum::<f64>().sqrt();
    let largest = row.iter().fold(0.0f64, |m, w| m.max(f64::from(w.abs())));
    let factor = short_factor(length, largest, row.len());
    let codes: Vec<i16> = row.iter().map(|w| (f64::from(*w) * factor).round() as i16).collect();
    assert!(codes.iter().map(|c| square(f64::from(*c))).sum::<f64>() <= square(LONGEST));
    Codes { codes, scale: if factor > 0.0 { (1.0 / factor) as f32 } else { 0.0 } }
}

/// As 8-bit numbers. Where products are summed in 16 bits, `chain` groups of four at a time, the codes are kept so
/// small that no such sum saturates, whatever the activations (from 0 to `most`).
fn byte_codes(row: &[f32], chain: usize, most: f64) -> Codes {
    let largest = row.iter().fold(0.0f64, |m, w| m.max(f64::from(w.abs())));
    if largest == 0.0 {
        return Codes { codes: vec![0; row.len()], scale: 0.0 };
    }
    let mut factor = 127.0 / largest;
    let code = |w: f32, factor: f64| (f64::from(w) * factor).round();
    if chain > 1 {
        let room = (f64::from(i16::MAX) / most).floor();
        // A 16-bit lane sums the products of one half of each group: its positive and its negative codes, each by
        // themselves, have to fit.
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
        factor = factor.min(factor * room / heaviest(factor));
        while heaviest(factor) > room {
            factor *= 0.995;
        }
    }
    let codes = row.iter().map(|w| code(*w, factor) as i16).collect();
    Codes { codes, scale: (1.0 / factor) as f32 }
}
