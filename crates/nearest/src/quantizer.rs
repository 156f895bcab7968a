//! Quantization of vectors to 8-bit codes.

use rayon::prelude::*;

use crate::{aligned::Aligned, distances::CODE_STEP};

/// Largest code. The smallest is its negative.
const LARGEST: f32 = 127.0;
/// Fraction of all numbers within the range of the codes. The others are clipped, which makes the codes of the rest
/// finer.
const WITHIN: f64 = 0.9998;
/// Maximum number of numbers from which the range is determined.
const SAMPLE: usize = 2_000_000;

/// Scale of the codes. A code is a number times the scale, rounded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Quantizer {
    pub(crate) scale: f32,
}

impl Quantizer {
    /// Fits the scale to a sample of the numbers of all vectors.
    pub(crate) fn fit(numbers: Vec<f32>) -> Self {
        Quantizer { scale: scale(range(numbers, WITHIN)) }
    }

    /// Returns the largest scale for one vector that clips nothing.
    pub(crate) fn of_query(query: &[f32]) -> Self {
        Quantizer { scale: scale(query.iter().fold(0.0, |most, v| v.abs().max(most))) }
    }

    /// Writes the codes of a vector as signed numbers to `out`, padded with zeros.
    pub(crate) fn signed(self, vector: &[f32], out: &mut Vec<i8>) {
        out.clear();
        out.extend(vector.iter().map(|v| self.code(*v)));
        out.resize(stride(vector.len()), 0);
    }

    /// Returns the code of a number. It is rounded like `f32::round`, but without a function call: a little less than
    /// ½ is added, and the fraction is cut off.
    #[inline]
    pub(crate) fn code(self, value: f32) -> i8 {
        const HALF: f32 = 0.5f32.next_down();
        let scaled = (value * self.scale).clamp(-LARGEST, LARGEST);
        (scaled + HALF.copysign(scaled)) as i32 as i8
    }

    /// Returns the codes of `rows` vectors. `give` writes the vector of a row.
    pub(crate) fn encode(
        self,
        rows: usize,
        dim: usize,
        give: impl Fn(usize, &mut Vec<f32>) + Sync,
    ) -> Aligned {
        let stride = stride(dim);
        let mut codes = Aligned::filled(rows * stride, 128);
        let each = codes.bytes_mut().par_chunks_exact_mut(stride).enumerate();
        each.for_each_init(Vec::new, |vector, (row, codes)| {
            give(row, vector);
            for (code, value) in codes.iter_mut().zip(vector) {
                *code = self.code(*value) as u8 ^ 128;
            }
        });
        codes
    }
}

/// Takes a sample of `count` numbers, spread evenly.
pub(crate) fn spread(count: usize, number: impl FnMut(usize) -> f32) -> Vec<f32> {
    // With an odd step, the sample covers all dimensions if their number is a power of two.
    let step = (count / SAMPLE).max(1) | 1;
    (0..count).step_by(step).map(number).collect()
}

/// Returns the absolute value that the fraction `within` of the numbers does not exceed. Returns 0 if all numbers are
/// 0.
pub(crate) fn range(mut numbers: Vec<f32>, within: f64) -> f32 {
    if numbers.is_empty() {
        return 0.0;
    }
    numbers.iter_mut().for_each(|number| *number = number.abs());
    let at = ((numbers.len() as f64 * within) as usize).min(numbers.len() - 1);
    let (_, range, above) = numbers.select_nth_unstable_by(at, f32::total_cmp);
    // If most numbers are 0, the others determine the range.
    if *range > 0.0 { *range } else { above.iter().copied().fold(0.0, f32::max) }
}

/// Returns 128 times the sum of the numbers in a row of codes, for
/// [`Distances::code_dot`](crate::distances::Distances).
pub(crate) fn bias(row: &[u8]) -> i32 {
    row.iter().map(|code| (i32::from(*code) - 128) << 7).sum()
}

/// Returns the number of bytes in a row of codes.
pub(crate) fn stride(dim: usize) -> usize {
    dim.next_multiple_of(CODE_STEP)
}

/// Returns the scale at which `range` gets the largest code.
pub(crate) fn scale(range: f32) -> f32 {
    let scale = LARGEST / range;
    if scale.is_finite() && scale > 0.0 { scale } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_rounded_numbers() {
        let vectors: Vec<f32> = (0..1000).map(|i| (i as f32 / 500.0) - 1.0).collect();
        let quantizer = Quantizer::fit(vectors.clone());
        let codes = quantizer.encode(100, 10, |row, out| vectors[row * 10..][..10].clone_into(out));
        assert_eq!(codes.bytes().len(), 100 * 64);
        for (row, vector) in vectors.chunks(10).enumerate() {
            let codes = &codes.bytes()[row * 64..][..64];
            for (code, value) in codes.iter().zip(vector) {
                let back = f32::from((*code ^ 128) as i8) / quantizer.scale;
                assert!((back - value).abs() <= 0.51 / quantizer.scale, "{back} {value}");
            }
            assert!(codes[10..].iter().all(|c| *c == 128));
        }
    }

    #[test]
    fn codes_are_rounded_like_f32_round() {
        let one = Quantizer { scale: 1.0 };
        let halves = (-256..=256).map(|n| n as f32 / 2.0);
        let edges = halves.flat_map(|half| [half.next_down(), half, half.next_up()]);
        for value in edges.chain([f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 0.3, -0.3]) {
            assert_eq!(one.code(value), value.round().clamp(-LARGEST, LARGEST) as i8, "{value}");
        }
    }

    #[test]
    fn unusual_ranges_have_a_valid_scale() {
        for vectors in [&[0.0, 0.0][..], &[], &[f32::MAX, 0.0], &[1e-40, 0.0]] {
            let scale = Quantizer::fit(vectors.to_vec()).scale;
            assert!(scale.is_finite() && scale > 0.0, "{vectors:?}: {scale}");
        }
        let mut few = vec![0.0f32; 100_000];
        few[5] = 2.0;
        assert_eq!(Quantizer::fit(few).code(2.0), 127);
    }
}
