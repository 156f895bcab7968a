//! 8-bit codes of the points, and distances between them. The builders use only these.

use crate::{
    Metric, Points,
    aligned::Aligned,
    distances::{Dispatch, Distances, Task},
    quantizer::{Quantizer, bias, stride},
    walk::CodeDistances,
};

/// Codes of all points, in the order of the builder.
pub(crate) struct Codes {
    pub(crate) metric: Metric,
    pub(crate) stride: usize,
    pub(crate) quantizer: Quantizer,
    pub(crate) bytes: Aligned,
    /// Squared norm of each row of codes.
    pub(crate) norms: Vec<u32>,
    biases: Vec<i32>,
    pub(crate) level: Dispatch,
}

impl Codes {
    /// Quantizes the points in the given order.
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

    /// Returns the squared norms if distances are compared, or an empty slice if inner products are compared.
    pub(crate) fn distance_norms(&self) -> &[u32] {
        if self.metric == Metric::InnerProduct { &[] } else { &self.norms }
    }

    pub(crate) fn row(&self, row: u32) -> &[u8] {
        &self.bytes.bytes()[row as usize * self.stride..][..self.stride]
    }

    /// Returns the distances of all rows to one row.
    pub(crate) fn distances_from(&self, row: u32) -> CodeDistances<'_> {
        CodeDistances {
            codes: self.bytes.bytes(),
            norms: self.distance_norms(),
            row: self.row(row),
            bias: self.biases[row as usize],
            stride: self.stride,
        }
    }

    /// Returns 128 times the sum of a row's numbers.
    pub(super) fn bias(&self, row: u32) -> i32 {
        self.biases[row as usize]
    }

    /// Returns the distance between two points. It is never negative; a smaller value means nearer.
    pub(crate) fn distance(&self, a: u32, b: u32) -> f32 {
        let norms = (self.metric == Metric::L2).then(|| self.norms[a as usize] + self.norms[b as usize]);
        self.level.run(PairDistance { a: self.row(a), bias: self.bias(a), b: self.row(b), norms })
    }
}

/// Distance of two rows of codes: the squared distance if `norms` is given. Otherwise the maximum possible product
/// minus their product, which is never negative.
pub(super) struct PairDistance<'a> {
    pub(super) a: &'a [u8],
    /// Bias of `a`.
    pub(super) bias: i32,
    pub(super) b: &'a [u8],
    /// Sum of both squared norms.
    pub(super) norms: Option<u32>,
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
