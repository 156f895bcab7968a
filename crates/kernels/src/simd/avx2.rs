//! AVX2 with FMA: 8 lanes, 16 registers.

use std::arch::{asm, x86_64::*};

use crate::simd::{Kernel, Simd, Squared, Squares, operations};

/// SIMD level AVX2 with FMA.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn enter<K: Kernel<Avx2>>(kernel: K) -> K::Output {
    // SAFETY: the caller guarantees the features and the kernel's pointers.
    unsafe { kernel.call() }
}

// The compiler may reorder integer sums. It would load the operands of several steps, add their products first, and run
// out of registers. In the order in which the kernels are written, all values fit into the registers. The assembly
// blocks below keep this order, because the compiler does not reorder blocks that are not `pure`.

macro_rules! instruction {
    ($(fn $name:ident: $instruction:literal;)*) => { $(
        #[inline]
        #[target_feature(enable = "avx2")]
        fn $name(a: __m256i, b: __m256i) -> __m256i {
            let result: __m256i;
            // SAFETY: one AVX2 instruction on registers.
            unsafe {
                asm!(
                    concat!($instruction, " {result}, {a}, {b}"),
                    a = in(ymm_reg) a, b = in(ymm_reg) b, result = lateout(ymm_reg) result,
                    options(nomem, nostack, preserves_flags),
                );
            }
            result
        }
    )* };
}

instruction! {
    fn multiply_shorts: "vpmaddwd";
    fn add_shorts: "vpaddd";
    fn multiply_bytes: "vpmaddubsw";
    fn add_bytes: "vpaddw";
}

impl Simd for Avx2 {
    type Base = Self;
    type Whole = Self;
    type F32 = __m256;
    type I32 = __m256i;
    type Bytes = __m256i;

    const LANES: usize = 8;
    // The 12 sums, 2 columns, 1 element of a row and 1 product of a tile use all 16 registers.
    const VECTORS: usize = 2;
    const ROWS: usize = 6;
    // A tile has 6 sums in 32 bits and 6 sums in 16 bits.
    const BYTE_ROWS: usize = 3;
    const BYTE_MAX: f32 = 255.0;
    const BYTE_CHAIN: usize = 4;
    const BF16: bool = false;
    const SQUARES: bool = false;

    unsafe fn begin_squares() {}
    unsafe fn end_squares() {}
    unsafe fn squares<const TWO: bool>(_: Squared, _: Squares) {
        unreachable!("AVX2 has no squares")
    }

    #[inline(always)]
    unsafe fn enter<K: Kernel<Self>>(kernel: K) -> K::Output {
        // SAFETY: the caller guarantees the features and the kernel's pointers.
        unsafe { enter(kernel) }
    }

    operations! {
        fn splat(x: f32) -> __m256 { _mm256_set1_ps(x) }
        fn load(from: *const f32) -> __m256 { _mm256_loadu_ps(from) }
        fn store(to: *mut f32, v: __m256) { _mm256_storeu_ps(to, v) }
        fn add(a: __m256, b: __m256) -> __m256 { _mm256_add_ps(a, b) }
        fn sub(a: __m256, b: __m256) -> __m256 { _mm256_sub_ps(a, b) }
        fn mul(a: __m256, b: __m256) -> __m256 { _mm256_mul_ps(a, b) }
        fn div(a: __m256, b: __m256) -> __m256 { _mm256_div_ps(a, b) }
        fn fma(a: __m256, b: __m256, c: __m256) -> __m256 { _mm256_fmadd_ps(a, b, c) }
        fn max(a: __m256, b: __m256) -> __m256 { _mm256_max_ps(a, b) }
        fn min(a: __m256, b: __m256) -> __m256 { _mm256_min_ps(a, b) }
        fn abs(a: __m256) -> __m256 { _mm256_andnot_ps(_mm256_set1_ps(-0.0), a) }
        fn round(a: __m256) -> __m256 {
            _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a)
        }
        fn power_of_two(a: __m256) -> __m256 {
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(
                _mm256_cvtps_epi32(a),
                _mm256_set1_epi32(127),
            )))
        }
        fn first(n: usize, v: __m256, other: __m256) -> __m256 {
            _mm256_blendv_ps(other, v, _mm256_loadu_ps(FIRST.as_ptr().add(8 - n.min(8)).cast()))
        }
        fn total(v: __m256) -> f32 {{
            let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
        }}
        fn largest(v: __m256) -> f32 {{
            let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
            _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
        }}
        fn transpose(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {{
            // Interleave pairs of rows, then pairs of pairs, then halves of the registers.
            let mut pairs = [[_mm256_setzero_ps(); 4]; 2];
            for i in 0..4 {
                let from = from.add(2 * i * from_stride);
                let (row, next) = (_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(from_stride)));
                pairs[0][i] = _mm256_unpacklo_ps(row, next);
                pairs[1][i] = _mm256_unpackhi_ps(row, next);
            }
            for half in 0..2 {
                let [a, b, c, d] = pairs[half];
                for (at, [top, bottom]) in [
                    [_mm256_shuffle_ps::<0x44>(a, b), _mm256_shuffle_ps::<0x44>(c, d)],
                    [_mm256_shuffle_ps::<0xEE>(a, b), _mm256_shuffle_ps::<0xEE>(c, d)],
                ]
                .into_iter()
                .enumerate()
                {
                    let column = half * 2 + at;
                    let left = _mm256_permute2f128_ps::<0x20>(top, bottom);
                    let right = _mm256_permute2f128_ps::<0x31>(top, bottom);
                    _mm256_storeu_ps(to.add(column * to_stride), left);
                    _mm256_storeu_ps(to.add((column + 4) * to_stride), right);
                }
            }
        }}

        fn fetch(line: *const u32) { _mm_prefetch::<_MM_HINT_T1>(line.cast()) }
        fn izero() -> __m256i { _mm256_setzero_si256() }
        fn spread(from: *const u32) -> __m256i { _mm256_set1_epi32(from.read_unaligned() as i32) }
        fn iload(from: *const u32) -> __m256i { _mm256_loadu_si256(from.cast()) }
        fn istore(to: *mut u32, v: __m256i) { _mm256_storeu_si256(to.cast(), v) }
        fn to_float(v: __m256i) -> __m256 { _mm256_cvtepi32_ps(v) }
        fn begin_shorts(_sum: __m256i, a: __m256i, b: __m256i) -> __m256i { multiply_shorts(a, b) }
        fn end_shorts(sum: __m256i, products: __m256i) -> __m256i { add_shorts(sum, products) }

        fn begin_bytes(_sum: __m256i, a: __m256i, b: __m256i) -> __m256i { multiply_bytes(a, b) }
        fn dot_bytes(chain: __m256i, a: __m256i, b: __m256i) -> __m256i { add_bytes(chain, multiply_bytes(a, b)) }
        fn end_bytes(sum: __m256i, chain: __m256i) -> __m256i {
            _mm256_add_epi32(sum, _mm256_madd_epi16(chain, _mm256_set1_epi16(1)))
        }

        fn bf16_low(v: __m256i) -> __m256 { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(v)) }
        fn bf16_high(v: __m256i) -> __m256 {
            _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(!0xFFFF)))
        }
        fn dot_bf16(sum: __m256, a: __m256i, b: __m256i) -> __m256 {
            Self::fma(
                Self::bf16_low(a),
                Self::bf16_low(b),
                Self::fma(Self::bf16_high(a), Self::bf16_high(b), sum),
            )
        }

        fn pair_bf16(low: __m256, high: __m256) -> __m256i {{
            let low = _mm256_srli_epi32::<16>(_mm256_castps_si256(Self::round_bf16(low)));
            _mm256_or_si256(low, _mm256_castps_si256(Self::round_bf16(high)))
        }}
        fn round_bf16(v: __m256) -> __m256 {{
            // Round to the nearest, ties to even.
            let bits = _mm256_castps_si256(v);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
            _mm256_castsi256_ps(_mm256_and_si256(up, _mm256_set1_epi32(!0xFFFF)))
        }}

        fn store_shorts(to: *mut i16, v: __m256) {{
            let v = _mm256_cvtps_epi32(v);
            let v = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
            _mm_storeu_si128(to.cast(), v)
        }}
        fn store_bytes(to: *mut u8, v: __m256) {{
            let v = _mm256_cvtps_epi32(v);
            let v = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
            _mm_storel_epi64(to.cast(), _mm_packus_epi16(v, v))
        }}
        fn store_bf16(to: *mut u16, v: __m256) {{
            let v = _mm256_srli_epi32::<16>(_mm256_castps_si256(Self::round_bf16(v)));
            let v = _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
            _mm_storeu_si128(to.cast(), v)
        }}
    }
}

/// Lane masks: the eight elements starting at index `8 - n` select the first `n` lanes.
static FIRST: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
