//! Activation functions: forward and backward pass, computed element by element without branches.

use crate::{
    math::{POWER, TAIL},
    network::Activation,
    training::vectorized,
};

/// Constant for rounding. Adding it to an f32 and then subtracting it rounds the number to the nearest integer.
const ROUND: f32 = 12_582_912.0;

/// Computes `2^x` for `x` from -126 to 127.
#[inline(always)]
fn exp2(x: f32) -> f32 {
    let whole = (x + ROUND) - ROUND;
    let part = x - whole;
    let mut sum = POWER[POWER.len() - 1];
    for i in (0..POWER.len() - 1).rev() {
        sum = sum * part + POWER[i];
    }
    sum * f32::from_bits(((whole as i32 + 127) << 23) as u32)
}

/// Computes `e^x`. The result is limited to the range from e⁻⁸⁷ to e⁸⁷.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let x = if x < 87.0 { x } else { 87.0 };
    let x = if x > -87.0 { x } else { -87.0 };
    let whole = (x * std::f32::consts::LOG2_E + ROUND) - ROUND;
    // ln 2 is split into two constants. The first constant, 0.6933594, has so few significant bits that its product
    // with `whole` is exact.
    let rest = (x - whole * 0.693_359_4) + whole * 2.121_944_4e-4;
    exp2(rest * std::f32::consts::LOG2_E) * f32::from_bits(((whole as i32 + 127) << 23) as u32)
}

/// Computes `Φ(-|x|)`, where Φ is the standard normal distribution function. If `|x|` is above 6, returns `Φ(-6)`.
#[inline(always)]
fn tail(x: f32) -> f32 {
    let size = x.abs();
    let size = if size < 6.0 { size } else { 6.0 };
    let mut sum = TAIL[TAIL.len() - 1];
    for i in (0..TAIL.len() - 1).rev() {
        sum = sum * size + TAIL[i];
    }
    exp2(-sum)
}

/// Returns `tanh(√(2/π)(x + 0.044715x³))`, and the derivative of the argument of tanh.
#[inline(always)]
fn tanh_and_slope(x: f32) -> (f32, f32) {
    const FACTOR: f32 = 0.797_884_6;
    let inner = FACTOR * (x + 0.044_715 * x * x * x);
    let e = exp(-2.0 * inner.abs());
    (((1.0 - e) / (1.0 + e)).copysign(inner), FACTOR * (1.0 + 0.134_145 * x * x))
}

/// Applies an activation function to `x`.
#[inline(always)]
fn activation_of(activation: Activation, x: f32) -> f32 {
    match activation {
        Activation::Gelu => {
            let positive = if x > 0.0 { x } else { 0.0 };
            let size = x.abs();
            let size = if size < 6.0 { size } else { 6.0 };
            positive - size * tail(x)
        }
        Activation::GeluTanh => 0.5 * x * (1.0 + tanh_and_slope(x).0),
        Activation::Relu => {
            if x > 0.0 {
                x
            } else {
                0.0
            }
        }
        Activation::Silu => x / (1.0 + exp(-x)),
    }
}

/// Computes the derivative of an activation function at `x`.
#[inline(always)]
fn slope(activation: Activation, x: f32) -> f32 {
    match activation {
        Activation::Gelu => {
            // 1/√(2π)
            let density = 0.398_942_3 * exp(-0.5 * x * x);
            0.5 + (0.5 - tail(x)).copysign(x) + x * density
        }
        Activation::GeluTanh => {
            let (bent, inner) = tanh_and_slope(x);
            0.5 * (1.0 + bent) + 0.5 * x * (1.0 - bent * bent) * inner
        }
        Activation::Relu => {
            if x > 0.0 {
                1.0
            } else {
                0.0
            }
        }
        Activation::Silu => {
            let sigmoid = 1.0 / (1.0 + exp(-x));
            sigmoid * (1.0 + x * (1.0 - sigmoid))
        }
    }
}

/// Runs a loop in which the activation function is a constant, so that the loop does not branch on it.
macro_rules! with_constant {
    ($activation:expr, $constant:ident, $loop:block) => {
        with_constant!($activation, $constant, $loop, Gelu, GeluTanh, Relu, Silu)
    };
    ($activation:expr, $constant:ident, $loop:block, $($name:ident),*) => {
        match $activation {
            $(Activation::$name => {
                const $constant: Activation = Activation::$name;
                vectorized(#[inline(always)] || $loop)
            })*
        }
    };
}

/// Computes `out = activation(x)`. Both slices must have the same length.
pub fn activate(activation: Activation, x: &[f32], out: &mut [f32]) {
    assert!(x.len() == out.len());
    with_constant!(activation, FUNCTION, {
        for (out, x) in out.iter_mut().zip(x) {
            *out = activation_of(FUNCTION, *x);
        }
    });
}

/// Computes the gradient with respect to the input, `grad_x = gradient · activation′(x)`. All slices must have the same
/// length.
pub fn activate_backward(activation: Activation, x: &[f32], gradient: &[f32], grad_x: &mut [f32]) {
    assert!(x.len() == grad_x.len() && gradient.len() == grad_x.len());
    with_constant!(activation, FUNCTION, {
        for ((grad_x, gradient), x) in grad_x.iter_mut().zip(gradient).zip(x) {
            *grad_x = gradient * slope(FUNCTION, *x);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference;

    fn samples() -> impl Iterator<Item = f32> {
        (-4000..4000).map(|n| n as f32 / 400.0 + 0.000_7)
    }

    #[test]
    fn functions_agree_with_the_reference() {
        for x in samples() {
            let e = f64::from(exp(x));
            assert!((e / f64::from(x).exp() - 1.0).abs() < 3e-7, "exp {x}: {e}");
            for activation in Activation::ALL {
                let (got, expected) =
                    (activation_of(activation, x), reference::activate(activation, f64::from(x)));
                let allowed = 1e-6 * expected.abs().max(1.0);
                assert!((f64::from(got) - expected).abs() < allowed, "{activation:?} {x}: {got} {expected}");
            }
        }
    }

    #[test]
    fn derivatives_agree_with_finite_differences() {
        for x in samples() {
            for activation in Activation::ALL {
                let at = |x: f64| reference::activate(activation, x);
                let x64 = f64::from(x);
                let expected = (at(x64 + 1e-6) - at(x64 - 1e-6)) / 2e-6;
                let got = f64::from(slope(activation, x));
                assert!((got - expected).abs() < 2e-6, "{activation:?} {x}: {got} {expected}");
            }
        }
    }
}
