//! Encoders: text to vectors.
//!
//! An [`Encoder`] turns utterances and whole dialogues into [`Vectors`]. There are two families. Transformers are read
//! from a folder in the Hugging Face / sentence-transformers layout. Static encoders work on words.
//!
//! A transformer is split into parts that can be tested separately. A [`Network`] holds only the parameters. A
//! [`Backend`] runs the network on a [`Batch`] of token ids. Pooling reduces the token vectors to one vector.
//!
//! ```
//! use turnwise_encoder::{Encoder, TextOptions, statics::{TfidfSettings, fit_tfidf}};
//!
//! let texts = ["my card is lost", "where is my parcel", "the parcel is lost", "block my card"];
//! let encoder = fit_tfidf(texts.iter().map(|text| (*text).to_owned()), &TfidfSettings::default())?;
//! let encoded = encoder.encode(&["a lost parcel"], &TextOptions::default())?;
//! assert_eq!(encoded.vectors.row(0).len(), encoder.dim());
//! # Ok::<(), turnwise_core::Error>(())
//! ```

pub mod ahead;
mod backend;
pub mod candle_engine;
pub mod contract;
pub mod fingerprint;
pub mod folder;
pub mod hub;
pub mod open;
pub mod selector;
pub mod statics;
#[doc(hidden)]
pub mod testing;
pub mod transformer;

pub use backend::{Backend, Part, Pool, PoolRequest, Reduction};
pub use candle_engine::{CandleEngine, Device, DeviceChoice};
pub use contract::{
    DialogueMode, DialogueOptions, DialoguePooling, EncodeStats, Encoded, Encoder, TextOptions, TokenVectors,
};
pub use fingerprint::Fingerprint;
pub use turnwise_core::Vectors;
pub use turnwise_kernels::{Batch, InputVectors, Network, Precision, Sequence, network};

/// CPU inference with the kernels of the crate `turnwise-kernels`.
pub mod cpu {
    pub use turnwise_kernels::{CpuEngine, SIMD_VARIABLE, SimdChoice, SimdLevel};
}
