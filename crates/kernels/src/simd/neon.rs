//! NEON: 4 lanes, 32 registers.

use std::arch::{aarch64::*, asm};

use crate::simd::{Kernel, Simd, Squared, Squares, operations};

/// SIMD level NEON, optionally with dot products of bytes (`DOT`) and of bf16 (`BF16`).
#[derive(Clone, Copy)]
pub(crate) struct Neon<const DOT: bool, const BF16: bool>;

#[target_feature(enable = "neon")]
unsafe fn enter<S: Simd, K: Kernel<S>>(kernel: K) -> K::Output {
    // SAFETY: the caller guarantees the features and the kernel's pointers.
    unsafe { kernel.call() }
}

#[target_feature(enable = "neon,dotprod")]
unsafe fn enter_dot<S: Simd, K: Kernel<S>>(kernel: K) -> K::Output {
    // SAFETY: the caller guarantees the features and the kernel's pointers.
    unsafe { kernel.call() }
}

#[target_feature(enable = "neon,dotprod,bf16")]
unsafe fn enter_bf16<S: Simd, K: Kernel<S>>(kernel: K) -> K::Output {
    // SAFETY: the caller guarantees the features and the kernel's pointers.
    unsafe { kernel.call() }
}

/// Defines functions of one instruction that adds the dot products of the lanes of two vectors to a third vector.
macro_rules! dot_products {
    ($($(#[$doc:meta])* fn $name:ident($sum:ty): $instruction:literal, $of:literal, $extension:literal;)*) => { $(
        $(#[$doc])*
        #[inline(always)]
        unsafe fn $name(sum: $sum, a: int32x4_t, b: int32x4_t) -> $sum {
            let result: $sum;
            // SAFETY: one instruction on registers; the caller guarantees the processor feature.
            unsafe {
                asm!(
                    concat!(".arch_extension ", $extension),
                    concat!($instruction, " {sum:v}.4s, {a:v}.", $of, ", {b:v}.", $of),
                    sum = inlateout(vreg) sum => result, a = in(vreg) a, b = in(vreg) b,
                    options(pure, nomem, nostack, preserves_flags),
                );
            }
            result
        }
    )* };
}

dot_products! {
    /// Four signed bytes in each lane.
    fn signed_bytes(int32x4_t): "sdot", "16b", "dotprod";
    /// Two bf16 elements in each lane.
    fn bf16(float32x4_t): "bfdot", "8h", "bf16";
}

/// Adds the dot product of the four signed bytes in each lane, without the instruction for it.
#[inline(always)]
unsafe fn signed_bytes_by_parts(sum: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t {
    // SAFETY: the caller guarantees NEON.
    unsafe {
        let (a, b) = (vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b));
        let low = vpaddlq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)));
        let high = vpaddlq_s16(vmull_high_s8(a, b));
        vaddq_s32(sum, vpaddq_s32(low, high))
    }
}

impl<const DOT: bool, const BF16: bool> Simd for Neon<DOT, BF16> {
    type Base = Neon<false, false>;
    type Whole = Self;
    type F32 = float32x4_t;
    type I32 = int32x4_t;
    type Bytes = int32x4_t;

    const LANES: usize = 4;
    // A tile has 24 sums and 3 columns. The other registers are for the operands.
    const VECTORS: usize = 3;
    const ROWS: usize = 8;
    // Without dot products of bytes, more registers are needed for products.
    const BYTE_ROWS: usize = if DOT { 8 } else { 4 };
    const BYTE_MAX: f32 = 255.0;
    // The dot products are those of signed bytes.
    const BYTE_ZERO: f32 = 128.0;
    const BYTE_CHAIN: usize = 1;
    const BF16: bool = BF16;
    const SQUARES: bool = false;

    unsafe fn begin_squares() {}
    unsafe fn end_squares() {}
    unsafe fn squares<const TWO: bool>(_: Squared, _: Squares) {
        unreachable!("NEON has no squares")
    }

    #[inline(always)]
    unsafe fn enter<K: Kernel<Self>>(kernel: K) -> K::Output {
        // SAFETY: the caller guarantees the features that the constants name.
        unsafe {
            if BF16 {
                enter_bf16(kernel)
            } else if DOT {
                enter_dot(kernel)
            } else {
                enter(kernel)
            }
        }
    }

    operations! {
        fn splat(x: f32) -> float32x4_t { vdupq_n_f32(x) }
        fn load(from: *const f32) -> float32x4_t { vld1q_f32(from) }
        fn store(to: *mut f32, v: float32x4_t) { vst1q_f32(to, v) }
        fn add(a: float32x4_t, b: float32x4_t) -> float32x4_t { vaddq_f32(a, b) }
        fn sub(a: float32x4_t, b: float32x4_t) -> float32x4_t { vsubq_f32(a, b) }
        fn mul(a: float32x4_t, b: float32x4_t) -> float32x4_t { vmulq_f32(a, b) }
        fn div(a: float32x4_t, b: float32x4_t) -> float32x4_t { vdivq_f32(a, b) }
        fn fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t { vfmaq_f32(c, a, b) }
        fn max(a: float32x4_t, b: float32x4_t) -> float32x4_t { vmaxq_f32(a, b) }
        fn min(a: float32x4_t, b: float32x4_t) -> float32x4_t { vminq_f32(a, b) }
        fn abs(a: float32x4_t) -> float32x4_t { vabsq_f32(a) }
        fn round(a: float32x4_t) -> float32x4_t { vrndnq_f32(a) }
        fn power_of_two(a: float32x4_t) -> float32x4_t {
            vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(vcvtnq_s32_f32(a), vdupq_n_s32(127))))
        }
        fn first(n: usize, v: float32x4_t, other: float32x4_t) -> float32x4_t {
            vbslq_f32(vld1q_u32(FIRST.as_ptr().add(4 - n.min(4))), v, other)
        }
        fn total(v: float32x4_t) -> f32 { vaddvq_f32(v) }
        fn largest(v: float32x4_t) -> f32 { vmaxvq_f32(v) }
        fn transpose(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {{
            let (a, b) = (vld1q_f32(from), vld1q_f32(from.add(from_stride)));
            let (c, d) = (vld1q_f32(from.add(2 * from_stride)), vld1q_f32(from.add(3 * from_stride)));
            let (low, next_low) = (vzip1q_f32(a, c), vzip1q_f32(b, d));
            let (high, next_high) = (vzip2q_f32(a, c), vzip2q_f32(b, d));
            vst1q_f32(to, vzip1q_f32(low, next_low));
            vst1q_f32(to.add(to_stride), vzip2q_f32(low, next_low));
            vst1q_f32(to.add(2 * to_stride), vzip1q_f32(high, next_high));
            vst1q_f32(to.add(3 * to_stride), vzip2q_f32(high, next_high));
        }}

        fn fetch(line: *const u32) {
            asm!("prfm pldl2keep, [{line}]", line = in(reg) line, options(readonly, nostack, preserves_flags))
        }
        fn izero() -> int32x4_t { vdupq_n_s32(0) }
        fn spread(from: *const u32) -> int32x4_t { vdupq_n_s32(from.read_unaligned() as i32) }
        fn iload(from: *const u32) -> int32x4_t { vld1q_s32(from.cast()) }
        fn istore(to: *mut u32, v: int32x4_t) { vst1q_s32(to.cast(), v) }
        fn to_float(v: int32x4_t) -> float32x4_t { vcvtq_f32_s32(v) }
        fn begin_shorts(_sum: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t {{
            let (a, b) = (vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b));
            vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b))
        }}
        fn end_shorts(sum: int32x4_t, products: int32x4_t) -> int32x4_t { vaddq_s32(sum, products) }

        fn begin_bytes(sum: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t { Self::dot_bytes(sum, a, b) }
        fn dot_bytes(chain: int32x4_t, a: int32x4_t, b: int32x4_t) -> int32x4_t {
            if DOT { signed_bytes(chain, a, b) } else { signed_bytes_by_parts(chain, a, b) }
        }
        fn end_bytes(_sum: int32x4_t, chain: int32x4_t) -> int32x4_t { chain }

        fn bf16_low(v: int32x4_t) -> float32x4_t { vreinterpretq_f32_s32(vshlq_n_s32::<16>(v)) }
        fn bf16_high(v: int32x4_t) -> float32x4_t {
            vreinterpretq_f32_s32(vandq_s32(v, vdupq_n_s32(!0xFFFF)))
        }
        fn dot_bf16(sum: float32x4_t, a: int32x4_t, b: int32x4_t) -> float32x4_t {
            if BF16 {
                bf16(sum, a, b)
            } else {
                Self::fma(
                    Self::bf16_low(a),
                    Self::bf16_low(b),
                    Self::fma(Self::bf16_high(a), Self::bf16_high(b), sum),
                )
            }
        }

        fn pair_bf16(low: float32x4_t, high: float32x4_t) -> int32x4_t {{
            let low = vshrq_n_u32::<16>(vreinterpretq_u32_f32(Self::round_bf16(low)));
            vreinterpretq_s32_u32(vorrq_u32(low, vreinterpretq_u32_f32(Self::round_bf16(high))))
        }}
        fn round_bf16(v: float32x4_t) -> float32x4_t {{
            // Round to the nearest, ties to even.
            let bits = vreinterpretq_u32_f32(v);
            let odd = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
            let up = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7FFF)));
            vreinterpretq_f32_u32(vandq_u32(up, vdupq_n_u32(!0xFFFF)))
        }}

        fn store_shorts(to: *mut i16, v: float32x4_t) { vst1_s16(to, vqmovn_s32(vcvtnq_s32_f32(v))) }
        fn store_bytes(to: *mut u8, v: float32x4_t) {{
            let shorts = vqmovn_u32(vcvtnq_u32_f32(v));
            let bytes = vreinterpret_u32_u8(vqmovn_u16(vcombine_u16(shorts, shorts)));
            to.cast::<u32>().write_unaligned(vget_lane_u32::<0>(bytes) ^ 0x8080_8080);
        }}
        fn store_bf16(to: *mut u16, v: float32x4_t) {
            vst1_u16(to, vshrn_n_u32::<16>(vreinterpretq_u32_f32(Self::round_bf16(v))))
        }
    }
}

/// The four lanes at offset `4 - n` select the first `n` lanes.
static FIRST: [u32; 8] = [u32::MAX, u32::MAX, u32::MAX, u32::MAX, 0, 0, 0, 0];
