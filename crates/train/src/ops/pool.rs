//! Pooling: weighted sums over rows, for example the mean of the tokens of a sequence, a speaker or a turn.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};
use rayon::prelude::*;

use super::{is_ours, numbers, values_of};
use turnwise_encoder::Part;

/// Terms of several weighted sums: row ranges with their weights.
#[derive(Debug, Clone, Default)]
pub struct Segments {
    parts: Vec<Vec<Part>>,
}

impl Segments {
    /// Creates segments from one list of terms per sum.
    pub fn new(parts: Vec<Vec<Part>>) -> Self {
        Segments { parts }
    }

    /// Number of sums.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Returns true if there are no sums.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Iterates over all terms: index of the sum, row, and weight of the row.
    fn each(&self) -> impl Iterator<Item = (usize, usize, f32)> {
        let terms = |(n, parts): (usize, &'_ Vec<Part>)| {
            let rows = |p: &Part| p.rows.clone().map(move |row| (n, row, p.weight)).collect::<Vec<_>>();
            parts.iter().flat_map(rows).collect::<Vec<_>>()
        };
        self.parts.iter().enumerate().flat_map(terms)
    }
}

/// Computes the sums, one row per sum.
pub fn pool(x: &Tensor, segments: &Arc<Segments>) -> Result<Tensor> {
    if is_ours(x) {
        return x.contiguous()?.apply_op1(Pool(segments.clone()));
    }
    plain(x, segments)
}

/// Computes [`pool()`] with candle's operations, for tensors that the CPU kernels do not support.
pub(super) fn plain(x: &Tensor, segments: &Segments) -> Result<Tensor> {
    let (mut sums, mut rows, mut weights) = (Vec::new(), Vec::new(), Vec::new());
    for (sum, row, weight) in segments.each() {
        sums.push(sum as u32);
        rows.push(row as u32);
        weights.push(weight);
    }
    let (count, device) = (rows.len(), x.device());
    let weights = Tensor::from_vec(weights, (count, 1), device)?.to_dtype(x.dtype())?;
    let picked = x.index_select(&Tensor::from_vec(rows, count, device)?, 0)?.broadcast_mul(&weights)?;
    let zeros = Tensor::zeros((segments.len(), x.dim(1)?), x.dtype(), device)?;
    zeros.index_add(&Tensor::from_vec(sums, count, device)?, &picked, 0)
}

struct Pool(Arc<Segments>);

impl CustomOp1 for Pool {
    fn name(&self) -> &'static str {
        "pool"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (x, width) = (numbers(x, layout)?, layout.shape().dims2()?.1);
        let mut out = vec![0.0; self.0.len() * width];
        out.par_chunks_mut(width.max(1)).zip(&self.0.parts).for_each(|(out, parts)| {
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
        for (sum, row, weight) in self.0.each() {
            let from = &gradient[sum * width..(sum + 1) * width];
            let to = &mut of_x[row * width..(row + 1) * width];
            to.iter_mut().zip(from).for_each(|(t, g)| *t += weight * g);
        }
        Ok(Some(Tensor::from_vec(of_x, x.shape(), x.device())?))
    }
}
