//! Layer norm of a sum: `norm(x + dropout(y))`, with the way back.

use super::{Dropout, sum, vectorised};

/// What it is computed with.
#[derive(Debug, Clone, Copy)]
pub struct AddNorm<'a> {
    /// Factors.
    pub weight: &'a [f32],
    /// Summands.
    pub bias: &'a [f32],
    /// Added to the variance.
    pub epsilon: f32,
    /// What is done to what is added first.
    pub dropout: Option<Dropout>,
}

impl AddNorm<'_> {
    /// The sum that is normed, of a row that begins at a place; its mean and the inverse of its deviation.
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

/// Norms rows that begin at row `first` of all.
pub fn add_norm(norm: &AddNorm, first: usize, x: &[f32], y: &[f32], out: &mut [f32]) {
    let width = norm.weight.len();
    assert!(norm.bias.len() == width && out.len() == x.len() && y.len() == x.len());
    assert!(x.len().is_multiple_of(width));
    vectorised(
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

/// Writes the gradients of `x` and `y`, and adds those of weight and bias to theirs.
#[allow(clippy::too_many_arguments)]
pub fn add_norm_backward(
    norm: &AddNorm,
    first: usize,
    x: &[f32],
    y: &[f32],
    gradient: &[f32],
    of_x: &mut [f32],
    of_y: &mut [f32],
    of_weight: &mut [f32],
    of_bias: &mut [f32],
) {
    let width = norm.weight.len();
    assert!(of_weight.len() == width && of_bias.len() == width && x.len().is_multiple_of(width));
    assert!(gradient.len() == x.len() && of_x.len() == x.len() && y.len() == x.len());
    assert!(of_y.len() == x.len());
    let mut row = vec![0.0; width];
    vectorised(
        #[inline(always)]
        || {
            let (of_weight, of_bias) = (&mut of_weight[..width], &mut of_bias[..width]);
            let weight = &norm.weight[..width];
            for (n, of_x) in of_x.chunks_exact_mut(width).enumerate() {
                let (at, place) = (n * width, ((first + n) * width) as u32);
                let row = &mut row[..width];
                let (mean, factor) = norm.statistics(place, &x[at..at + width], &y[at..at + width], row);
                let gradient = &gradient[at..at + width];
                for i in 0..width {
                    row[i] = (row[i] - mean) * factor;
                    of_weight[i] += gradient[i] * row[i];
                    of_bias[i] += gradient[i];
                }
                let along = sum(width, |i| gradient[i] * weight[i]) / width as f32;
                let across = sum(width, |i| gradient[i] * weight[i] * row[i]) / width as f32;
                for i in 0..width {
                    of_x[i] = factor * (gradient[i] * weight[i] - along - row[i] * across);
                }
                let of_y = &mut of_y[at..at + width];
                match norm.dropout {
                    Some(dropout) => {
                        for i in 0..width {
                            of_y[i] = of_x[i] * dropout.factor(place.wrapping_add(i as u32));
                        }
                    }
                    None => of_y.copy_from_slice(of_x),
                }
            }
        },
    );
}
