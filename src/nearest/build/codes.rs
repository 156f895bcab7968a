//! Points as a builder sees them: rows of codes, and how far apart two are.

use crate::{
    Level, Metric, Points,
    aligned::Aligned,
    quantizer::{Quantizer, stride},
    simd::{Proven, Simd, Task},
};

/// The codes of all points, in the order in which the builder has them.
pub(crate) struct Codes {
    pub(crate) metric: Metric,
    pub(crate) stride: usize,
    pub(crate) quantizer: Quantizer,
    pub(crate) bytes: Aligned,
    /// The squared length of each row of codes.
    pub(crate) norms: Vec<u32>,
    pub(crate) level: Proven,
}

impl Codes {
    /// Those of some points, in their order.
    pub(crate) fn new(points: &Points<'_>, order: &[u32], level: Level) -> Self {
        let quantizer = Quantizer::fit(points.numbers());
        let stride = stride(points.dim);
        let bytes = quantizer.encode(order.len(), points.dim, |row, out| points.prepare(order[row], out));
        let square = |code: &u8| (i32::from(*code) - 128).pow(2) as u32;
        let norms = bytes.bytes().chunks_exact(stride).map(|row| row.iter().map(square).sum()).collect();
        Codes { metric: points.metric, stride, quantizer, bytes, norms, level: level.proven() }
    }

    pub(crate) fn len(&self) -> usize {
        self.norms.len()
    }

    /// The squared lengths where distances are compared, nothing where products are.
    pub(crate) fn distance_norms(&self) -> &[u32] {
        if self.metric == Metric::InnerProduct { &[] } else { &self.norms }
    }

    pub(crate) fn row(&self, row: u32) -> &[u8] {
        &self.bytes.bytes()[row as usize * self.stride..][..self.stride]
    }

    /// How far apart two points are: never negative, and smaller is nearer.
    pub(crate) fn apart(&self, a: u32, b: u32) -> f32 {
        self.level.run(Apart { a: self.row(a), b: self.row(b), norms: self.norms_for(a, b) })
    }

    /// Squared lengths, where the metric needs them.
    fn norms_for(&self, a: u32, b: u32) -> Option<u32> {
        (self.metric == Metric::InnerProduct).then(|| self.norms[a as usize] + self.norms[b as usize])
    }
}

/// How far apart two rows of codes are. For vectors of length 1 the squared distance orders as the cosine does; for the
/// inner product it must be worked out of the distance, with both squared lengths.
pub(super) struct Apart<'a> {
    pub(super) a: &'a [u8],
    pub(super) b: &'a [u8],
    pub(super) norms: Option<u32>,
}

impl Task for Apart<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: Simd>(self) -> f32 {
        // SAFETY: rows of codes are multiples of 64 long, and these have one length.
        let squared =
            unsafe { S::code_distance(self.a.as_ptr(), self.b.as_ptr(), self.a.len().min(self.b.len())) };
        match self.norms {
            None => squared as f32,
            Some(norms) => {
                // The greatest product that codes can have, so that nothing is negative.
                let greatest = (self.a.len() * 127 * 127) as i64;
                (greatest - (i64::from(norms) - i64::from(squared)) / 2) as f32
            }
        }
    }
}
