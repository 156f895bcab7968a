//! Training operations, except matrix products: attention, activation functions, layer norm (each forward and
//! backward), dropout, and AdamW.
//!
//! Every kernel is a plain loop that is compiled for each SIMD level and vectorized by the compiler. A sum always
//! consists of 16 partial sums, and multiplications are never fused with additions (no FMA). So results are identical
//! on every processor, and do not depend on how rows are distributed among threads.

use std::sync::OnceLock;

use crate::{
    precision,
    simd::{Kernel, Simd, SimdChoice, SimdLevel, at_level},
};

pub use activation::{activate, activate_backward};
pub use attention::{Attended, attend, attend_backward};
pub use norm::{AddNorm, add_norm, add_norm_backward};

mod activation;
mod attention;
mod norm;
#[cfg(test)]
mod tests;

/// Returns the SIMD level for training: the default level of inference.
fn level() -> SimdLevel {
    static LEVEL: OnceLock<SimdLevel> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        SimdChoice::Auto.requested().ok().flatten().unwrap_or_else(|| precision::best_verified().0)
    })
}

/// Kernel that runs a loop, compiled with the processor features of a SIMD level.
struct Loop<F>(F);

impl<S: Simd, F: FnOnce()> Kernel<S> for Loop<F> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        (self.0)();
    }
}

/// Runs a loop at the SIMD level for training. The closure and its callees must be `#[inline(always)]`: otherwise they
/// are not compiled for this level.
#[inline(always)]
fn vectorized(body: impl FnOnce()) {
    fn enter<S: Simd>(body: impl FnOnce()) {
        // SAFETY: the processor supports the level, and the loop is safe code.
        unsafe { <S::Base as Simd>::enter(Loop(body)) }
    }
    let level = level();
    at_level!(level, enter::<_>(body))
}

/// Number of partial sums (lanes) of a sum.
const LANES: usize = 16;

/// Returns the sum of `f(i)` for `i` below `length`, computed from [`LANES`] partial sums.
#[inline(always)]
fn sum(length: usize, f: impl Fn(usize) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let whole = length / LANES * LANES;
    let mut start = 0;
    while start < whole {
        for lane in 0..LANES {
            lanes[lane] += f(start + lane);
        }
        start += LANES;
    }
    for i in whole..length {
        lanes[i - whole] += f(i);
    }
    // Repeatedly adds the upper half of the lanes to the lower half, which is the order of a vector reduction.
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// Hyperparameters of an AdamW step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// Learning rate.
    pub rate: f32,
    /// Decay rate of the first moment, the moving average of the gradients.
    pub beta1: f32,
    /// Decay rate of the second moment, the moving average of the squared gradients.
    pub beta2: f32,
    /// Term added to the denominator for numerical stability.
    pub epsilon: f32,
    /// Weight decay coefficient. Each step reduces every weight by the fraction `rate * decay`.
    pub decay: f32,
    /// Step number, starting at 1. It is used for bias correction.
    pub step: u64,
    /// Factor by which the gradients are multiplied: 1, or less if gradient clipping is active.
    pub scale: f32,
}

/// Applies one AdamW step to the weights, the first moment (`mean`) and the second moment (`square`). All slices must
/// have the same length.
pub fn adamw(with: &AdamW, weights: &mut [f32], gradient: &[f32], mean: &mut [f32], square: &mut [f32]) {
    let n = weights.len();
    assert!(gradient.len() == n && mean.len() == n && square.len() == n);
    let AdamW { rate, beta1, beta2, epsilon, decay, step, scale } = *with;
    let step = i32::try_from(step).unwrap_or(i32::MAX);
    let correct = |beta: f32| 1.0 - f64::from(beta).powi(step);
    let rate1 = (f64::from(rate) / correct(beta1)) as f32;
    let root2 = correct(beta2).sqrt() as f32;
    let kept = 1.0 - rate * decay;
    vectorized(
        #[inline(always)]
        || {
            for i in 0..n {
                let g = gradient[i] * scale;
                mean[i] = beta1 * mean[i] + (1.0 - beta1) * g;
                square[i] = beta2 * square[i] + (1.0 - beta2) * g * g;
                weights[i] = weights[i] * kept - rate1 * mean[i] / (square[i].sqrt() / root2 + epsilon);
            }
        },
    );
}

/// Dropout: sets elements to 0 with a given probability, and scales the other elements to keep the expected value. The
/// mask depends only on a key and an index, so the backward pass uses the same mask as the forward pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    key: [u32; 2],
    /// An element is dropped if its random bits are below this threshold.
    threshold: u32,
    scale: f32,
}

impl Dropout {
    /// Creates a dropout operation that sets elements to 0 with the given probability, clamped to the range from 0 to
    /// 0.999. The key is the random seed of the mask.
    pub fn new(probability: f32, key: u64) -> Self {
        let probability = f64::from(probability.clamp(0.0, 0.999));
        Dropout {
            key: [key as u32, (key >> 32) as u32],
            threshold: (probability * 4_294_967_296.0) as u32,
            scale: (1.0 / (1.0 - probability)) as f32,
        }
    }

    /// Returns a dropout operation with the same probability and a mask for the given group, for example for one
    /// sequence of a batch. The masks of different groups are independent.
    #[must_use]
    pub fn of(self, group: u32) -> Self {
        Dropout {
            key: [self.key[0] ^ mix(group.wrapping_add(0x9e37_79b9)), self.key[1].wrapping_add(group)],
            ..self
        }
    }

    /// Returns the key, the threshold and the scale, for code that computes [`Dropout::factor`] on another device.
    pub fn parts(&self) -> ([u32; 2], u32, f32) {
        (self.key, self.threshold, self.scale)
    }

    /// Returns the factor by which the element at an index is multiplied; 0 if the element is dropped.
    #[inline(always)]
    pub fn factor(&self, index: u32) -> f32 {
        let bits = mix(mix(index ^ self.key[0]).wrapping_add(self.key[1]));
        if bits >= self.threshold { self.scale } else { 0.0 }
    }
}

/// Scrambles the bits of a number with the finalizer of MurmurHash3.
#[inline(always)]
fn mix(x: u32) -> u32 {
    let x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
    let x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}
