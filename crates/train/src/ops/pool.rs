//! Pooling: weighted sums over rows, for example the mean of the tokens of a sequence, a speaker or a turn.

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

use super::{is_ours, numbers, values_of};
use turnwise_encoder::Part;

/// Computes weighted sums of rows of `x`, one output row per sum. Each sum is a list of row ranges with their weights.
pub fn pool(x: &Tensor, sums: Vec<Vec<Part>>) -> Result<Tensor> {
    match is_ours(x) {
        true => x.contiguous()?.apply_op1(Pool(sums)),
        false => plain(x, &sums),
    }
}

/// Computes [`pool()`] with candle's operations, for tensors that the CPU kernels do not support.
pub(super) fn plain(x: &Tensor, sums: &[Vec<Part>]) -> Result<Tensor> {
    let (mut of_sum, mut rows, mut weights) = (Vec::new(), Vec::new(), Vec::new());
    for (sum, row, weight) in terms(sums) {
        of_sum.push(sum as u32);
        rows.push(row as u32);
        weights.push(weight);
    }
    let (count, device) = (rows.len(), x.device());
    let weights = Tensor::from_vec(weights, (count, 1), device)?.to_dtype(x.dtype())?;
    let picked = x.index_select(&Tensor::from_vec(rows, count, device)?, 0)?.broadcast_mul(&weights)?;
    let zeros = Tensor::zeros((sums.len(), x.dim(1)?), x.dtype(), device)?;
    zeros.index_add(&Tensor::from_vec(of_sum, count, device)?, &picked, 0)
}

/// Iterates over all terms of the sums: index of the sum, row, and weight of the row.
fn terms(sums: &[Vec<Part>]) -> impl Iterator<Item = (usize, usize, f32)> {
    let parts = sums.iter().enumerate().flat_map(|(n, parts)| parts.iter().map(move |part| (n, part)));
    parts.flat_map(|(n, part)| part.rows.clone().map(move |row| (n, row, part.weight)))
}

/// Custom operation of candle that computes the sums on the CPU.
struct Pool(Vec<Vec<Part>>);

impl CustomOp1 for Pool {
    fn name(&self) -> &'static str {
        "pool"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (x, width) = (numbers(x, layout)?, layout.shape().dims2()?.1);
        let mut out = vec![0.0; self.0.len() * width];
        out.par_chunks_mut(width.max(1)).zip(&self.0).for_each(|(out, parts)| {
            for part in parts {
                for row in x[part.rows.start * width..part.rows.end * width].chunks_exact(width) {
                    out.iter_mut().zip(row).for_each(|(o, v)| *o += part.weight * v);
                }
            }
        });
        Ok((CpuStorage::F32(out), (self.0.len(), width).into()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        let (gradient, width) = (values_of(&gradient), x.dim(1)?);
        let gradient = gradient.get()?;
        let mut of_x = vec![0.0; x.elem_count()];
        for (sum, row, weight) in terms(&self.0) {
            let from = &gradient[sum * width..(sum + 1) * width];
            let to = &mut of_x[row * width..(row + 1) * width];
            to.iter_mut().zip(from).for_each(|(t, g)| *t += weight * g);
        }
        Ok(Some(Tensor::from_vec(of_x, x.shape(), x.device())?))
    }
}
