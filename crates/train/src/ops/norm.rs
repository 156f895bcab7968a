//! Residual connection with layer normalization: `norm(x + dropout(y))`, used at the end of each block of a
//! transformer layer.

use candle_core::{CpuStorage, CustomOp3, D, Layout, Result, Shape, Tensor};
use rayon::prelude::*;
use turnwise_kernels::training::{self, AddNorm};

use super::{Dropout, ROWS, dropout, is_ours, numbers, sum_of, values_of};

/// Computes `norm(x + dropout(y))`. `norm` has two rows: weight and bias.
pub fn add_norm(
    x: &Tensor,
    y: &Tensor,
    norm: &Tensor,
    epsilon: f32,
    dropped: Option<Dropout>,
) -> Result<Tensor> {
    if is_ours(x) {
        return x.contiguous()?.apply_op3(&y.contiguous()?, norm, Normed { epsilon, dropped });
    }
    plain(x, y, norm, epsilon, dropped)
}

/// Computes [`add_norm`] with candle's operations, for tensors that the CPU kernels do not support.
pub(super) fn plain(
    x: &Tensor,
    y: &Tensor,
    norm: &Tensor,
    epsilon: f32,
    dropped: Option<Dropout>,
) -> Result<Tensor> {
    let x = (x + dropout(y, dropped)?)?;
    let centered = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
    let deviation = (centered.sqr()?.mean_keepdim(D::Minus1)? + f64::from(epsilon))?.sqrt()?;
    centered.broadcast_div(&deviation)?.broadcast_mul(&norm.get(0)?)?.broadcast_add(&norm.get(1)?)
}

/// Residual connection with layer normalization on the CPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Normed {
    pub(crate) epsilon: f32,
    pub(crate) dropped: Option<Dropout>,
}

impl Normed {
    fn with<'a>(&self, norm: &'a [f32]) -> AddNorm<'a> {
        let (weight, bias) = norm.split_at(norm.len() / 2);
        AddNorm { weight, bias, epsilon: self.epsilon, dropout: self.dropped }
    }

    /// Writes `norm(x + dropout(y))` to `out`.
    pub(crate) fn apply(&self, norm: &[f32], x: &[f32], y: &[f32], out: &mut [f32]) {
        let chunk = ROWS * norm.len() / 2;
        out.par_chunks_mut(chunk)
            .zip(x.par_chunks(chunk))
            .zip(y.par_chunks(chunk))
            .enumerate()
            .for_each(|(n, ((out, x), y))| training::add_norm(&self.with(norm), n * ROWS, x, y, out));
    }

    /// Writes the gradients with respect to `x` and `y` to `of_x` and `of_y`. Returns the gradient with respect to
    /// `norm`.
    pub(crate) fn backward(
        &self,
        norm: &[f32],
        [x, y]: [&[f32]; 2],
        gradient: &[f32],
        [of_x, of_y]: [&mut [f32]; 2],
    ) -> Vec<f32> {
        let chunk = ROWS * norm.len() / 2;
        let blocks: Vec<Vec<f32>> = of_x
            .par_chunks_mut(chunk)
            .zip(of_y.par_chunks_mut(chunk))
            .zip(x.par_chunks(chunk))
            .zip(y.par_chunks(chunk))
            .zip(gradient.par_chunks(chunk))
            .enumerate()
            .map(|(n, ((((of_x, of_y), x), y), gradient))| {
                let mut of_norm = vec![0.0; norm.len()];
                let (of_weight, of_bias) = of_norm.split_at_mut(norm.len() / 2);
                let with = self.with(norm);
                training::add_norm_backward(&with, n * ROWS, x, y, gradient, of_x, of_y, of_weight, of_bias);
                of_norm
            })
            .collect();
        sum_of(&blocks, norm.len())
    }
}

impl CustomOp3 for Normed {
    fn name(&self) -> &'static str {
        "add_norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        y: &CpuStorage,
        y_layout: &Layout,
        norm: &CpuStorage,
        norm_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (x, y, norm) = (numbers(x, x_layout)?, numbers(y, y_layout)?, numbers(norm, norm_layout)?);
        let mut out = vec![0.0; x.len()];
        self.apply(norm, x, y, &mut out);
        Ok((CpuStorage::F32(out), x_layout.shape().clone()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        y: &Tensor,
        norm: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        let (x_numbers, y_numbers, norm_numbers, gradient) =
            (values_of(x), values_of(y), values_of(norm), values_of(&gradient));
        let (x_numbers, y_numbers) = (x_numbers.get()?, y_numbers.get()?);
        let (mut of_x, mut of_y) = (vec![0.0; x_numbers.len()], vec![0.0; x_numbers.len()]);
        let of_norm = self.backward(
            norm_numbers.get()?,
            [x_numbers, y_numbers],
            gradient.get()?,
            [&mut of_x, &mut of_y],
        );
        let tensor =
            |numbers: Vec<f32>, like: &Tensor| Tensor::from_vec(numbers, like.shape(), like.device());
        Ok((Some(tensor(of_x, x)?), Some(tensor(of_y, y)?), Some(tensor(of_norm, norm)?)))
    }
}
