//! Activation function of the feed-forward block: forward and backward pass.

use super::{scalar, vectorized};
use crate::network::Activation;

/// Computes `out = activation(x)`.
pub fn activate(activation: Activation, x: &[f32], out: &mut [f32]) {
    assert!(x.len() == out.len());
    macro_rules! each {
        ($activation:expr) => {
            vectorized(
                #[inline(always)]
                || {
                    for (out, x) in out.iter_mut().zip(x) {
                        *out = scalar::activate($activation, *x);
                    }
                },
            )
        };
    }
    // The activation is a constant in each loop, so the loops have no branches.
    match activation {
        Activation::Gelu => each!(Activation::Gelu),
        Activation::GeluTanh => each!(Activation::GeluTanh),
        Activation::Relu => each!(Activation::Relu),
    }
}

/// Computes the gradient of the input, `grad_x = gradient · activation′(x)`.
pub fn activate_backward(activation: Activation, x: &[f32], gradient: &[f32], grad_x: &mut [f32]) {
    assert!(x.len() == grad_x.len() && gradient.len() == grad_x.len());
    macro_rules! each {
        ($activation:expr) => {
            vectorized(
                #[inline(always)]
                || {
                    for ((grad_x, gradient), x) in grad_x.iter_mut().zip(gradient).zip(x) {
                        *grad_x = gradient * scalar::slope($activation, *x);
                    }
                },
            )
        };
    }
    match activation {
        Activation::Gelu => each!(Activation::Gelu),
        Activation::GeluTanh => each!(Activation::GeluTanh),
        Activation::Relu => each!(Activation::Relu),
    }
}
