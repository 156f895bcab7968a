//! The functions between the products, on whole vectors.

use super::simd::Simd;
use crate::encoder::network::Activation;

/// `2^x` by a polynomial on [-½, ½], least squares made even; relative error under 1e-7.
const POWER: [f32; 6] = [1.0, 0.693_146_94, 0.240_221_2, 0.055_507_13, 0.009_675_541, 0.001_327_647_6];

/// `-log2(½·erfc(x/√2))` on [0, 6], weighted by what an error does to GELU: its error is under 4e-8.
const TAIL: [f32; 10] = [
    0.999_999_5,
    1.151_112_1,
    0.459_176_18,
    0.052_557_43,
    -0.007_112_094_7,
    0.000_140_632_42,
    0.000_204_613_37,
    -5.112_164e-5,
    5.733_381_4e-6,
    -2.595_554_6e-7,
];

/// A polynomial, its coefficients from the constant one up.
#[inline(always)]
unsafe fn polynomial<S: Simd, const N: usize>(x: S::F32, coefficients: [f32; N]) -> S::F32 {
    // SAFETY: called from within a kernel.
    unsafe {
        let mut sum = S::splat(coefficients[N - 1]);
        for i in (0..N - 1).rev() {
            sum = S::fma(sum, x, S::splat(coefficients[i]));
        }
        sum
    }
}

/// `2^x` for `x` from -126 to 127.
#[inline(always)]
unsafe fn exp2<S: Simd>(x: S::F32) -> S::F32 {
    // SAFETY: called from within a kernel.
    unsafe {
        let whole = S::round(x);
        S::mul(polynomial::<S, 6>(S::sub(x, whole), POWER), S::power_of_two(whole))
    }
}

/// `e^x`; what is under e⁻⁸⁷ is given as that, what is over e⁸⁷ likewise.
#[inline(always)]
pub(super) unsafe fn exp<S: Simd>(x: S::F32) -> S::F32 {
    // SAFETY: called from within a kernel.
    unsafe {
        let x = S::max(S::min(x, S::splat(87.0)), S::splat(-87.0));
        let whole = S::round(S::mul(x, S::splat(std::f32::consts::LOG2_E)));
        // ln 2 in two parts, the first short enough that its product with a whole number is exact.
        let rest = S::fma(whole, S::splat(-0.693_359_4), x);
        let rest = S::fma(whole, S::splat(2.121_944_4e-4), rest);
        let rest = S::mul(rest, S::splat(std::f32::consts::LOG2_E));
        S::mul(polynomial::<S, 6>(rest, POWER), S::power_of_two(whole))
    }
}

/// `x·Φ(x)`. With the tail `r = Φ(-|x|)` it is `max(x, 0) - |x|·r`, which loses nothing on either side.
#[inline(always)]
unsafe fn gelu<S: Simd>(x: S::F32) -> S::F32 {
    // SAFETY: called from within a kernel.
    unsafe {
        let size = S::min(S::abs(x), S::splat(6.0));
        let tail = exp2::<S>(S::sub(S::splat(0.0), polynomial::<S, 10>(size, TAIL)));
        S::sub(S::max(x, S::splat(0.0)), S::mul(size, tail))
    }
}

/// `x·½(1 + tanh(√(2/π)(x + 0.044715x³)))`, in the same form.
#[inline(always)]
unsafe fn gelu_tanh<S: Simd>(x: S::F32) -> S::F32 {
    // SAFETY: called from within a kernel.
    unsafe {
        let size = S::abs(x);
        let bent = S::fma(S::mul(S::mul(size, size), S::splat(0.044_715)), size, size);
        let e = exp::<S>(S::mul(bent, S::splat(-1.595_769_1)));
        let tail = S::div(e, S::add(e, S::splat(1.0)));
        S::sub(S::max(x, S::splat(0.0)), S::mul(size, tail))
    }
}

/// The function between the two products of the feed-forward part.
#[inline(always)]
pub(super) unsafe fn activate<S: Simd>(activation: Activation, x: S::F32) -> S::F32 {
    // SAFETY: called from within a kernel.
    unsafe {
        match activation {
            Activation::Gelu => gelu::<S>(x),
            Activation::GeluTanh => gelu_tanh::<S>(x),
            Activation::Relu => S::max(x, S::splat(0.0)),
        }
    }
}
