//! Portable operations: plain loops for any processor, and the reference in tests.

use super::Distances;

#[derive(Clone, Copy)]
pub(super) struct Portable;

/// Number of partial sums, so that the compiler can vectorize the loops.
const LANES: usize = 16;

impl Distances for Portable {
    #[inline(always)]
    unsafe fn code_dot(codes: *const u8, other: *const u8, _: i32, length: usize) -> i32 {
        // SAFETY: guaranteed by the caller.
        let (codes, other) =
            unsafe { (std::slice::from_raw_parts(codes, length), std::slice::from_raw_parts(other, length)) };
        let number = |code: &u8| i32::from(*code) - 128;
        codes.iter().zip(other).map(|(a, b)| number(a) * number(b)).sum()
    }

    #[inline(always)]
    unsafe fn nibble_dot(nibbles: *const u8, signed: *const i8, length: usize) -> i32 {
        // SAFETY: guaranteed by the caller.
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
        // SAFETY: guaranteed by the caller.
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
