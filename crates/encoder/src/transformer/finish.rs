//! Final steps from pooled states to vectors: the model's dense layers, normalization and truncation.

use rayon::prelude::*;

use crate::{
    Vectors,
    folder::{Dense, DenseActivation, Pipeline, Step},
};
use turnwise_core::error::{Error, Result};

/// Returns the width of the final vectors for pooled vectors of width `pooled`. Returns an error if the dense layers
/// have a different input width.
pub(super) fn width(pipeline: &Pipeline, pooled: usize, name: &str) -> Result<usize> {
    let mut width = pooled;
    for step in &pipeline.steps {
        if let Step::Dense(dense) = step {
            if dense.inputs != width {
                return Err(Error::Input {
                    message: format!(
                        "{name} has a dense layer for vectors of {} dimensions, but this pooling produces {width}",
                        dense.inputs
                    ),
                    hint: Some("use the model's own pooling".to_owned()),
                });
            }
            width = dense.outputs;
        }
    }
    Ok(width)
}

pub(super) fn finish(
    pooled: Vectors,
    pipeline: &Pipeline,
    dim: usize,
    also_normalize: bool,
) -> Result<Vectors> {
    let mut vectors = pooled;
    for step in &pipeline.steps {
        match step {
            Step::Normalize => vectors.normalize(),
            Step::Dense(layer) => vectors = dense(layer, &vectors),
        }
    }
    let mut vectors = vectors.truncate(dim);
    if also_normalize {
        vectors.normalize();
    }
    let wrong = vectors.rows().position(|row| row.iter().any(|v| !v.is_finite()));
    match wrong {
        None => Ok(vectors),
        Some(n) => Err(Error::Data {
            message: format!("the model computed values that are not finite for input {}", n + 1),
            hint: Some("use --precision f32; if that fails too, the model's weights are damaged".to_owned()),
        }),
    }
}

fn dense(layer: &Dense, vectors: &Vectors) -> Vectors {
    let mut out = Vectors::zeros(vectors.len(), layer.outputs);
    let rows: Vec<Vec<f32>> = (0..vectors.len())
        .into_par_iter()
        .map(|n| {
            let x = vectors.row(n);
            let sum = |weights: &[f32]| {
                weights.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum::<f64>()
            };
            layer
                .weight
                .chunks_exact(layer.inputs)
                .enumerate()
                .map(|(o, weights)| {
                    let bias = layer.bias.as_ref().map_or(0.0, |b| b[o]);
                    activate(layer.activation, sum(weights) as f32 + bias)
                })
                .collect()
        })
        .collect();
    rows.iter().enumerate().for_each(|(n, row)| out.row_mut(n).copy_from_slice(row));
    out
}

fn activate(activation: DenseActivation, x: f32) -> f32 {
    match activation {
        DenseActivation::Identity => x,
        DenseActivation::Tanh => x.tanh(),
        DenseActivation::Relu => x.max(0.0),
        DenseActivation::Gelu => {
            let x = f64::from(x);
            (0.5 * x * (1.0 + candle_core::cpu::erf::erf_f64(x * std::f64::consts::FRAC_1_SQRT_2))) as f32
        }
        DenseActivation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        DenseActivation::Silu => x / (1.0 + (-x).exp()),
    }
}
