//! 4-bit codes of vectors (nibbles), for approximate inner products. They take half as much memory as 8-bit codes.
//!
//! Memory bandwidth limits the speed of a beam search, which needs only an approximate order of the candidates. If
//! nibbles are not accurate enough for the vectors, the graph uses 8-bit codes.

use rayon::prelude::*;

use crate::{
    Metric,
    candidates::{ApproximateScan, NodeDistance},
    codes::{AlignedBytes, Quantizer, range, sample_evenly, stride},
    distances::{CODE_STEP, Dispatch, Distances},
    exact::{highest, products},
    points::Points,
};

/// Fraction of the vector components that are not clipped. Clipping the largest components makes the quantization of
/// the others finer.
const WITHIN: f64 = 0.995;
const NEAREST: usize = 10;
/// Minimum fraction of the nearest vectors that must be found in the accuracy test.
const ENOUGH: f64 = 0.99;
/// The accuracy test ranks vectors by inner products of nibbles. A nearest vector counts as found if it is among this
/// number of top-ranked vectors.
const AMONG: usize = 20;
const TRIES: usize = 128;
const SAMPLE: usize = 4096;
/// Number of bytes per block of [`CODE_STEP`] nibbles. The lower four bits of the bytes hold the first half of the
/// nibbles, and the upper four bits hold the second half.
const HALF: usize = CODE_STEP / 2;

pub(crate) fn row_bytes(dim: usize) -> usize {
    stride(dim) / 2
}

/// Nibbles of all points: one row per point, in the order in which the builder numbers the points.
pub(crate) struct Nibbles {
    row: usize,
    bytes: AlignedBytes,
}

impl Nibbles {
    /// Quantizes the points in the given order. Returns `None` if nibbles are not accurate enough for a sample of the
    /// points. Also returns `None` if the metric is L2, because nibbles support only inner products.
    pub(crate) fn if_accurate(points: &Points<'_>, order: &[u32]) -> Option<Self> {
        let products = points.metric != Metric::L2;
        let give = |row: usize, out: &mut Vec<f32>| points.prepare(order[row], out);
        (products && Sample::of(points).is_accurate())
            .then(|| Nibbles::new(order.len(), points.dim, points.numbers(), give))
    }

    /// Quantizes vectors. A nibble `n` represents the number `(2n − 15) · step / 2`, with one `step` for all vectors.
    /// `numbers` is a sample of the vector components. `give(row, out)` writes the vector of a row to `out`.
    fn new(rows: usize, dim: usize, numbers: Vec<f32>, give: impl Fn(usize, &mut Vec<f32>) + Sync) -> Self {
        // Sixteen steps cover the range from −range to +range.
        let scale = 8.0 / range(numbers, WITHIN);
        let scale = if scale.is_finite() { scale } else { 0.0 };
        // The conversion to `u8` truncates the fraction and clips negative numbers to 0.
        let nibble = |value: f32| ((value * scale + 8.0) as u8).min(15);
        let row = row_bytes(dim);
        let mut bytes = AlignedBytes::filled(rows * row, 0);
        let each = bytes.bytes_mut().par_chunks_exact_mut(row).enumerate();
        each.for_each_init(Vec::new, |vector, (row, bytes)| {
            give(row, vector);
            for (at, value) in vector.iter().enumerate() {
                let byte = &mut bytes[at / CODE_STEP * HALF + at % HALF];
                *byte |= nibble(*value) << (4 * (at % CODE_STEP / HALF));
            }
        });
        Nibbles { row, bytes }
    }

    /// Quantizes vectors of `dim` components, which are stored one after the other.
    fn of_flat(vectors: &[f32], dim: usize) -> Self {
        let give = |row: usize, out: &mut Vec<f32>| vectors[row * dim..][..dim].clone_into(out);
        Nibbles::new(vectors.len() / dim, dim, sample_evenly(vectors.len(), |at| vectors[at]), give)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.bytes()
    }

    pub(crate) fn row(&self, row: u32) -> &[u8] {
        &self.bytes()[row as usize * self.row..][..self.row]
    }
}

struct Sample {
    dim: usize,
    vectors: Vec<f32>,
}

impl Sample {
    fn of(points: &Points<'_>) -> Self {
        let count = points.len().min(SAMPLE);
        let (mut vectors, mut vector) = (Vec::with_capacity(count * points.dim), Vec::new());
        for n in 0..count {
            points.prepare((n * points.len() / count) as u32, &mut vector);
            vectors.extend_from_slice(&vector);
        }
        Sample { dim: points.dim, vectors }
    }

    /// Returns whether nibbles are accurate enough for the sample. Each query ranks the vectors by nibbles. At least
    /// the fraction [`ENOUGH`] of the nearest vectors must be among the [`AMONG`] top-ranked vectors.
    fn is_accurate(&self) -> bool {
        let count = self.vectors.len() / self.dim;
        let nibbles = Nibbles::of_flat(&self.vectors, self.dim);
        let tries = count.min(TRIES);
        let found = (0..tries).into_par_iter().map(|n| {
            let at = n * count / tries;
            let query = &self.vectors[at * self.dim..][..self.dim];
            let mut exact = Vec::new();
            products(query, &self.vectors, self.dim, &mut exact);
            let mut signed = Vec::new();
            Quantizer::of_query(query).signed(query, &mut signed);
            let distances = NibbleDistances::new(nibbles.bytes(), &signed);
            // Keep one more candidate, because each query is its own nearest vector.
            let (keep, mut among) = (AMONG + 1, Vec::new());
            let scan =
                ApproximateScan { distances, nodes: count, filter: None, keep, candidates: &mut among };
            Dispatch::best().run(scan);
            let nearest = highest(&exact, at, NEAREST, f32::NEG_INFINITY);
            nearest.iter().filter(|node| among.iter().any(|c| c.node == **node)).count()
        });
        let found: usize = found.sum();
        found as f64 >= ENOUGH * (tries * NEAREST.min(count.saturating_sub(1))) as f64
    }
}

/// Distances between a query and the nodes of a graph, computed from nibbles.
#[derive(Clone, Copy)]
pub(crate) struct NibbleDistances<'a> {
    nibbles: &'a [u8],
    /// 8-bit codes of the query.
    signed: &'a [i8],
    /// 15 times the sum of the codes in `signed`.
    bias: i32,
}

impl<'a> NibbleDistances<'a> {
    pub(crate) fn new(nibbles: &'a [u8], signed: &'a [i8]) -> Self {
        NibbleDistances { nibbles, signed, bias: 15 * signed.iter().map(|s| i32::from(*s)).sum::<i32>() }
    }
}

impl NodeDistance for NibbleDistances<'_> {
    #[inline(always)]
    unsafe fn distance<S: Distances>(&self, node: u32) -> f32 {
        let bytes = self.signed.len() / 2;
        // SAFETY: each node has a row of nibbles.
        let dot = unsafe {
            let row = self.nibbles.as_ptr().add(node as usize * bytes);
            S::nibble_dot(row, self.signed.as_ptr(), self.signed.len())
        };
        (self.bias - 2 * dot) as f32
    }

    #[inline(always)]
    fn prefetch<S: Distances>(&self, node: u32) {
        let bytes = self.signed.len() / 2;
        S::prefetch_all(self.nibbles.as_ptr().wrapping_add(node as usize * bytes), bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn are_fine_enough(vectors: &[Vec<f32>]) -> bool {
        let mut points = Points::new(Metric::Cosine, vectors[0].len()).unwrap();
        for (row, vector) in vectors.iter().enumerate() {
            points.push(row as u32, vector).unwrap();
        }
        let order: Vec<u32> = (0..points.len() as u32).collect();
        Nibbles::if_accurate(&points, &order).is_some()
    }

    /// Returns a generator of pseudo-random numbers with an approximately normal distribution.
    fn bell(seed: u64) -> impl FnMut() -> f32 {
        let mut state = seed;
        move || {
            (0..12).fold(-6.0, |sum, _| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                sum + (state >> 40) as f32 / (1 << 24) as f32
            })
        }
    }

    #[test]
    fn nibbles_are_rounded_numbers() {
        for dim in [1, 32, 64, 100, 384] {
            let mut number = bell(dim as u64);
            let vectors: Vec<f32> = (0..50 * dim).map(|_| number()).collect();
            let nibbles = Nibbles::of_flat(&vectors, dim);
            let step = range(vectors.clone(), WITHIN) / 8.0;
            for (row, vector) in vectors.chunks_exact(dim).enumerate() {
                let row = nibbles.row(row as u32);
                for (at, value) in vector.iter().enumerate() {
                    let nibble = row[at / 64 * 32 + at % 32] >> (at % 64 / 32 * 4) & 15;
                    let back = (2.0 * f32::from(nibble) - 15.0) * step / 2.0;
                    assert!(
                        (back - value.clamp(-7.5 * step, 7.5 * step)).abs() <= 0.51 * step,
                        "{back} {value}"
                    );
                }
            }
        }
        assert!(Nibbles::of_flat(&[0.0; 8], 4).bytes().iter().all(|byte| [0, 0x88, 8].contains(byte)));
    }

    #[test]
    fn nibbles_are_used_only_if_they_are_accurate_enough() {
        let mut number = bell(3);
        let even: Vec<Vec<f32>> = (0..2_000).map(|_| (0..384).map(|_| number()).collect()).collect();
        assert!(are_fine_enough(&even));
        // One component in eight is much larger than the others, so only two steps remain for the others.
        let sizes: Vec<f32> = (0..384).map(|at| if at % 8 == 0 { 10.0 } else { 0.3 }).collect();
        let uneven = |_| sizes.iter().map(|size| size * size * number()).collect();
        assert!(!are_fine_enough(&(0..2_000).map(uneven).collect::<Vec<_>>()));
    }
}
