//! Encoders: text to vectors.
//!
//! An [`Encoder`] turns utterances and whole dialogues into [`Vectors`]. There are two families. Transformers
//! are read from a folder in the Hugging Face / sentence-transformers layout. Static encoders need no download.
//!
//! A transformer is split into parts that can be tested separately. A [`Network`] holds only the parameters. A
//! [`Backend`] runs it on a [`Batch`] of token ids. Pooling reduces the token vectors to one vector.

pub mod ahead;
pub mod candle_engine;
pub mod contract;
pub mod cpu;
pub mod fingerprint;
pub mod folder;
pub mod hub;
pub mod open;
pub mod pooling;
pub mod statics;
#[doc(hidden)]
pub mod testing;
pub mod transformer;

pub use candle_engine::{CandleEngine, Device, DeviceChoice};
pub use contract::{
    DialogueMode, DialogueOptions, DialoguePooling, Encoded, Encoder, Spent, TextOptions, TokenVectors,
};
pub use fingerprint::Fingerprint;
pub use pooling::{Part, Pool, Reduction, Wanted};
pub use turnwise_core::Vectors;
pub use turnwise_kernels::{Batch, Network, Precision, Sequence, network};

use turnwise_core::error::Result;

/// Runs a network on batches: on the CPU with turnwise's own kernels, or with candle.
///
/// The result for a sequence does not depend on the other sequences of the batch (within 1e-5 in f32).
pub trait Backend: Send + Sync {
    /// Computes the hidden states after each of the `layers`, in ascending order. Layer 0 is the embeddings,
    /// layer `n` the last of `n` layers. Calls `take(layer, states)`; `states` has one row per token, and
    /// sequences follow each other without padding.
    fn run(&self, batch: &Batch, layers: &[usize], take: &mut dyn FnMut(usize, &[f32])) -> Result<()>;

    /// Computes the weighted sum of the hidden states after several layers; rows as in [`Backend::run`].
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

    /// Returns one vector per sequence for each pool. A GPU backend pools on the device and transfers only the
    /// vectors.
    fn pool(&self, batch: &Batch, wanted: &Wanted) -> Result<Vec<Vectors>> {
        let width = self.hidden();
        let empty = |pool: &Pool| Vectors::filled(pool.parts.len(), width, pooling::empty(pool.reduction));
        let mut pooled: Vec<Vectors> = wanted.pools.iter().map(empty).collect();
        self.mixed(batch, wanted.layers, &mut |states| {
            for (pool, pooled) in wanted.pools.iter().zip(&mut pooled) {
                let mut start = 0;
                for (n, (sequence, parts)) in batch.sequences.iter().zip(&pool.parts).enumerate() {
                    let end = start + sequence.len() * width;
                    pooling::pool_into(pooled.row_mut(n), &states[start..end], parts, pool.reduction);
                    start = end;
                }
            }
        })?;
        Ok(pooled)
    }

    /// Width of a hidden state.
    fn hidden(&self) -> usize;

    /// Number of layers, not counting the embeddings.
    fn layers(&self) -> usize;

    /// Best number of tokens per call.
    fn best_batch(&self) -> usize;

    /// Whether parallel calls from several threads are faster than sequential calls.
    fn wants_threads(&self) -> bool;

    /// Device and precision, for display: `f32 on cpu (avx2)`.
    fn describe(&self) -> String;
}
