//! Differentiable steps of an encoder on candle's tensors.
//!
//! Each has two ways. On the CPU numbers are worked on where they lie, by our kernels, with ways back of their own: passes
//! call these, and what objectives need of them (`linear`, `add_norm`, `pool`) is an operation of candle's, too. Elsewhere,
//! and as the reference that the first is tested against, each is put together of candle's operations. Some of candle's own
//! have no way back and say nothing (`layer_norm` on contiguous numbers, `softmax_last_dim`): none of those is used here.

pub(super) mod attention;
pub(super) mod dropout;
pub(super) mod linear;
pub(super) mod norm;
mod pool;
mod product;
#[cfg(test)]
pub(super) mod tests;

pub use attention::attention;
pub use dropout::{Dropout, dropout};
pub use linear::linear;
pub use norm::add_norm;
pub use pool::{Segments, pool};
pub(super) use product::{Matrix, product};

use std::ops::Deref;

use candle_core::{CpuStorage, DType, Layout, Result, Storage, Tensor, bail};
use rayon::prelude::*;

/// Rows that are worked on together. Sums over rows are made in blocks of so many and then over the blocks, so that they
/// do not hang on the number of threads.
const ROWS: usize = 64;

/// Whether the CPU's own operations take it.
fn is_ours(x: &Tensor) -> bool {
    x.device().is_cpu() && x.dtype() == DType::F32
}

/// The numbers of an operation's argument.
fn numbers<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let Some((from, to)) = layout.contiguous_offsets() else {
        bail!("the numbers do not lie one behind the other")
    };
    match storage {
        CpuStorage::F32(numbers) => Ok(&numbers[from..to]),
        _ => bail!("numbers of another kind than f32"),
    }
}

/// The numbers of a tensor on the CPU, held as long as they are read.
pub(super) struct Numbers<'a, G> {
    storage: G,
    layout: &'a Layout,
}

/// Holds the numbers of a tensor.
pub(super) fn held(tensor: &Tensor) -> Numbers<'_, impl Deref<Target = Storage> + '_> {
    let (storage, layout) = tensor.storage_and_layout();
    Numbers { storage, layout }
}

impl<G: Deref<Target = Storage>> Numbers<'_, G> {
    pub(super) fn get(&self) -> Result<&[f32]> {
        match &*self.storage {
            Storage::Cpu(storage) => numbers(storage, self.layout),
            _ => bail!("numbers that are not on the CPU"),
        }
    }
}

/// Adds up what `add(first row, rows of a block, sum)` adds for every block of rows of that width.
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
    let mut total = vec![0.0; sums];
    for block in &blocks {
        total.iter_mut().zip(block).for_each(|(t, b)| *t += b);
    }
    total
}
