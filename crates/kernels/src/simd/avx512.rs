//! AVX-512: 16 lanes, 32 registers.

use std::arch::x86_64::*;

use crate::simd::{Kernel, Simd, Squared, Squares, amx, operations};

/// SIMD level AVX-512 (F, BW, VL, DQ), optionally with VNNI, BF16 and AMX.
#[derive(Clone, Copy)]
pub(crate) struct Avx512<const VNNI: bool, const BF16: bool, const AMX: bool>;

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn enter<S: Simd, K: Kernel<S>>(kernel: K) -> K::Output {
    // SAFETY: the caller guarantees the features and the kernel's pointers.
    unsafe { kernel.call() }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,bmi1,bmi2,lzcnt,popcnt,avx512vnni")]
unsafe fn enter_vnni<S: Simd, K: Kernel<S>>(kernel: K) -> K::Output {
    // SAFETY: the caller guarantees the features and the kernel's pointers.
    unsafe { kernel.call() }
}

#[target_feature(
    enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,bmi1,bmi2,lzcnt,popcnt,avx512vnni,avx512bf16"
)]
unsafe fn enter_bf16<S: Simd, K: Kernel<S>>(kernel: K) -> K::Output {
    // SAFETY: the caller guarantees the features and the kernel's pointers.
    unsafe { kernel.call() }
}

impl<const VNNI: bool, const BF16: bool, const AMX: bool> Simd for Avx512<VNNI, BF16, AMX> {
    type Base = Avx512<false, false, false>;
    type Whole = Avx512<VNNI, false, false>;
    type F32 = __m512;
    type I32 = __m512i;
    type Bytes = __m512i;

    const LANES: usize = 16;
    // A tile has 24 sums and 3 columns. The other registers are for the operands.
    const VECTORS: usize = 3;
    const ROWS: usize = 8;
    // Without VNNI, a tile has sums in 16 bits in addition to those in 32 bits.
    const BYTE_ROWS: usize = if VNNI { 8 } else { 4 };
    const BYTE_MAX: f32 = 255.0;
    const BYTE_CHAIN: usize = if VNNI { 1 } else { 4 };
    const BF16: bool = BF16;
    const SQUARES: bool = AMX;

    unsafe fn begin_squares() {
        // SAFETY: the caller guarantees that AMX is available.
        unsafe { amx::begin() }
    }
    unsafe fn end_squares() {
        // SAFETY: the caller guarantees that AMX is available.
        unsafe { amx::end() }
    }
    unsafe fn squares<const TWO: bool>(numbers: Squared, squares: Squares) {
        // SAFETY: the caller guarantees that AMX is available and that the pointers are valid.
        unsafe { amx::multiply::<TWO>(numbers, squares) }
    }

    #[inline(always)]
    unsafe fn enter<K: Kernel<Self>>(kernel: K) -> K::Output {
        // SAFETY: the caller guarantees the features that the constants name.
        unsafe {
            if BF16 {
                enter_bf16(kernel)
            } else if VNNI {
                enter_vnni(kernel)
            } else {
                enter(kernel)
            }
        }
    }

    operations! {
        fn splat(x: f32) -> __m512 { _mm512_set1_ps(x) }
        fn load(from: *const f32) -> __m512 { _mm512_loadu_ps(from) }
        fn store(to: *mut f32, v: __m512) { _mm512_storeu_ps(to, v) }
        fn add(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
        fn sub(a: __m512, b: __m512) -> __m512 { _mm512_sub_ps(a, b) }
        fn mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
        fn div(a: __m512, b: __m512) -> __m512 { _mm512_div_ps(a, b) }
        fn fma(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }
        fn max(a: __m512, b: __m512) -> __m512 { _mm512_max_ps(a, b) }
        fn min(a: __m512, b: __m512) -> __m512 { _mm512_min_ps(a, b) }
        fn abs(a: __m512) -> __m512 { _mm512_abs_ps(a) }
        fn round(a: __m512) -> __m512 { _mm512_roundscale_ps::<8>(a) }
        fn power_of_two(a: __m512) -> __m512 { _mm512_scalef_ps(_mm512_set1_ps(1.0), a) }
        fn first(n: usize, v: __m512, other: __m512) -> __m512 {
            _mm512_mask_mov_ps(other, ((1u32 << n.min(16)) - 1) as __mmask16, v)
        }
        fn total(v: __m512) -> f32 { _mm512_reduce_add_ps(v) }
        fn largest(v: __m512) -> f32 { _mm512_reduce_max_ps(v) }

        fn transpose(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {{
            // Interleave pairs of rows, then pairs of pairs, then halves, then quarters of the registers.
            let mut fours = [_mm512_setzero_ps(); 16];
            for four in 0..4 {
                let from = from.add(4 * four * from_stride);
                let (a, b) = (_mm512_loadu_ps(from), _mm512_loadu_ps(from.add(from_stride)));
                let (c, d) = (_mm512_loadu_ps(from.add(2 * from_stride)), _mm512_loadu_ps(from.add(3 * from_stride)));
                let (low, high) = (_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
                let (next_low, next_high) = (_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
                fours[four] = _mm512_shuffle_ps::<0x44>(low, next_low);
                fours[4 + four] = _mm512_shuffle_ps::<0xEE>(low, next_low);
                fours[8 + four] = _mm512_shuffle_ps::<0x44>(high, next_high);
                fours[12 + four] = _mm512_shuffle_ps::<0xEE>(high, next_high);
            }
            for column in 0..4 {
                let [a, b, c, d] = [fours[4 * column], fours[4 * column + 1], fours[4 * column + 2], fours[4 * column + 3]];
                let (even, odd) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xDD>(a, b));
                let (next_even, next_odd) = (_mm512_shuffle_f32x4::<0x88>(c, d), _mm512_shuffle_f32x4::<0xDD>(c, d));
                let to = to.add(column * to_stride);
                _mm512_storeu_ps(to, _mm512_shuffle_f32x4::<0x88>(even, next_even));
                _mm512_storeu_ps(to.add(4 * to_stride), _mm512_shuffle_f32x4::<0x88>(odd, next_odd));
                _mm512_storeu_ps(to.add(8 * to_stride), _mm512_shuffle_f32x4::<0xDD>(even, next_even));
                _mm512_storeu_ps(to.add(12 * to_stride), _mm512_shuffle_f32x4::<0xDD>(odd, next_odd));
            }
        }}

        fn fetch(line: *const u32) { _mm_prefetch::<_MM_HINT_T1>(line.cast()) }
        fn izero() -> __m512i { _mm512_setzero_si512() }
        fn spread(from: *const u32) -> __m512i { _mm512_set1_epi32(from.read_unaligned() as i32) }
        fn iload(from: *const u32) -> __m512i { _mm512_loadu_si512(from.cast()) }
        fn istore(to: *mut u32, v: __m512i) { _mm512_storeu_si512(to.cast(), v) }
        fn to_float(v: __m512i) -> __m512 { _mm512_cvtepi32_ps(v) }
        fn begin_shorts(sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
            if VNNI { _mm512_dpwssd_epi32(sum, a, b) } else { _mm512_madd_epi16(a, b) }
        }
        fn end_shorts(sum: __m512i, products: __m512i) -> __m512i {
            if VNNI { products } else { _mm512_add_epi32(sum, products) }
        }

        fn begin_bytes(sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
            if VNNI { _mm512_dpbusd_epi32(sum, a, b) } else { _mm512_maddubs_epi16(a, b) }
        }
        fn dot_bytes(chain: __m512i, a: __m512i, b: __m512i) -> __m512i {
            if VNNI {
                _mm512_dpbusd_epi32(chain, a, b)
            } else {
                _mm512_add_epi16(chain, _mm512_maddubs_epi16(a, b))
            }
        }
        fn end_bytes(sum: __m512i, chain: __m512i) -> __m512i {
            if VNNI {
                chain
            } else {
                _mm512_add_epi32(sum, _mm512_madd_epi16(chain, _mm512_set1_epi16(1)))
            }
        }

        fn bf16_low(v: __m512i) -> __m512 { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(v)) }
        fn bf16_high(v: __m512i) -> __m512 {
            _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(!0xFFFF)))
        }
        fn dot_bf16(sum: __m512, a: __m512i, b: __m512i) -> __m512 {
            if BF16 {
                _mm512_dpbf16_ps(sum, std::mem::transmute::<__m512i, __m512bh>(a), std::mem::transmute::<__m512i, __m512bh>(b))
            } else {
                Self::fma(
                    Self::bf16_low(a),
                    Self::bf16_low(b),
                    Self::fma(Self::bf16_high(a), Self::bf16_high(b), sum),
                )
            }
        }

        fn pair_bf16(low: __m512, high: __m512) -> __m512i {{
            let low = _mm512_srli_epi32::<16>(_mm512_castps_si512(Self::round_bf16(low)));
            _mm512_or_si512(low, _mm512_castps_si512(Self::round_bf16(high)))
        }}
        fn round_bf16(v: __m512) -> __m512 {{
            // Round to the nearest, ties to even. Plain AVX-512 instructions are sufficient for this.
            let bits = _mm512_castps_si512(v);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
            _mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32(!0xFFFF)))
        }}

        fn store_shorts(to: *mut i16, v: __m512) {
            _mm256_storeu_si256(to.cast(), _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(v)))
        }
        fn store_bytes(to: *mut u8, v: __m512) {
            _mm_storeu_si128(to.cast(), _mm512_cvtusepi32_epi8(_mm512_cvtps_epi32(v)))
        }
        fn store_bf16(to: *mut u16, v: __m512) {{
            let bits = _mm512_srli_epi32::<16>(_mm512_castps_si512(Self::round_bf16(v)));
            _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(bits))
        }}
    }
}
