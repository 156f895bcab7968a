//! Half a byte a number: rough products, for which half of the memory is read.
//!
//! A walk waits for memory. What it needs is the order of candidates, nearly; the best of them are scored by the vectors
//! themselves. Where half a byte is too rough for that, the graph has no nibbles and is walked by its codes.

use rayon::prelude::*;

use crate::{
    Metric,
    aligned::Aligned,
    distances::{CODE_STEP, Dispatch, Distances},
    points::Points,
    products::products,
    quantizer::{Quantizer, range, spread, stride},
    skim::Skim,
    walk::Near,
};

/// What of all numbers lies within the range of the nibbles.
const WITHIN: f64 = 0.995;
/// Nibbles are fine enough if of the nearest so many
const NEAREST: usize = 10;
/// this part
const ENOUGH: f64 = 0.99;
/// is among the first so many by nibbles,
const AMONG: usize = 20;
/// for so many
const TRIES: usize = 128;
/// of so many points.
const SAMPLE: usize = 4096;
/// Half of a block's numbers lie in the lower halves of its bytes, the others in the upper ones.
const HALF: usize = CODE_STEP / 2;

/// The bytes of a row.
pub(crate) fn row_bytes(dim: usize) -> usize {
    stride(dim) / 2
}

/// The nibbles of all points.
pub(crate) struct Nibbles {
    row: usize,
    bytes: Aligned,
}

impl Nibbles {
    /// Of points, where they are fine enough: tried with a sample of them. A distance, unlike a product, has no use for them.
    pub(crate) fn fine_enough(points: &Points<'_>, order: &[u32]) -> Option<Self> {
        let products = points.metric != Metric::L2;
        let give = |row: usize, out: &mut Vec<f32>| points.prepare(order[row], out);
        (products && Sample::of(points).shows_them_fine())
            .then(|| Nibbles::new(order.len(), points.dim, points.numbers(), give))
    }

    /// Number `x` is `(2n − 15) · step / 2` for its nibble `n`.
    fn new(rows: usize, dim: usize, numbers: Vec<f32>, give: impl Fn(usize, &mut Vec<f32>) + Sync) -> Self {
        // Sixteen steps, as wide as the range.
        let scale = 8.0 / range(numbers, WITHIN);
        let scale = if scale.is_finite() { scale } else { 0.0 };
        // A number below 0 becomes 0, and others lose what is behind the point.
        let nibble = |value: f32| ((value * scale + 8.0) as u8).min(15);
        let row = row_bytes(dim);
        let mut bytes = Aligned::filled(rows * row, 0);
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

    /// Those of vectors that lie one after the other.
    fn of_flat(vectors: &[f32], dim: usize) -> Self {
        let give = |row: usize, out: &mut Vec<f32>| vectors[row * dim..][..dim].clone_into(out);
        Nibbles::new(vectors.len() / dim, dim, spread(vectors.len(), |at| vectors[at]), give)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.bytes()
    }

    pub(crate) fn row(&self, row: u32) -> &[u8] {
        &self.bytes()[row as usize * self.row..][..self.row]
    }
}

/// Points spread evenly over all.
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

    /// Whether those that are nearest by the vectors are among the first by the nibbles.
    fn shows_them_fine(&self) -> bool {
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
            let near = Rough::new(nibbles.bytes(), &signed);
            // One more, as each is nearest to itself.
            let (keep, mut among) = (AMONG + 1, Vec::new());
            let skim = Skim { near, nodes: count, allowed: None, keep, candidates: &mut among };
            Dispatch::best().run(skim);
            let nearest = nearest_but(at, &exact);
            nearest.iter().filter(|node| among.iter().any(|c| c.node as usize == **node)).count()
        });
        let found: usize = found.sum();
        found as f64 >= ENOUGH * (tries * NEAREST.min(count.saturating_sub(1))) as f64
    }
}

/// The places of the greatest scores, but for one's own.
fn nearest_but(own: usize, scores: &[f32]) -> Vec<usize> {
    let mut all: Vec<usize> = (0..scores.len()).filter(|node| *node != own).collect();
    if all.len() > NEAREST {
        all.select_nth_unstable_by(NEAREST, |a, b| scores[*b].total_cmp(&scores[*a]));
        all.truncate(NEAREST);
    }
    all
}

/// How far nodes are from a row of codes, roughly.
#[derive(Clone, Copy)]
pub(crate) struct Rough<'a> {
    pub(crate) nibbles: &'a [u8],
    pub(crate) signed: &'a [i8],
    /// 15 times the sum of the signed ones.
    pub(crate) bias: i32,
}

impl<'a> Rough<'a> {
    pub(crate) fn new(nibbles: &'a [u8], signed: &'a [i8]) -> Self {
        Rough { nibbles, signed, bias: 15 * signed.iter().map(|s| i32::from(*s)).sum::<i32>() }
    }
}

impl Near for Rough<'_> {
    #[inline(always)]
    unsafe fn apart<S: Distances>(&self, node: u32) -> f32 {
        let bytes = self.signed.len() / 2;
        // SAFETY: there is a row of nibbles for each node.
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
        Nibbles::fine_enough(&points, &order).is_some()
    }

    /// Random numbers with a bell's shape, the same every time.
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
    fn nibbles_are_numbers_rounded() {
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
    fn they_are_kept_where_they_are_fine_enough() {
        let mut number = bell(3);
        let even: Vec<Vec<f32>> = (0..2_000).map(|_| (0..384).map(|_| number()).collect()).collect();
        assert!(are_fine_enough(&even));
        // A few numbers far greater than all others leave these two steps.
        let sizes: Vec<f32> = (0..384).map(|at| if at % 8 == 0 { 10.0 } else { 0.3 }).collect();
        let uneven = |_| sizes.iter().map(|size| size * size * number()).collect();
        assert!(!are_fine_enough(&(0..2_000).map(uneven).collect::<Vec<_>>()));
    }
}
