//! Dropout with reproducible masks.

use candle_core::{Result, Tensor};
use rayon::prelude::*;
pub use turnwise_kernels::training::Dropout;

const CHUNK: usize = 1 << 14;

/// Applies dropout to a tensor. `None` returns it unchanged.
pub fn dropout(x: &Tensor, dropout: Option<Dropout>) -> Result<Tensor> {
    let Some(dropout) = dropout else { return Ok(x.clone()) };
    let factors: Vec<f32> = (0..x.elem_count() as u32).into_par_iter().map(|n| dropout.factor(n)).collect();
    x * Tensor::from_vec(factors, x.shape(), x.device())?.to_dtype(x.dtype())?
}

/// Applies dropout in place on the CPU. The backward pass applies the same mask to the gradient.
pub(crate) fn drop_of(dropout: Dropout, numbers: &mut [f32]) {
    numbers.par_chunks_mut(CHUNK).enumerate().for_each(|(n, chunk)| {
        let first = (n * CHUNK) as u32;
        for (i, number) in chunk.iter_mut().enumerate() {
            *number *= dropout.factor(first.wrapping_add(i as u32));
        }
    });
}
