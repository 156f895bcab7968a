//! Dropout with a seed.

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};
use rayon::prelude::*;
pub use turnwise_kernels::training::Dropout;

use super::{held, is_ours, numbers};

const CHUNK: usize = 1 << 14;

/// Drops numbers of `x`, or none.
pub fn dropout(x: &Tensor, dropout: Option<Dropout>) -> Result<Tensor> {
    match dropout {
        None => Ok(x.clone()),
        Some(dropout) if is_ours(x) => x.contiguous()?.apply_op1(Drops(dropout)),
        Some(dropout) => plain(x, dropout),
    }
}

/// The same of candle's operations.
pub(super) fn plain(x: &Tensor, dropout: Dropout) -> Result<Tensor> {
    let factors: Vec<f32> = (0..x.elem_count() as u32).into_par_iter().map(|n| dropout.factor(n)).collect();
    x * Tensor::from_vec(factors, x.shape(), x.device())?.to_dtype(x.dtype())?
}

/// Drops numbers where they are. What was dropped of numbers is dropped of their gradient.
pub(in crate::train) fn drop_of(dropout: Dropout, numbers: &mut [f32]) {
    numbers.par_chunks_mut(CHUNK).enumerate().for_each(|(n, chunk)| {
        let first = (n * CHUNK) as u32;
        for (i, number) in chunk.iter_mut().enumerate() {
            *number *= dropout.factor(first.wrapping_add(i as u32));
        }
    });
}

struct Drops(Dropout);

impl Drops {
    fn apply(&self, x: &[f32]) -> Vec<f32> {
        let mut out = x.to_vec();
        drop_of(self.0, &mut out);
        out
    }
}

impl CustomOp1 for Drops {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((CpuStorage::F32(self.apply(numbers(x, layout)?)), layout.shape().clone()))
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let gradient = gradient.contiguous()?;
        let of_x = self.apply(held(&gradient).get()?);
        Ok(Some(Tensor::from_vec(of_x, x.shape(), x.device())?))
    }
}
