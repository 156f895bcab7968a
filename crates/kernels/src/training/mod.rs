//! Training operations, except matrix products: attention, activation functions, layer norm (each forward and
//! backward), and AdamW.
//!
//! Every kernel is a plain loop that the compiler vectorizes, compiled for each SIMD level. Sums always use 16 lanes,
//! and products and sums are never fused (no FMA). So results are identical on every processor, and do not depend on
//! how rows are distributed among threads.

mod adamw;
mod attention;
mod dropout;
mod feed;
mod norm;
mod scalar;
#[cfg(test)]
mod tests;

pub use adamw::{AdamW, adamw};
pub use attention::{Attended, attend, attend_backward};
pub use dropout::Dropout;
pub use feed::{activate, activate_backward};
pub use norm::{AddNorm, add_norm, add_norm_backward};

use std::sync::OnceLock;

use crate::{
    proof,
    simd::{Kernel, Simd, SimdChoice, SimdLevel, at_level},
};

/// Returns the SIMD level for training, which is the level that inference uses.
fn level() -> SimdLevel {
    static LEVEL: OnceLock<SimdLevel> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        SimdChoice::Auto.requested().ok().flatten().unwrap_or_else(|| proof::best_verified().0)
    })
}

/// A loop that is compiled with the features of a SIMD level.
struct Loop<F>(F);

impl<S: Simd, F: FnOnce()> Kernel<S> for Loop<F> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        (self.0)();
    }
}

/// Runs a loop at the best SIMD level. The closure and everything it calls must be `#[inline(always)]`.
#[inline(always)]
fn vectorized(body: impl FnOnce()) {
    fn enter<S: Simd>(body: impl FnOnce()) {
        // SAFETY: the level is available, and the loop is safe code.
        unsafe { <S::Base as Simd>::enter(Loop(body)) }
    }
    let level = level();
    at_level!(level, enter::<_>(body))
}

/// Number of partial sums (lanes) of a sum.
const LANES: usize = 16;

/// Returns the sum of `f(i)` for `i` below `length`, computed in lanes.
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
    // Adds the lanes pairwise by halves, in the order of a vector reduction.
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}
