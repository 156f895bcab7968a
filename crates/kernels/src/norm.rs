//! Layer norm and RMS norm, also of a residual sum.

use crate::{
    network::{Norm, NormKind, Shape},
    pack::GRAIN,
    simd::{Kernel, Simd},
};

/// Returns the parameters of a norm, padded with zeros to a multiple of [`GRAIN`].
pub(super) fn padded_norm(norm: &Norm, shape: &Shape) -> PaddedNorm {
    let fill = |numbers: &[f32]| {
        let mut numbers = numbers.to_vec();
        numbers.resize(numbers.len().next_multiple_of(GRAIN), 0.0);
        numbers
    };
    PaddedNorm {
        width: norm.weight.len(),
        weight: fill(&norm.weight),
        bias: fill(&norm.bias),
        epsilon: shape.norm_epsilon,
        kind: shape.norm_kind,
    }
}

/// Parameters of a norm, padded with zeros beyond the true width.
#[derive(Clone)]
pub(super) struct PaddedNorm {
    /// Width without padding.
    pub width: usize,
    pub weight: Vec<f32>,
    pub bias: Vec<f32>,
    pub epsilon: f32,
    pub kind: NormKind,
}

/// Kernel that computes `x += y` and `x = norm(x)`, row by row.
pub(super) struct AddNorm<'a> {
    /// Rows to normalize.
    pub x: &'a mut [f32],
    /// Rows to add to `x` before the normalization, if any.
    pub y: Option<&'a [f32]>,
    /// Rows for the result of the norm; `None` to write it to `x`.
    pub to: Option<&'a mut [f32]>,
    /// Row stride of `x`, `y` and `to`; a multiple of the number of lanes.
    pub stride: usize,
    pub norm: &'a PaddedNorm,
}

impl AddNorm<'_> {
    /// Runs the kernel.
    ///
    /// # Safety
    ///
    /// The processor must have the features of `S`.
    pub unsafe fn run<S: Simd>(self) {
        assert!(self.stride.is_multiple_of(S::LANES) && self.x.len().is_multiple_of(self.stride));
        assert!(self.y.is_none_or(|y| y.len() >= self.x.len()));
        assert!(self.to.as_ref().is_none_or(|to| to.len() >= self.x.len()));
        assert!(self.norm.width <= self.stride);
        assert!(self.norm.weight.len() >= self.stride && self.norm.bias.len() >= self.stride);
        // SAFETY: the caller guarantees the processor features; the asserts check the lengths.
        unsafe { S::enter(self) }
    }
}

impl<S: Simd> Kernel<S> for AddNorm<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        let AddNorm { x, y, to, stride, norm } = self;
        let to = to.map(|to| to.as_mut_ptr());
        let (whole, width) = (norm.width / S::LANES * S::LANES, norm.width as f32);
        for row in 0..x.len() / stride {
            // SAFETY: `run` has checked that the rows and the norm's parameters have `stride` numbers.
            unsafe {
                let row_x = x.as_mut_ptr().add(row * stride);
                let row_to = to.map_or(row_x, |to| to.add(row * stride));
                let mut sum = S::splat(0.0);
                for i in (0..stride).step_by(S::LANES) {
                    let mut v = S::load(row_x.add(i));
                    if let Some(y) = y {
                        v = S::add(v, S::load(y.as_ptr().add(row * stride + i)));
                        S::store(row_x.add(i), v);
                    }
                    sum = S::add(sum, v);
                }
                let mean = match norm.kind {
                    NormKind::Layer => S::splat(S::total(sum) / width),
                    NormKind::Rms => S::splat(0.0),
                };
                let mut squares = S::splat(0.0);
                for i in (0..stride).step_by(S::LANES) {
                    let mut d = S::sub(S::load(row_x.add(i)), mean);
                    if i >= whole {
                        d = S::first(norm.width.saturating_sub(i), d, S::splat(0.0));
                    }
                    squares = S::fma(d, d, squares);
                }
                let factor = S::splat(1.0 / (S::total(squares) / width + norm.epsilon).sqrt());
                for i in (0..stride).step_by(S::LANES) {
                    let d = S::mul(S::sub(S::load(row_x.add(i)), mean), factor);
                    let (w, b) = (S::load(norm.weight.as_ptr().add(i)), S::load(norm.bias.as_ptr().add(i)));
                    S::store(row_to.add(i), S::fma(d, w, b));
                }
            }
        }
    }
}
