//! Differentiable operations of an encoder on candle tensors.
//!
//! Each operation has two implementations. On the CPU in f32, our kernels compute the forward and the backward pass on
//! slices. Some kernels are also custom operations of candle for the objectives (`linear`, `add_norm`, `pool`).
//!
//! Otherwise, the operations are composed of candle's operations. The tests use this version as the reference. Some
//! operations of candle have no backward pass and report no error (`layer_norm` on contiguous tensors,
//! `softmax_last_dim`). They are not used here.

pub(super) mod attention;
pub(super) mod linear;
mod mask;
pub(super) mod norm;
mod pool;
#[cfg(test)]
pub(super) mod tests;

pub use attention::attention;
pub use linear::linear;
pub(super) use linear::{Matrix, product};
pub use norm::add_norm;
pub use pool::pool;
pub use turnwise_kernels::training::Dropout;

use std::ops::Deref;

use candle_core::{CpuStorage, DType, Layout, Result, Storage, Tensor, bail};
use rayon::prelude::*;

/// Number of rows per block. Sums over rows are computed per block and then over the blocks, so the result does not
/// depend on the number of threads.
const ROWS: usize = 64;

/// Returns true if our CPU kernels support the tensor.
fn is_ours(x: &Tensor) -> bool {
    x.device().is_cpu() && x.dtype() == DType::F32
}

/// Returns the values of a contiguous f32 tensor, or an error for any other tensor.
fn numbers<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let Some((from, to)) = layout.contiguous_offsets() else { bail!("the tensor is not contiguous") };
    match storage {
        CpuStorage::F32(numbers) => Ok(&numbers[from..to]),
        _ => bail!("the tensor is not f32"),
    }
}

/// Read guard for the values of a CPU tensor.
pub(super) struct Numbers<'a, G> {
    storage: G,
    layout: &'a Layout,
}

/// Locks the values of a tensor for reading.
pub(super) fn values_of(tensor: &Tensor) -> Numbers<'_, impl Deref<Target = Storage> + '_> {
    let (storage, layout) = tensor.storage_and_layout();
    Numbers { storage, layout }
}

impl<G: Deref<Target = Storage>> Numbers<'_, G> {
    /// Returns the values. The tensor must be contiguous, f32 and on the CPU.
    pub(super) fn get(&self) -> Result<&[f32]> {
        match &*self.storage {
            Storage::Cpu(storage) => numbers(storage, self.layout),
            _ => bail!("the tensor is not on the CPU"),
        }
    }
}

/// Computes sums over rows: in parallel for each block of rows, then over the blocks.
///
/// `add(first_row, rows, sum)` adds the contribution of a block to `sum`, which has `sums` elements.
fn over_rows(
    numbers: &[f32],
    width: usize,
    sums: usize,
    add: impl Fn(usize, &[f32], &mut [f32]) + Sync,
) -> Vec<f32> {
    let blocks: Vec<Vec<f32>> = numbers
        .par_chunks(ROWS * width)
        .enumerate()
        .map(|(n, rows)| {
            let mut sum = vec![0.0; sums];
            add(n * ROWS, rows, &mut sum);
            sum
        })
        .collect();
    sum_of(&blocks, sums)
}

/// Sums vectors with `length` elements, in order.
fn sum_of(vectors: &[Vec<f32>], length: usize) -> Vec<f32> {
    let mut total = vec![0.0; length];
    for vector in vectors {
        total.iter_mut().zip(vector).for_each(|(t, v)| *t += v);
    }
    total
}

/// Number of values per parallel task in element-wise operations.
const CHUNK: usize = 1 << 14;

/// Applies dropout to a tensor. If `dropout` is `None`, returns the tensor unchanged.
pub fn dropout(x: &Tensor, dropout: Option<Dropout>) -> Result<Tensor> {
    let Some(dropout) = dropout else { return Ok(x.clone()) };
    x * mask::mask(dropout, x.shape(), x.device())?.to_dtype(x.dtype())?
}

/// Applies dropout to values in place. The backward pass applies the same mask to the gradient.
pub(super) fn drop_of(dropout: Dropout, numbers: &mut [f32]) {
    numbers.par_chunks_mut(CHUNK).enumerate().for_each(|(n, chunk)| {
        let first = (n * CHUNK) as u32;
        for (i, number) in chunk.iter_mut().enumerate() {
            *number *= dropout.factor(first.wrapping_add(i as u32));
        }
    });
}
