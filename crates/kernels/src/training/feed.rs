//! The function between the two products of the feed-forward part, with the way back.

use super::{scalar, vectorised};
use crate::network::Activation;

/// `out = activation(x)`.
pub fn activate(activation: Activation, x: &[f32], out: &mut [f32]) {
    assert!(x.len() == out.len());
    macro_rules! each {
        ($activation:expr) => {
            vectorised(
                #[inline(always)]
                || {
                    for (out, x) in out.iter_mut().zip(x) {
                        *out = scalar::activate($activation, *x);
                    }
                },
            )
        };
    }
    // Known when it is compiled, so that the loop has no branch.
    match activation {
        Activation::Gelu => each!(Activation::Gelu),
        Activation::GeluTanh => each!(Activation::GeluTanh),
        Activation::Relu => each!(Activation::Relu),
    }
}

/// `of_x = gradient · activation′(x)`.
pub fn activate_backward(activation: Activation, x: &[f32], gradient: &[f32], of_x: &mut [f32]) {
    assert!(x.len() == of_x.len() && gradient.len() == of_x.len());
    macro_rules! each {
        ($activation:expr) => {
            vectorised(
                #[inline(always)]
                || {
                    for ((of_x, gradient), x) in of_x.iter_mut().zip(gradient).zip(x) {
                        *of_x = gradient * scalar::slope($activation, *x);
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
