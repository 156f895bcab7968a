//! Operations for AVX-512 with VNNI.

use std::arch::x86_64::*;

use super::Distances;

#[derive(Clone, Copy)]
pub(super) struct Avx512;

impl Distances for Avx512 {
    /// The instruction multiplies unsigned by signed bytes. The codes are used as unsigned bytes that include the
    /// bias. The contribution of the bias is subtracted at the end.
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

    /// Contains no closures, for the same reason as in `avx2`.
    #[inline(always)]
    unsafe fn floats<const SQUARED_DISTANCE: bool>(a: *const f32, b: *const f32, length: usize) -> f32 {
        // SAFETY: guaranteed by the caller. Numbers after the end are masked to 0, which does not change the sums.
        unsafe {
            let mut sums = [_mm512_setzero_ps(); 4];
            let mut at = 0;
            while at + 64 <= length {
                for lane in 0..4 {
                    let from = at + 16 * lane;
                    let (x, y) = (_mm512_loadu_ps(a.add(from)), _mm512_loadu_ps(b.add(from)));
                    sums[lane] = add::<SQUARED_DISTANCE>(sums[lane], x, y);
                }
                at += 64;
            }
            while at < length {
                let rest = length - at;
                let mask = if rest >= 16 { u16::MAX } else { (1 << rest) - 1 };
                let (x, y) = (_mm512_maskz_loadu_ps(mask, a.add(at)), _mm512_maskz_loadu_ps(mask, b.add(at)));
                sums[0] = add::<SQUARED_DISTANCE>(sums[0], x, y);
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

/// Adds the products (or squared differences) of 16 elements.
///
/// # Safety
///
/// The processor must support AVX-512.
#[inline(always)]
unsafe fn add<const SQUARED_DISTANCE: bool>(sum: __m512, x: __m512, y: __m512) -> __m512 {
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

/// Expands 32 bytes to 64 nibbles: first the lower halves, then the upper halves.
///
/// # Safety
///
/// 32 bytes are read; the processor must support AVX-512.
#[inline(always)]
unsafe fn halves(bytes: *const u8) -> __m512i {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let both = _mm512_broadcast_i64x4(_mm256_loadu_si256(bytes.cast()));
        let by = _mm512_inserti64x4::<1>(_mm512_setzero_si512(), _mm256_set1_epi16(4));
        _mm512_and_si512(_mm512_srlv_epi16(both, by), _mm512_set1_epi8(15))
    }
}
