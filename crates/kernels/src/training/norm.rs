//! Layer norm of a sum, `norm(x + dropout(y))`: forward and backward pass.

use crate::training::{Dropout, sum, vectorized};

/// Layer norm of `x + dropout(y)`: the parameters of the norm and the dropout.
#[derive(Debug, Clone, Copy)]
pub struct AddNorm<'a> {
    /// Scale of each component.
    pub weight: &'a [f32],
    /// Bias of each component.
    pub bias: &'a [f32],
    /// Epsilon that is added to the variance.
    pub epsilon: f32,
    /// Dropout of `y`.
    pub dropout: Option<Dropout>,
}

impl AddNorm<'_> {
    /// Writes `x + dropout(y)` to `row`. Returns the mean and the inverse standard deviation of `row`. `place` is the
    /// index of the row's first element in the dropout mask.
    #[inline(always)]
    fn statistics(&self, place: u32, x: &[f32], y: &[f32], row: &mut [f32]) -> (f32, f32) {
        let width = row.len();
        match self.dropout {
            Some(dropout) => {
                for i in 0..width {
                    row[i] = x[i] + y[i] * dropout.factor(place.wrapping_add(i as u32));
                }
            }
            None => {
                for i in 0..width {
                    row[i] = x[i] + y[i];
                }
            }
        }
        let mean = sum(width, |i| row[i]) / width as f32;
        let variance = sum(width, |i| (row[i] - mean) * (row[i] - mean)) / width as f32;
        (mean, 1.0 / (variance + self.epsilon).sqrt())
    }
}

/// Writes the layer norm of `x + dropout(y)` to `out`, row by row. `first` is the index of the first row in the dropout
/// mask.
pub fn add_norm(norm: &AddNorm, first: usize, x: &[f32], y: &[f32], out: &mut [f32]) {
    let width = norm.weight.len();
    assert!(norm.bias.len() == width && out.len() == x.len() && y.len() == x.len());
    assert!(x.len().is_multiple_of(width));
    vectorized(
        #[inline(always)]
        || {
            for (n, out) in out.chunks_exact_mut(width).enumerate() {
                let (at, place) = (n * width, ((first + n) * width) as u32);
                let (mean, factor) = norm.statistics(place, &x[at..at + width], &y[at..at + width], out);
                let (weight, bias) = (&norm.weight[..width], &norm.bias[..width]);
                for i in 0..width {
                    out[i] = (out[i] - mean) * factor * weight[i] + bias[i];
                }
            }
        },
    );
}

/// Writes the gradients with respect to `x` and `y` to `grad_x` and `grad_y`. Adds the gradients with respect to the
/// weight and the bias to `grad_weight` and `grad_bias`. `gradient` is the gradient with respect to the output of
/// [`add_norm`], and `first` must be the value that was passed to `add_norm`.
#[allow(clippy::too_many_arguments)]
pub fn add_norm_backward(
    norm: &AddNorm,
    first: usize,
    x: &[f32],
    y: &[f32],
    gradient: &[f32],
    grad_x: &mut [f32],
    grad_y: &mut [f32],
    grad_weight: &mut [f32],
    grad_bias: &mut [f32],
) {
    let width = norm.weight.len();
    assert!(grad_weight.len() == width && grad_bias.len() == width && x.len().is_multiple_of(width));
    assert!(gradient.len() == x.len() && grad_x.len() == x.len() && y.len() == x.len());
    assert!(grad_y.len() == x.len());
    let mut row = vec![0.0; width];
    vectorized(
        #[inline(always)]
        || {
            let (grad_weight, grad_bias) = (&mut grad_weight[..width], &mut grad_bias[..width]);
            let weight = &norm.weight[..width];
            for (n, grad_x) in grad_x.chunks_exact_mut(width).enumerate() {
                let (at, place) = (n * width, ((first + n) * width) as u32);
                let row = &mut row[..width];
                let (mean, factor) = norm.statistics(place, &x[at..at + width], &y[at..at + width], row);
                let gradient = &gradient[at..at + width];
                for i in 0..width {
                    row[i] = (row[i] - mean) * factor;
                    grad_weight[i] += gradient[i] * row[i];
                    grad_bias[i] += gradient[i];
                }
                let along = sum(width, |i| gradient[i] * weight[i]) / width as f32;
                let across = sum(width, |i| gradient[i] * weight[i] * row[i]) / width as f32;
                for i in 0..width {
                    grad_x[i] = factor * (gradient[i] * weight[i] - along - row[i] * across);
                }
                let grad_y = &mut grad_y[at..at + width];
                match norm.dropout {
                    Some(dropout) => {
                        for i in 0..width {
                            grad_y[i] = grad_x[i] * dropout.factor(place.wrapping_add(i as u32));
                        }
                    }
                    None => grad_y.copy_from_slice(grad_x),
                }
            }
        },
    );
}
