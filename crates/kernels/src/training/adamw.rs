//! AdamW optimizer step for one tensor.

use super::vectorized;

/// Hyperparameters of an AdamW step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// Learning rate.
    pub rate: f32,
    /// Decay rate of the first moment, the moving average of the gradients.
    pub beta1: f32,
    /// Decay rate of the second moment, the moving average of the squared gradients.
    pub beta2: f32,
    /// Term added to the denominator for numerical stability.
    pub epsilon: f32,
    /// Weight decay; it is multiplied by the learning rate.
    pub decay: f32,
    /// Step number, starting at 1. It is used for bias correction.
    pub step: u64,
    /// Factor that the gradients are multiplied by: 1, or less with gradient clipping.
    pub scale: f32,
}

/// Updates the weights, the first moment (`mean`) and the second moment (`square`) in place.
pub fn adamw(with: &AdamW, weights: &mut [f32], gradient: &[f32], mean: &mut [f32], square: &mut [f32]) {
    let n = weights.len();
    assert!(gradient.len() == n && mean.len() == n && square.len() == n);
    let AdamW { rate, beta1, beta2, epsilon, decay, step, scale } = *with;
    let step = i32::try_from(step).unwrap_or(i32::MAX);
    let correct = |beta: f32| 1.0 - f64::from(beta).powi(step);
    let rate1 = (f64::from(rate) / correct(beta1)) as f32;
    let root2 = correct(beta2).sqrt() as f32;
    let kept = 1.0 - rate * decay;
    vectorized(
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
