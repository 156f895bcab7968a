//! Vector operations of nearest-neighbor search for AVX2 with FMA, and for AVX-512 with VNNI.

use std::{arch::x86_64::*, marker::PhantomData};

use crate::{
    distances::{Distances, Task},
    simd::{Kernel, Simd},
};

/// Kernel that runs a task with the operations `D`.
struct Call<T, D>(T, PhantomData<D>);

impl<S: Simd, T: Task, D: Distances> Kernel<S> for Call<T, D> {
    type Output = T::Output;

    #[inline(always)]
    unsafe fn call(self) -> T::Output {
        self.0.run::<D>()
    }
}

/// Runs a task with the operations `D`, compiled with the features of `S`.
///
/// # Safety
///
/// The processor must have the features of `S`.
#[inline]
pub(super) unsafe fn run<S: Simd, D: Distances, T: Task>(task: T) -> T::Output {
    // SAFETY: the caller guarantees the features; the task guarantees its pointers.
    unsafe { S::enter(Call(task, PhantomData::<D>)) }
}

#[derive(Clone, Copy)]
pub(super) struct Avx512;

impl Distances for Avx512 {
    /// The instruction `vpdpbusd` multiplies unsigned by signed bytes. The bytes in `codes` keep their bias of 128, so
    /// they are unsigned. The contribution of the bias is subtracted at the end.
    #[inline(always)]
    unsafe fn code_dot(codes: *const u8, other: *const u8, bias: i32, length: usize) -> i32 {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let flip = _mm512_set1_epi8(-128);
            let mut sums = [_mm512_setzero_si512(); 2];
            let mut at = 0;
            while at + 128 <= length {
                for half in 0..2 {
                    let code = _mm512_loadu_si512(codes.add(at + 64 * half).cast());
                    let other = _mm512_loadu_si512(other.add(at + 64 * half).cast());
                    sums[half] = _mm512_dpbusd_epi32(sums[half], code, _mm512_xor_si512(other, flip));
                }
                at += 128;
            }
            if at < length {
                let code = _mm512_loadu_si512(codes.add(at).cast());
                let other = _mm512_loadu_si512(other.add(at).cast());
                sums[0] = _mm512_dpbusd_epi32(sums[0], code, _mm512_xor_si512(other, flip));
            }
            _mm512_reduce_add_epi32(_mm512_add_epi32(sums[0], sums[1])) - bias
        }
    }

    /// Uses two accumulators to hide the latency of the additions.
    #[inline(always)]
    unsafe fn nibble_dot(nibbles: *const u8, signed: *const i8, length: usize) -> i32 {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mut sums = [_mm512_setzero_si512(); 2];
            let mut at = 0;
            while at + 128 <= length {
                for half in 0..2 {
                    let at = at + 64 * half;
                    let other = _mm512_loadu_si512(signed.add(at).cast());
                    sums[half] = _mm512_dpbusd_epi32(sums[half], halves(nibbles.add(at / 2)), other);
                }
                at += 128;
            }
            if at < length {
                let other = _mm512_loadu_si512(signed.add(at).cast());
                sums[0] = _mm512_dpbusd_epi32(sums[0], halves(nibbles.add(at / 2)), other);
            }
            _mm512_reduce_add_epi32(_mm512_add_epi32(sums[0], sums[1]))
        }
    }

    /// Contains no closures, because a closure is compiled without the processor's features.
    #[inline(always)]
    unsafe fn floats<const SQUARED_DISTANCE: bool>(a: *const f32, b: *const f32, length: usize) -> f32 {
        // SAFETY: guaranteed by the caller. Elements after the end are masked to 0, which does not change the sums.
        unsafe {
            let mut sums = [_mm512_setzero_ps(); 4];
            let mut at = 0;
            while at + 64 <= length {
                for lane in 0..4 {
                    let from = at + 16 * lane;
                    let (x, y) = (_mm512_loadu_ps(a.add(from)), _mm512_loadu_ps(b.add(from)));
                    sums[lane] = add_avx512::<SQUARED_DISTANCE>(sums[lane], x, y);
                }
                at += 64;
            }
            while at < length {
                let rest = length - at;
                let mask = if rest >= 16 { u16::MAX } else { (1 << rest) - 1 };
                let (x, y) = (_mm512_maskz_loadu_ps(mask, a.add(at)), _mm512_maskz_loadu_ps(mask, b.add(at)));
                sums[0] = add_avx512::<SQUARED_DISTANCE>(sums[0], x, y);
                at += 16;
            }
            _mm512_reduce_add_ps(_mm512_add_ps(
                _mm512_add_ps(sums[0], sums[1]),
                _mm512_add_ps(sums[2], sums[3]),
            ))
        }
    }

    #[inline(always)]
    fn prefetch(address: *const u8) {
        // SAFETY: any address may be prefetched.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
}

/// Returns `sum` plus the lane-wise products of `x` and `y`. If `SQUARED_DISTANCE` is true, adds their squared
/// differences instead.
///
/// # Safety
///
/// The processor must support AVX-512.
#[inline(always)]
unsafe fn add_avx512<const SQUARED_DISTANCE: bool>(sum: __m512, x: __m512, y: __m512) -> __m512 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        if SQUARED_DISTANCE {
            let difference = _mm512_sub_ps(x, y);
            _mm512_fmadd_ps(difference, difference, sum)
        } else {
            _mm512_fmadd_ps(x, y, sum)
        }
    }
}

/// Expands 32 bytes to 64 nibbles: first the lower halves of all bytes, then their upper halves.
///
/// # Safety
///
/// `bytes` must be valid for 32 bytes. The processor must support AVX-512.
#[inline(always)]
unsafe fn halves(bytes: *const u8) -> __m512i {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let both = _mm512_broadcast_i64x4(_mm256_loadu_si256(bytes.cast()));
        let by = _mm512_inserti64x4::<1>(_mm512_setzero_si512(), _mm256_set1_epi16(4));
        _mm512_and_si512(_mm512_srlv_epi16(both, by), _mm512_set1_epi8(15))
    }
}

#[derive(Clone, Copy)]
pub(super) struct Avx2;

impl Distances for Avx2 {
    /// The instruction `vpmaddubsw` multiplies unsigned by signed bytes and sums pairs of products in 16 bits. The sign
    /// of one code is moved to the other code. So no factor exceeds 127, and no sum of a pair overflows.
    #[inline(always)]
    unsafe fn code_dot(codes: *const u8, other: *const u8, _: i32, length: usize) -> i32 {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (flip, ones) = (_mm256_set1_epi8(-128), _mm256_set1_epi16(1));
            let mut sums = [_mm256_setzero_si256(); 2];
            let mut at = 0;
            while at < length {
                for half in 0..2 {
                    let code = _mm256_loadu_si256(codes.add(at + 32 * half).cast());
                    let code = _mm256_xor_si256(code, flip);
                    let other = _mm256_loadu_si256(other.add(at + 32 * half).cast());
                    let other = _mm256_xor_si256(other, flip);
                    let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(code), _mm256_sign_epi8(other, code));
                    sums[half] = _mm256_add_epi32(sums[half], _mm256_madd_epi16(pairs, ones));
                }
                at += 64;
            }
            sum_i32(_mm256_add_epi32(sums[0], sums[1]))
        }
    }

    /// The absolute value of a sum of two products is at most 2 · 15 · 127, so eight such sums can be added in 16 bits.
    #[inline(always)]
    unsafe fn nibble_dot(nibbles: *const u8, signed: *const i8, length: usize) -> i32 {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (lower, ones) = (_mm256_set1_epi8(15), _mm256_set1_epi16(1));
            let mut total = _mm256_setzero_si256();
            let mut at = 0;
            while at < length {
                let end = length.min(at + 8 * 64);
                let mut sums = [_mm256_setzero_si256(); 2];
                while at < end {
                    let both = _mm256_loadu_si256(nibbles.add(at / 2).cast());
                    let halves = [both, _mm256_srli_epi16::<4>(both)];
                    for half in 0..2 {
                        let other = _mm256_loadu_si256(signed.add(at + 32 * half).cast());
                        let pairs = _mm256_maddubs_epi16(_mm256_and_si256(halves[half], lower), other);
                        sums[half] = _mm256_add_epi16(sums[half], pairs);
                    }
                    at += 64;
                }
                for sum in sums {
                    total = _mm256_add_epi32(total, _mm256_madd_epi16(sum, ones));
                }
            }
            sum_i32(total)
        }
    }

    /// Contains no closures: a closure is compiled without the processor's features, so intrinsics in a closure would
    /// not be inlined.
    #[inline(always)]
    unsafe fn floats<const SQUARED_DISTANCE: bool>(a: *const f32, b: *const f32, length: usize) -> f32 {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mut sums = [_mm256_setzero_ps(); 4];
            let mut at = 0;
            while at + 32 <= length {
                for lane in 0..4 {
                    let from = at + 8 * lane;
                    sums[lane] = add_avx2::<SQUARED_DISTANCE>(sums[lane], a.add(from), b.add(from));
                }
                at += 32;
            }
            while at + 8 <= length {
                sums[0] = add_avx2::<SQUARED_DISTANCE>(sums[0], a.add(at), b.add(at));
                at += 8;
            }
            let sum = _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3]));
            let half = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps::<1>(sum));
            let half = _mm_add_ps(half, _mm_movehl_ps(half, half));
            let mut sum = _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps::<1>(half, half)));
            while at < length {
                let (x, y) = (*a.add(at), *b.add(at));
                sum += if SQUARED_DISTANCE { (x - y) * (x - y) } else { x * y };
                at += 1;
            }
            sum
        }
    }

    #[inline(always)]
    fn prefetch(address: *const u8) {
        // SAFETY: any address may be prefetched.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
}

/// Returns `sum` plus the lane-wise products of eight elements of `a` and `b`. If `SQUARED_DISTANCE` is true, adds
/// their squared differences instead.
///
/// # Safety
///
/// Both pointers must be valid for eight elements. The processor must support AVX2 and FMA.
#[inline(always)]
unsafe fn add_avx2<const SQUARED_DISTANCE: bool>(sum: __m256, a: *const f32, b: *const f32) -> __m256 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (x, y) = (_mm256_loadu_ps(a), _mm256_loadu_ps(b));
        if SQUARED_DISTANCE {
            let difference = _mm256_sub_ps(x, y);
            _mm256_fmadd_ps(difference, difference, sum)
        } else {
            _mm256_fmadd_ps(x, y, sum)
        }
    }
}

/// Returns the sum of the eight lanes.
///
/// # Safety
///
/// The processor must support AVX2.
#[inline(always)]
unsafe fn sum_i32(lanes: __m256i) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let half = _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256::<1>(lanes));
        let half = _mm_add_epi32(half, _mm_unpackhi_epi64(half, half));
        _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32::<1>(half)))
    }
}
