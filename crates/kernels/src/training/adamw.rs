//! A step of AdamW on the numbers of one tensor.

use super::vectorised;

/// What a step is taken with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// The learning rate.
    pub rate: f32,
    /// How much of the mean of gradients is kept.
    pub beta1: f32,
    /// How much of the mean of their squares.
    pub beta2: f32,
    /// Added to the root.
    pub epsilon: f32,
    /// What weights lose in a step, times the rate.
    pub decay: f32,
    /// Which step this is, from 1.
    pub step: u64,
    /// What gradients are multiplied by first: 1, or less where they are clipped.
    pub scale: f32,
}

/// Changes weights, and the means of gradients and of their squares.
pub fn adamw(with: &AdamW, weights: &mut [f32], gradient: &[f32], mean: &mut [f32], square: &mut [f32]) {
    let n = weights.len();
    assert!(gradient.len() == n && mean.len() == n && square.len() == n);
    let AdamW { rate, beta1, beta2, epsilon, decay, step, scale } = *with;
    let step = i32::try_from(step).unwrap_or(i32::MAX);
    let correct = |beta: f32| 1.0 - f64::from(beta).powi(step);
    let rate1 = (f64::from(rate) / correct(beta1)) as f32;
    let root2 = correct(beta2).sqrt() as f32;
    let kept = 1.0 - rate * decay;
    vectorised(
        #[inline(always)]
        || {
            for i in 0..n {
                let g = gradient[i] * scale;
                mean[i] = beta1 * mean[i] + (1.0 - beta1) * g;
                square[i] = beta2 * square[i] + (1.0 - beta2) * g * g;
                weights[i] = weights[i] * kept - rate1 * mean[i] / (square[i].sqrt() / root2 + epsilon);
            }
        },
    );
}
