//! Backends, which run a network on batches, and pooling, which reduces the hidden states of tokens to one vector.
//!
//! The hidden states have one row per token. Every pooling mode is a weighted sum of rows or a maximum over rows:
//!
//! * Mean pooling is a sum in which each of the `n` tokens has the weight `1/n`.
//! * Pooling of the first token is a sum of a single row, with the weight 1.
//! * In pooling by speaker, each token of a speaker with `n` tokens has the weight `1/n`.
//! * The vector of a dialogue in several windows is the sum, or the maximum, over its windows.
//!
//! Therefore a [`Backend`] needs no knowledge of dialogues.

use std::ops::Range;

use turnwise_core::Result;

use crate::{Batch, Vectors, cpu::CpuEngine};

/// Runs a network on batches: on the CPU with turnwise's own kernels, or with candle.
///
/// The result for a sequence does not depend on the other sequences in the batch (within 1e-5 in f32).
pub trait Backend: Send + Sync {
    /// Computes the hidden states after each layer in `layers` and passes them to `take(layer, states)`.
    ///
    /// `layers` is in ascending order: 0 is the embeddings, and `n` is the last layer of a network with `n` layers.
    /// `states` has one row per token; sequences follow each other without padding.
    fn run(&self, batch: &Batch, layers: &[usize], take: &mut dyn FnMut(usize, &[f32])) -> Result<()>;

    /// Computes the weighted sum of the hidden states after several layers and calls `take` with it once. The sum has
    /// one row per token, as in [`Backend::run`].
    fn mixed(&self, batch: &Batch, layers: &[(usize, f32)], take: &mut dyn FnMut(&[f32])) -> Result<()> {
        let numbers: Vec<usize> = layers.iter().map(|(layer, _)| *layer).collect();
        let last = numbers.last().copied();
        let mut sum = Vec::new();
        self.run(batch, &numbers, &mut |layer, states| {
            if let [(_, 1.0)] = layers {
                return take(states);
            }
            let weight = layers.iter().find(|(l, _)| *l == layer).map_or(0.0, |(_, weight)| *weight);
            sum.resize(states.len(), 0.0);
            sum.iter_mut().zip(states).for_each(|(m, s)| *m += weight * s);
            if Some(layer) == last {
                take(&sum);
            }
        })
    }

    /// Computes the weighted sum of the hidden states of several layers, and pools it. Returns one vector per sequence
    /// for each pool. A GPU backend pools on the device, so only the pooled vectors are copied to the host.
    fn pool(&self, batch: &Batch, wanted: &PoolRequest) -> Result<Vec<Vectors>> {
        pool_all_tokens(self, batch, wanted)
    }

    /// Returns the width of the hidden states.
    fn hidden(&self) -> usize;

    /// Returns the recommended number of tokens per call, for high throughput.
    fn best_batch(&self) -> usize;

    /// Returns true if parallel calls from several threads are faster than sequential calls.
    fn wants_threads(&self) -> bool;

    /// Returns the device and precision for display, such as `f32 on cpu (avx2)`.
    fn describe(&self) -> String;
}

/// Operation that reduces several rows to one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// Weighted sum of the rows.
    Sum,
    /// Element-wise maximum of the rows; weights are ignored.
    Max,
}

/// Consecutive rows (token vectors) of a sequence that are pooled with the same weight.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Positions of the rows in the sequence.
    pub rows: Range<usize>,
    /// Weight of each row.
    pub weight: f32,
}

/// Request to compute a weighted sum of the hidden states of several layers, and to pool it.
#[derive(Debug, Clone)]
pub struct PoolRequest<'a> {
    /// Layers (0 is the embeddings) and their weights, in ascending order and without duplicates.
    pub layers: &'a [(usize, f32)],
    /// Pools to compute. Each pool produces one vector per sequence.
    pub pools: &'a [Pool<'a>],
}

impl PoolRequest<'_> {
    /// Returns the initial values of the pooled vectors.
    fn start(&self, width: usize) -> Vec<Vectors> {
        let of = |pool: &Pool| Vectors::filled(pool.parts.len(), width, empty(pool.reduction));
        self.pools.iter().map(of).collect()
    }

    /// Pools the states of a batch. `lengths` is the number of rows that `states` has for each sequence.
    fn add(
        &self,
        states: &[f32],
        width: usize,
        lengths: impl Iterator<Item = usize> + Clone,
        pooled: &mut [Vectors],
    ) {
        for (pool, pooled) in self.pools.iter().zip(pooled) {
            let mut start = 0;
            for (n, (length, parts)) in lengths.clone().zip(&pool.parts).enumerate() {
                let end = start + length * width;
                pool_into(pooled.row_mut(n), &states[start..end], parts, pool.reduction);
                start = end;
            }
        }
    }

    /// Returns the layer if the request needs the first token of each sequence only, from one layer after the
    /// embeddings.
    fn only_first_tokens(&self) -> Option<usize> {
        let is_first = |parts: &&[Part]| parts.iter().all(|part| part.rows.end <= 1);
        match self.layers {
            [(layer, 1.0)] if *layer > 0 => {
                self.pools.iter().all(|pool| pool.parts.iter().all(is_first)).then_some(*layer)
            }
            _ => None,
        }
    }
}

/// Pooling operation for all sequences of a batch.
#[derive(Debug, Clone)]
pub struct Pool<'a> {
    /// Operation that reduces the rows to one row.
    pub reduction: Reduction,
    /// For each sequence of the batch, the row ranges to pool.
    pub parts: Vec<&'a [Part]>,
}

fn pool_all_tokens(
    backend: &(impl Backend + ?Sized),
    batch: &Batch,
    wanted: &PoolRequest,
) -> Result<Vec<Vectors>> {
    let (width, mut pooled) = (backend.hidden(), wanted.start(backend.hidden()));
    backend.mixed(batch, wanted.layers, &mut |states| {
        wanted.add(states, width, batch.sequences.iter().map(|sequence| sequence.len()), &mut pooled);
    })?;
    Ok(pooled)
}

/// Pools the states of one sequence into `out`: adds the weighted rows to `out`, or takes the element-wise maximum.
pub(super) fn pool_into(out: &mut [f32], states: &[f32], parts: &[Part], reduction: Reduction) {
    let width = out.len();
    for part in parts {
        let states = &states[part.rows.start * width..part.rows.end * width];
        match reduction {
            Reduction::Sum if part.rows.len() > BLOCK => {
                // The sums of blocks are added, because rounding errors grow with the number of additions.
                for block in states.chunks(BLOCK * width) {
                    let mut sum = vec![0.0; width];
                    add_rows(&mut sum, block, 1.0);
                    add_rows(out, &sum, part.weight);
                }
            }
            Reduction::Sum => add_rows(out, states, part.weight),
            Reduction::Max => {
                for row in states.chunks_exact(width) {
                    out.iter_mut().zip(row).for_each(|(o, v)| *o = o.max(*v));
                }
            }
        }
    }
}

/// Number of rows that are summed together.
const BLOCK: usize = 256;

/// Adds weighted rows to `out`.
fn add_rows(out: &mut [f32], rows: &[f32], weight: f32) {
    for row in rows.chunks_exact(out.len()) {
        out.iter_mut().zip(row).for_each(|(o, v)| *o += weight * v);
    }
}

/// Returns the initial value of every element of a pooled vector. This value remains if there are no rows to pool.
pub(super) fn empty(reduction: Reduction) -> f32 {
    match reduction {
        Reduction::Sum => 0.0,
        Reduction::Max => f32::NEG_INFINITY,
    }
}

impl Backend for CpuEngine {
    fn run(&self, batch: &Batch, layers: &[usize], take: &mut dyn FnMut(usize, &[f32])) -> Result<()> {
        CpuEngine::run(self, batch, layers, take)
    }

    fn pool(&self, batch: &Batch, wanted: &PoolRequest) -> Result<Vec<Vectors>> {
        // If only the first tokens are pooled, the last layer need not be computed for the other tokens.
        let Some(layer) = wanted.only_first_tokens() else { return pool_all_tokens(self, batch, wanted) };
        let (width, mut pooled) = (self.hidden(), wanted.start(self.hidden()));
        self.first_tokens(batch, layer, &mut |states| {
            wanted.add(states, width, batch.sequences.iter().map(|_| 1), &mut pooled);
        })?;
        Ok(pooled)
    }

    fn hidden(&self) -> usize {
        CpuEngine::hidden(self)
    }

    fn best_batch(&self) -> usize {
        CpuEngine::best_batch(self)
    }

    fn wants_threads(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        CpuEngine::describe(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_weigh_and_maxima_do_not() {
        let states = [1.0, 2.0, 3.0, -4.0, 5.0, 6.0];
        let parts = [
            Part { rows: 0..1, weight: 0.5 },
            Part { rows: 1..3, weight: 2.0 },
            Part { rows: 1..1, weight: 9.0 },
        ];
        let mut out = [0.0; 2];
        pool_into(&mut out, &states, &parts, Reduction::Sum);
        assert_eq!(out, [16.5, 5.0]);
        // The rounding errors of a long sum stay small.
        let (mut out, n) = ([0.0], 100_000);
        pool_into(&mut out, &vec![0.1; n], &[Part { rows: 0..n, weight: 1.0 / n as f32 }], Reduction::Sum);
        assert!((out[0] - 0.1).abs() < 2e-6, "{}", out[0]);
        let mut out = [empty(Reduction::Max); 2];
        pool_into(&mut out, &states, &parts, Reduction::Max);
        assert_eq!(out, [5.0, 6.0]);
    }
}
