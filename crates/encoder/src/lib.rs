//! Text to vectors.
//!
//! An [`Encoder`] turns utterances and whole dialogues into [`Vectors`]. There are two families: transformers, read
//! from a folder in the Hugging Face / sentence-transformers layout, and static encoders, which need no download.
//! What makes up a transformer is kept apart, so that each part can be tested against another: a [`Network`] is
//! the parameters alone; a [`Backend`] runs it over a [`Batch`] of token ids; pooling makes one vector of many.

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

/// Runs a network over batches: on the CPU by our own kernels, or through candle.
///
/// What a sequence becomes does not depend on the sequences beside it (within 1e-5 in f32).
pub trait Backend: Send + Sync {
    /// Gives the hidden states after each of the `layers` (0 is the embeddings, `n` the last of `n` layers), in
    /// growing order: `take(layer, states)`, where `states` holds one row a token, sequences end to end.
    fn run(&self, batch: &Batch, layers: &[usize], take: &mut dyn FnMut(usize, &[f32])) -> Result<()>;

    /// Gives the weighted sum of the hidden states after some layers, rows as in [`Backend::run`].
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

    /// For each pool one vector a sequence. Devices pool where the states are, so that only vectors travel.
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

    /// The width of a hidden state.
    fn hidden(&self) -> usize;

    /// How many layers can be asked for, the embeddings not counted.
    fn layers(&self) -> usize;

    /// Tokens that one call handles best.
    fn best_batch(&self) -> usize;

    /// Whether calls on several threads at once are faster than one after the other.
    fn wants_threads(&self) -> bool;

    /// What runs where, for people: `f32 on cpu (avx2)`.
    fn describe(&self) -> String;
}
