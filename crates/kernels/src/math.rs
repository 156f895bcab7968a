//! Activation functions and the exponential function, computed for all lanes of SIMD vectors.

use crate::{network::Activation, simd::Simd};

/// Coefficients of a polynomial for `2^x` on [-½, ½]; the relative error is below 1e-7.
pub(super) const POWER: [f32; 6] =
    [1.0, 0.693_146_94, 0.240_221_2, 0.055_507_13, 0.009_675_541, 0.001_327_647_6];

/// Coefficients of a polynomial for `-log2(½·erfc(x/√2))` on [0, 6]. The error of GELU is below 4e-8.
pub(super) const TAIL: [f32; 10] = [
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

/// Evaluates a polynomial for each element of `W` vectors. The constant term is the first of the coefficients.
#[inline(always)]
unsafe fn polynomial<S: Simd, const N: usize, const W: usize>(
    x: [S::F32; W],
    coefficients: [f32; N],
) -> [S::F32; W] {
    // SAFETY: only kernels call this function, so the processor has the features of `S`.
    unsafe {
        let mut sum = [S::splat(coefficients[N - 1]); W];
        for i in (0..N - 1).rev() {
            let coefficient = S::splat(coefficients[i]);
            for w in 0..W {
                sum[w] = S::fma(sum[w], x[w], coefficient);
            }
        }
        sum
    }
}

/// Applies `f` to each of the `W` vectors.
#[inline(always)]
fn each<V: Copy, const W: usize>(x: [V; W], f: impl Fn(V) -> V) -> [V; W] {
    let mut y = x;
    for w in 0..W {
        y[w] = f(x[w]);
    }
    y
}

/// Applies `f` to each vector of `x` and the corresponding vector of `y`.
#[inline(always)]
fn both<V: Copy, const W: usize>(x: [V; W], y: [V; W], f: impl Fn(V, V) -> V) -> [V; W] {
    let mut z = x;
    for w in 0..W {
        z[w] = f(x[w], y[w]);
    }
    z
}

/// Computes `2^x` for each element of `W` vectors. The elements must be from -126 to 127.
#[inline(always)]
unsafe fn exp2<S: Simd, const W: usize>(x: [S::F32; W]) -> [S::F32; W] {
    // SAFETY: only kernels call this function, so the processor has the features of `S`.
    unsafe {
        let whole = each(x, |x| S::round(x));
        let part = polynomial::<S, 6, W>(both(x, whole, |x, w| S::sub(x, w)), POWER);
        both(part, whole, |p, w| S::mul(p, S::power_of_two(w)))
    }
}

/// Computes `e^x` for each element of `W` vectors. The results are limited to the range from e⁻⁸⁷ to e⁸⁷.
#[inline(always)]
pub(super) unsafe fn exp<S: Simd, const W: usize>(x: [S::F32; W]) -> [S::F32; W] {
    // SAFETY: only kernels call this function, so the processor has the features of `S`.
    unsafe {
        let x = each(x, |x| S::max(S::min(x, S::splat(87.0)), S::splat(-87.0)));
        let whole = each(x, |x| S::round(S::mul(x, S::splat(std::f32::consts::LOG2_E))));
        // ln 2 is split into two constants. One of them, 0.6933594, has so few significant bits that its product with
        // `w` is exact.
        let rest = both(x, whole, |x, w| {
            let rest = S::fma(w, S::splat(2.121_944_4e-4), S::fma(w, S::splat(-0.693_359_4), x));
            S::mul(rest, S::splat(std::f32::consts::LOG2_E))
        });
        both(polynomial::<S, 6, W>(rest, POWER), whole, |p, w| S::mul(p, S::power_of_two(w)))
    }
}

/// Computes GELU, `x·Φ(x)`, as `max(x, 0) - |x|·Φ(-|x|)`, where Φ is the standard normal distribution function. This
/// form loses no precision for large `|x|`.
#[inline(always)]
unsafe fn gelu<S: Simd, const W: usize>(x: [S::F32; W]) -> [S::F32; W] {
    // SAFETY: only kernels call this function, so the processor has the features of `S`.
    unsafe {
        let zero = S::splat(0.0);
        let size = each(x, |x| S::min(S::abs(x), S::splat(6.0)));
        let power = each(polynomial::<S, 10, W>(size, TAIL), |p| S::sub(zero, p));
        let tail = both(size, exp2::<S, W>(power), |s, r| S::mul(s, r));
        both(x, tail, |x, t| S::sub(S::max(x, zero), t))
    }
}

/// Computes the tanh approximation of GELU, `x·½(1 + tanh(√(2/π)(x + 0.044715x³)))`, in the same form as [`gelu`].
#[inline(always)]
unsafe fn gelu_tanh<S: Simd, const W: usize>(x: [S::F32; W]) -> [S::F32; W] {
    // SAFETY: only kernels call this function, so the processor has the features of `S`.
    unsafe {
        let (zero, one) = (S::splat(0.0), S::splat(1.0));
        let size = each(x, |x| S::abs(x));
        let bent = each(size, |s| {
            let bent = S::fma(S::mul(S::mul(s, s), S::splat(0.044_715)), s, s);
            S::mul(bent, S::splat(-1.595_769))
        });
        let tail = both(size, exp::<S, W>(bent), |s, e| S::mul(s, S::div(e, S::add(e, one))));
        both(x, tail, |x, t| S::sub(S::max(x, zero), t))
    }
}

/// Computes SiLU, `x / (1 + e⁻ˣ)`, for each element of `W` vectors.
#[inline(always)]
unsafe fn silu<S: Simd, const W: usize>(x: [S::F32; W]) -> [S::F32; W] {
    // SAFETY: only kernels call this function, so the processor has the features of `S`.
    unsafe {
        let (zero, one) = (S::splat(0.0), S::splat(1.0));
        let power = exp::<S, W>(each(x, |x| S::sub(zero, x)));
        both(x, power, |x, e| S::div(x, S::add(one, e)))
    }
}

/// Applies an activation function to all elements of `W` vectors.
#[inline(always)]
pub(super) unsafe fn activate<S: Simd, const W: usize>(
    activation: Activation,
    x: [S::F32; W],
) -> [S::F32; W] {
    // SAFETY: only kernels call this function, so the processor has the features of `S`.
    unsafe {
        match activation {
            Activation::Gelu => gelu::<S, W>(x),
            Activation::GeluTanh => gelu_tanh::<S, W>(x),
            Activation::Relu => each(x, |x| S::max(x, S::splat(0.0))),
            Activation::Silu => silu::<S, W>(x),
        }
    }
}
