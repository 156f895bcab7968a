//! 8-bit codes: quantization of vectors, and distances between the codes of points.

use rayon::prelude::*;

use crate::{
    Metric, Points,
    candidates::CodeDistances,
    distances::{CODE_STEP, Dispatch, Distances, Task},
};

/// Largest signed code. The smallest signed code is −127.
const LARGEST: f32 = 127.0;
/// Fraction of the vector components that are not clipped. Clipping the largest components makes the quantization of
/// the others finer.
const WITHIN: f64 = 0.9998;
const SAMPLE: usize = 2_000_000;

/// Quantizer of numbers to 8-bit codes. A code is a number times the scale, rounded and clipped to ±127.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Quantizer {
    pub(crate) scale: f32,
}

impl Quantizer {
    /// Creates a quantizer for many vectors. `numbers` is a sample of the components of the vectors.
    pub(crate) fn fit(numbers: Vec<f32>) -> Self {
        Quantizer { scale: scale(range(numbers, WITHIN)) }
    }

    /// Creates a quantizer for one vector, with the largest scale that clips nothing.
    pub(crate) fn of_query(query: &[f32]) -> Self {
        Quantizer { scale: scale(query.iter().fold(0.0, |most, v| v.abs().max(most))) }
    }

    /// Replaces `out` with the signed codes of a vector, padded with zeros to a multiple of 64.
    pub(crate) fn signed(self, vector: &[f32], out: &mut Vec<i8>) {
        out.clear();
        out.extend(vector.iter().map(|v| self.code(*v)));
        out.resize(stride(vector.len()), 0);
    }

    /// Returns the code of a number. Rounds like `f32::round`, but without a function call: adds a little less than ½
    /// to the absolute value, and cuts off the fraction.
    #[inline]
    pub(crate) fn code(self, value: f32) -> i8 {
        const HALF: f32 = 0.5f32.next_down();
        let scaled = (value * self.scale).clamp(-LARGEST, LARGEST);
        (scaled + HALF.copysign(scaled)) as i32 as i8
    }

    /// Returns the codes of `rows` vectors, biased by 128 and padded to whole rows. `give(row, out)` writes the vector
    /// of a row to `out`.
    pub(crate) fn encode(
        self,
        rows: usize,
        dim: usize,
        give: impl Fn(usize, &mut Vec<f32>) + Sync,
    ) -> AlignedBytes {
        let stride = stride(dim);
        let mut codes = AlignedBytes::filled(rows * stride, 128);
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

/// Returns a sample of a list of `count` numbers: the numbers at evenly spaced indices. `number` returns the number at
/// an index.
pub(crate) fn sample_evenly(count: usize, number: impl FnMut(usize) -> f32) -> Vec<f32> {
    // With an odd step, the sample covers all dimensions if their number is a power of two.
    let step = (count / SAMPLE).max(1) | 1;
    (0..count).step_by(step).map(number).collect()
}

/// Returns the quantile `within` of the absolute values of the numbers. If this quantile is 0, returns the largest
/// absolute value. Returns 0 if there are no numbers.
pub(crate) fn range(mut numbers: Vec<f32>, within: f64) -> f32 {
    if numbers.is_empty() {
        return 0.0;
    }
    numbers.iter_mut().for_each(|number| *number = number.abs());
    let at = ((numbers.len() as f64 * within) as usize).min(numbers.len() - 1);
    let (_, range, above) = numbers.select_nth_unstable_by(at, f32::total_cmp);
    // Most numbers may be 0, for example in sparse vectors.
    if *range > 0.0 { *range } else { above.iter().copied().fold(0.0, f32::max) }
}

/// Returns 128 times the sum of the signed codes of a row. This is the argument `bias` of `Distances::code_dot`.
pub(crate) fn bias(row: &[u8]) -> i32 {
    row.iter().map(|code| (i32::from(*code) - 128) << 7).sum()
}

pub(crate) fn stride(dim: usize) -> usize {
    dim.next_multiple_of(CODE_STEP)
}

/// Returns the scale that maps `range` to the largest code. Returns 1 if this scale is infinite, NaN or not positive.
pub(crate) fn scale(range: f32) -> f32 {
    let scale = LARGEST / range;
    if scale.is_finite() && scale > 0.0 { scale } else { 1.0 }
}

/// 8-bit codes of all points: one row per point, in the order in which the builder numbers the points.
pub(crate) struct Codes {
    pub(crate) metric: Metric,
    /// Bytes per row of codes.
    pub(crate) stride: usize,
    pub(crate) quantizer: Quantizer,
    pub(crate) bytes: AlignedBytes,
    pub(crate) norms: Vec<u32>,
    /// For each row of codes, 128 times the sum of its signed codes.
    biases: Vec<i32>,
    pub(crate) level: Dispatch,
}

impl Codes {
    pub(crate) fn new(points: &Points<'_>, order: &[u32], level: Dispatch) -> Self {
        let quantizer = Quantizer::fit(points.numbers());
        let stride = stride(points.dim);
        let bytes = quantizer.encode(order.len(), points.dim, |row, out| points.prepare(order[row], out));
        let square = |code: &u8| (i32::from(*code) - 128).pow(2) as u32;
        let norms = bytes.bytes().chunks_exact(stride).map(|row| row.iter().map(square).sum()).collect();
        let biases = bytes.bytes().chunks_exact(stride).map(bias).collect();
        Codes { metric: points.metric, stride, quantizer, bytes, norms, biases, level }
    }

    pub(crate) fn len(&self) -> usize {
        self.norms.len()
    }

    /// Returns the squared norms of the rows, for [`CodeDistances`]. The slice is empty if the metric is the inner
    /// product.
    pub(crate) fn distance_norms(&self) -> &[u32] {
        if self.metric == Metric::InnerProduct { &[] } else { &self.norms }
    }

    pub(crate) fn row(&self, row: u32) -> &[u8] {
        &self.bytes.bytes()[row as usize * self.stride..][..self.stride]
    }

    pub(crate) fn distances_from(&self, row: u32) -> CodeDistances<'_> {
        CodeDistances {
            codes: self.bytes.bytes(),
            norms: self.distance_norms(),
            row: self.row(row),
            bias: self.biases[row as usize],
            stride: self.stride,
        }
    }

    pub(crate) fn bias(&self, row: u32) -> i32 {
        self.biases[row as usize]
    }

    /// Returns the distance between two rows, as [`PairDistance`] defines it.
    pub(crate) fn distance(&self, a: u32, b: u32) -> f32 {
        let norms = (self.metric == Metric::L2).then(|| self.norms[a as usize] + self.norms[b as usize]);
        self.level.run(PairDistance { a: self.row(a), bias: self.bias(a), b: self.row(b), norms })
    }
}

/// Task that computes the distance between two rows of codes. The distance is never negative. If `norms` is given, the
/// task returns the squared Euclidean distance. Otherwise, it returns the largest possible inner product minus the
/// inner product of the rows.
pub(crate) struct PairDistance<'a> {
    pub(crate) a: &'a [u8],
    /// 128 times the sum of the signed codes of `a`.
    pub(crate) bias: i32,
    pub(crate) b: &'a [u8],
    /// Sum of the squared norms of `a` and `b` if the metric is L2, else `None`.
    pub(crate) norms: Option<u32>,
}

impl Task for PairDistance<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Distances>(self) -> f32 {
        let PairDistance { a, bias, b, norms } = self;
        let length = a.len().min(b.len());
        // SAFETY: both rows have the same length, a multiple of 64.
        let dot = i64::from(unsafe { S::code_dot(b.as_ptr(), a.as_ptr(), bias, length) });
        norms.map_or((length * 127 * 127) as i64 - dot, |norms| i64::from(norms) - 2 * dot) as f32
    }
}

const LINE: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; LINE]);

#[derive(Clone, Default)]
pub(crate) struct AlignedBytes {
    lines: Vec<Line>,
    length: usize,
}

impl AlignedBytes {
    pub(crate) fn filled(length: usize, with: u8) -> Self {
        AlignedBytes { lines: vec![Line([with; LINE]); length.div_ceil(LINE)], length }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the lines are contiguous and have at least `length` bytes; bytes need no alignment.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.length) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the lines are contiguous and have at least `length` bytes; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.length) }
    }
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
