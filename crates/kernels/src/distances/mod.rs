//! Vector operations of nearest-neighbor search: dot products of 8-bit and 4-bit codes, and dot products and squared
//! distances of floats. The operations are compiled for several SIMD levels; the [`SimdLevel`] is chosen at run time.
//!
//! A code is a number from −127 to 127, stored as a byte with a bias of 128: byte 1 is −127, byte 128 is 0, and byte
//! 255 is 127. A row of codes is padded to a multiple of 64 with the byte 128, which does not change a product.

use crate::simd::SimdLevel;

#[cfg(target_arch = "x86_64")]
use crate::simd::{avx2, avx512};

#[cfg(target_arch = "x86_64")]
mod x86;

/// Granularity of a row of codes: the row length is a multiple of this number.
pub const CODE_STEP: usize = 64;

/// Vector operations of one SIMD level.
///
/// # Safety
///
/// The pointers must be valid for `length` elements; a nibble is half a byte. The processor must support the
/// instructions of the level.
#[allow(clippy::missing_safety_doc)]
pub trait Distances: Copy + Send + Sync {
    /// Returns the dot product of two rows of codes. `bias` must be 128 times the sum of the codes in `other`, where a
    /// code is its byte minus 128. `length` is a multiple of 64.
    unsafe fn code_dot(codes: *const u8, other: *const u8, bias: i32, length: usize) -> i32;

    /// Returns the dot product of nibbles (numbers from 0 to 15) and signed integers from −127 to 127. A block of 32
    /// bytes in `nibbles` belongs to 64 integers: the lower halves of the bytes to the first 32 integers, the upper
    /// halves to the other 32. `length` is the number of nibbles, a multiple of 64.
    unsafe fn nibble_dot(nibbles: *const u8, signed: *const i8, length: usize) -> i32;

    /// Returns the dot product of two vectors of any length. If `SQUARED_DISTANCE` is true, returns their squared
    /// Euclidean distance instead.
    unsafe fn floats<const SQUARED_DISTANCE: bool>(a: *const f32, b: *const f32, length: usize) -> f32;

    /// Prefetches the cache line of an address, which may be invalid. The portable level does nothing.
    fn prefetch(address: *const u8);

    /// Prefetches all cache lines of a block of memory. The loop does not use `step_by`, which would take a tenth of
    /// the time of a search.
    #[inline(always)]
    fn prefetch_all(start: *const u8, bytes: usize) {
        let mut at = 0;
        while at < bytes {
            Self::prefetch(start.wrapping_add(at));
            at += 64;
        }
    }
}

/// Task that is written once and compiled for each SIMD level. `run` should be `#[inline(always)]`: otherwise it is not
/// compiled for the level.
pub trait Task {
    /// Result of the task.
    type Output;
    /// Runs the task with the operations of the SIMD level `D`.
    fn run<D: Distances>(self) -> Self::Output;
}

/// SIMD level at which tasks run. It is always a level that this processor supports.
#[derive(Debug, Clone, Copy)]
pub struct Dispatch(SimdLevel);

impl Dispatch {
    /// Returns the fastest level of this processor.
    pub fn best() -> Self {
        Dispatch(SimdLevel::best())
    }

    /// Returns the portable level, which is the reference in tests.
    pub fn portable() -> Self {
        Dispatch(SimdLevel::Portable)
    }

    /// Returns the given level if this processor supports it, else the fastest level.
    pub fn at(level: SimdLevel) -> Self {
        if level.available() { Dispatch(level) } else { Dispatch::best() }
    }

    /// Runs a task with the operations of this level.
    #[inline]
    pub fn run<T: Task>(self, task: T) -> T::Output {
        match self.0 {
            // SAFETY: a `Dispatch` is always a level that the processor supports; the task guarantees its pointers.
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx512Vnni | SimdLevel::Avx512Bf16 | SimdLevel::Amx => unsafe {
                x86::run::<avx512::Avx512<true, false, false>, x86::Avx512, T>(task)
            },
            // SAFETY: a `Dispatch` is always a level that the processor supports; the task guarantees its pointers.
            #[cfg(target_arch = "x86_64")]
            SimdLevel::Avx2 | SimdLevel::Avx512 => unsafe { x86::run::<avx2::Avx2, x86::Avx2, T>(task) },
            _ => task.run::<Portable>(),
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Portable;

/// Number of partial sums per result. Separate partial sums let the compiler vectorize the loops.
const LANES: usize = 16;

impl Distances for Portable {
    #[inline(always)]
    unsafe fn code_dot(codes: *const u8, other: *const u8, _: i32, length: usize) -> i32 {
        // SAFETY: the caller guarantees the pointers and the length.
        let (codes, other) =
            unsafe { (std::slice::from_raw_parts(codes, length), std::slice::from_raw_parts(other, length)) };
        let number = |code: &u8| i32::from(*code) - 128;
        codes.iter().zip(other).map(|(a, b)| number(a) * number(b)).sum()
    }

    #[inline(always)]
    unsafe fn nibble_dot(nibbles: *const u8, signed: *const i8, length: usize) -> i32 {
        // SAFETY: the caller guarantees the pointers and the length.
        let (nibbles, signed) = unsafe {
            (std::slice::from_raw_parts(nibbles, length / 2), std::slice::from_raw_parts(signed, length))
        };
        let blocks = nibbles.chunks_exact(32).zip(signed.chunks_exact(64));
        let products = blocks.flat_map(|(nibbles, signed)| {
            let (first, second) = signed.split_at(32);
            nibbles
                .iter()
                .zip(first.iter().zip(second))
                .map(|(n, (a, b))| i32::from(n & 15) * i32::from(*a) + i32::from(n >> 4) * i32::from(*b))
        });
        products.sum()
    }

    #[inline(always)]
    unsafe fn floats<const SQUARED_DISTANCE: bool>(a: *const f32, b: *const f32, length: usize) -> f32 {
        // SAFETY: the caller guarantees the pointers and the length.
        let (a, b) =
            unsafe { (std::slice::from_raw_parts(a, length), std::slice::from_raw_parts(b, length)) };
        let add = |sum: f32, a: f32, b: f32| sum + if SQUARED_DISTANCE { (a - b) * (a - b) } else { a * b };
        let mut sums = [0.0f32; LANES];
        let (a_lanes, b_lanes) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
        let rest = a_lanes.remainder().iter().zip(b_lanes.remainder());
        for (a, b) in a_lanes.zip(b_lanes) {
            for lane in 0..LANES {
                sums[lane] = add(sums[lane], a[lane], b[lane]);
            }
        }
        for (lane, (a, b)) in rest.enumerate() {
            sums[lane] = add(sums[lane], *a, *b);
        }
        sums.iter().sum()
    }

    #[inline(always)]
    fn prefetch(_: *const u8) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Codes<'a>(&'a [u8], &'a [u8]);

    impl Task for Codes<'_> {
        type Output = (i32, i32);

        #[inline(always)]
        fn run<D: Distances>(self) -> Self::Output {
            let signed: Vec<i8> = self.1.iter().map(|c| (*c ^ 128) as i8).collect();
            let bias = 128 * signed.iter().map(|s| i32::from(*s)).sum::<i32>();
            // SAFETY: the rows have this length.
            unsafe {
                (
                    D::code_dot(self.0.as_ptr(), self.1.as_ptr(), bias, self.0.len()),
                    D::nibble_dot(self.0.as_ptr(), signed.as_ptr(), self.0.len()),
                )
            }
        }
    }

    struct Floats<'a>(&'a [f32], &'a [f32]);

    impl Task for Floats<'_> {
        type Output = (f32, f32);

        #[inline(always)]
        fn run<D: Distances>(self) -> (f32, f32) {
            // SAFETY: the rows have this length.
            unsafe {
                (
                    D::floats::<false>(self.0.as_ptr(), self.1.as_ptr(), self.0.len()),
                    D::floats::<true>(self.0.as_ptr(), self.1.as_ptr(), self.0.len()),
                )
            }
        }
    }

    /// Returns a strategy for codes, in which the smallest and the largest code are frequent.
    fn code() -> impl Strategy<Value = u8> {
        prop_oneof![Just(1), Just(255), 1..=255u8]
    }

    proptest! {
        #[test]
        fn code_products_are_identical_at_every_level(
            pairs in (1usize..=20).prop_flat_map(|steps| proptest::collection::vec((code(), code()), steps * CODE_STEP)),
        ) {
            let (a, b): (Vec<u8>, Vec<u8>) = pairs.into_iter().unzip();
            let signed = |c: &u8| i64::from(*c) - 128;
            let dot: i64 = a.iter().zip(&b).map(|(a, b)| signed(a) * signed(b)).sum();
            // The first half of `a` serves as the nibbles.
            let nibble = |at: usize| i64::from(a[at / 64 * 32 + at % 32] >> (at % 64 / 32 * 4) & 15);
            let rough: i64 = b.iter().enumerate().map(|(at, b)| nibble(at) * signed(b)).sum();
            for level in SimdLevel::here() {
                let expected = (dot as i32, rough as i32);
                prop_assert_eq!(Dispatch::at(level).run(Codes(&a, &b)), expected, "{:?}", level);
            }
        }

        #[test]
        fn float_products_agree_at_every_level(pairs in proptest::collection::vec((-1.0f32..1.0, -1.0f32..1.0), 1..300)) {
            let (a, b): (Vec<f32>, Vec<f32>) = pairs.into_iter().unzip();
            let dot: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            let difference: f64 = a.iter().zip(&b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
            for level in SimdLevel::here() {
                let (d, a) = Dispatch::at(level).run(Floats(&a, &b));
                prop_assert!((f64::from(d) - dot).abs() < 1e-4 && (f64::from(a) - difference).abs() < 1e-4, "{:?}", level);
            }
        }
    }
}
