//! CPU kernels of turnwise: transformer inference, operations for training ([`training`]) and vector distances
//! ([`distances`]).
//!
//! A [`Network`] holds the parameters of an encoder. A [`CpuEngine`] runs it over a [`Batch`] of token ids. The tokens
//! of a batch are concatenated without padding. A linear layer is a matrix product (GEMM) over the tokens of all
//! sequences (module `product`). Attention runs for each sequence separately.
//!
//! When a network is loaded, its weights are converted to the chosen precision and packed in the order in which the
//! kernels read them (module `pack`). Each kernel is written once, generic over `simd::Simd`, and is compiled for every
//! SIMD level. The level is chosen at run time: by default, the fastest level that passes a self-test (module
//! [`precision`]).
//!
//! The kernels are a separate crate to keep builds fast: they take most of the compile time and seldom change.
//!
//! ```
//! use turnwise_kernels::{Batch, CpuEngine, Network, Precision, Sequence, SimdChoice, network::Shape};
//!
//! // Hidden states of width 32, two attention heads, and feed-forward blocks of width 64.
//! let network = Network::random(Shape::bert(32, 2, 64), 2, 100, 16, 1);
//! let engine = CpuEngine::new(&network, Precision::F32, SimdChoice::Auto)?;
//! let (one, two) = (Sequence::new(vec![1, 2, 3]), Sequence::new(vec![4, 5]));
//! // The hidden states after the last layer: one row of 32 numbers per token.
//! engine.run(&Batch::new(&[&one, &two]), &[2], &mut |_, states| assert_eq!(states.len(), 5 * 32))?;
//! # Ok::<(), turnwise_core::Error>(())
//! ```

// The loops over a tile index several arrays with the same index. Iterators would be harder to read.
#![allow(clippy::needless_range_loop)]

mod attention;
mod codes;
pub mod distances;
mod embedder;
mod engine;
mod format;
mod layer;
mod math;
pub mod network;
mod norm;
mod pack;
pub mod precision;
mod product;
#[cfg(test)]
mod reference;
mod rotary;
mod simd;
mod speed;
mod spread;
mod squares;
#[cfg(test)]
mod tests;
mod tile;
pub mod training;

pub use attention::DistanceBias;
pub use engine::CpuEngine;
pub use network::{Batch, InputVectors, Network, Sequence};
pub use precision::Precision;
pub use simd::{SIMD_VARIABLE, SimdChoice, SimdLevel};
