//! Text to vectors.
//!
//! An [`Encoder`] turns utterances and whole dialogues into [`Vectors`]. There are two families: transformers, read
//! from a folder in the Hugging Face / sentence-transformers layout, and static encoders, which need no download.
//! What makes up a transformer is kept apart, so that each part can be tested against another: a [`Network`] is
//! the parameters alone; a [`Backend`] runs it over a [`Batch`] of token ids; pooling makes one vector of many.

pub mod batch;
pub mod contract;
pub mod cpu;
pub mod fingerprint;
pub mod network;
pub mod precision;
pub mod vectors;

pub use batch::{Batch, Sequence};
pub use contract::{DialogueMode, DialogueOptions, DialoguePooling, Encoded, Encoder, Spent, TextOptions};
pub use fingerprint::Fingerprint;
pub use network::Network;
pub use precision::Precision;
pub use vectors::Vectors;

use crate::error::Result;

/// Runs a network over batches: on the CPU by our own kernels, or through candle.
///
/// What a sequence becomes does not depend on the sequences beside it (within 1e-5 in f32).
pub trait Backend: Send + Sync {
    /// Gives the hidden states after each of the `layers` (0 is the embeddings, `n` the last of `n` layers), in
    /// growing order: `take(layer, states)`, where `states` holds one row a token, sequences end to end.
    fn run(&self, batch: &Batch, layers: &[usize], take: &mut dyn FnMut(usize, &[f32])) -> Result<()>;

    /// The width of a hidden state.
    fn hidden(&self) -> usize;

    /// What runs where, for people: `f32 on cpu (avx2)`.
    fn describe(&self) -> String;
}
