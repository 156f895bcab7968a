//! CPU kernels of turnwise: transformer inference, operations for training ([`training`]) and vector distances
//! ([`distances`]).
//!
//! A [`Network`] holds the parameters of an encoder. A [`CpuEngine`] runs it over a [`Batch`] of token ids. The
//! tokens of a batch are concatenated without padding. Every linear layer is one matrix product (GEMM) over all
//! tokens of the batch (`product`). Attention runs for each sequence separately.
//!
//! When a network is loaded, its weights are converted to the chosen precision and packed in the order in which the
//! kernels read them (`pack`). Each kernel is written once, generic over `simd::Simd`, and is compiled for every SIMD
//! level. The level is chosen at run time. A level is used only after its results have been verified (`precision`).
//!
//! The kernels are a separate crate to keep builds fast: they take most of the compile time and seldom change.

// The loops of a tile index several arrays with one index. An iterator over one of them would be harder to read.
#![allow(clippy::needless_range_loop)]

mod attention;
mod codes;
pub mod distances;
mod engine;
mod format;
mod layer;
mod math;
pub mod network;
mod pack;
pub mod precision;
mod product;
#[cfg(test)]
mod reference;
mod simd;
mod spread;
mod squares;
#[cfg(test)]
mod tests;
mod tile;
pub mod training;

pub use engine::CpuEngine;
pub use network::{Batch, Network, Sequence};
pub use precision::Precision;
pub use simd::{SIMD_VARIABLE, SimdChoice, SimdLevel};
