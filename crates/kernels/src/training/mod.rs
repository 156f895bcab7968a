//! What training needs besides products, forward and backward.
//!
//! Every kernel is a plain loop that the compiler makes vectors of, compiled for each kind of processor. Sums run in 16
//! lanes wherever they run, and nothing is contracted: the numbers are the same on every processor and however rows are
//! shared out among threads.

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

/// Which vectors training runs on: those that inference chooses.
fn level() -> SimdLevel {
    static LEVEL: OnceLock<SimdLevel> = OnceLock::new();
    *LEVEL
        .get_or_init(|| SimdChoice::Auto.demanded().ok().flatten().unwrap_or_else(|| proof::best_proven().0))
}

/// A loop that is compiled with a processor's features.
struct Loop<F>(F);

impl<S: Simd, F: FnOnce()> Kernel<S> for Loop<F> {
    type Output = ();

    #[inline(always)]
    unsafe fn call(self) {
        (self.0)();
    }
}

/// Runs a loop with the best vectors. The closure must be `#[inline(always)]` all the way down.
#[inline(always)]
fn vectorised(body: impl FnOnce()) {
    fn enter<S: Simd>(body: impl FnOnce()) {
        // SAFETY: the level was found available, and a loop of safe code asks for nothing else.
        unsafe { <S::Base as Simd>::enter(Loop(body)) }
    }
    let level = level();
    at_level!(level, enter::<_>(body))
}

/// Lanes of a sum.
const LANES: usize = 16;

/// The sum of `f(i)`, in lanes.
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
    // In halves, as vectors are added up.
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}
