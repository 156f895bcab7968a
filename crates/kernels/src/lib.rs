//! turnwise's inference of transformers on the CPU, and the loops of their training ([`training`]).
//!
//! A [`Network`] is the parameters alone; [`CpuEngine`] runs it over a [`Batch`] of token ids. The tokens of a batch lie
//! end to end, without padding, and every linear layer is one product over all of them (`product`); attention is by
//! sequence. Weights are packed at loading in the order in which the kernels read them, and in the numbers in which they
//! multiply (`pack`). Kernels are written once, over `simd::Simd`, and compiled for each kind of vectors; which of them
//! is used is decided at run time, after it has proved right (`proof`).
//!
//! This is a crate of its own because of the compiler: inlined for every processor and every kind of numbers, the kernels
//! are most of what it has to do for turnwise, and they seldom change.

// A tile's loops run over one index of several arrays at once; an iterator over one of them would hide the others.
#![allow(clippy::needless_range_loop)]

mod attention;
pub mod batch;
mod buffer;
mod codes;
pub mod distances;
mod embed;
mod engine;
mod format;
mod layer;
mod math;
pub mod network;
mod norm;
mod pack;
pub mod precision;
mod product;
mod proof;
#[cfg(test)]
mod reference;
mod simd;
mod spread;
mod squares;
#[cfg(test)]
mod tests;
mod tile;
pub mod training;

pub use batch::{Batch, Sequence};
pub use engine::CpuEngine;
pub use network::Network;
pub use precision::Precision;
pub use simd::{SIMD_VARIABLE, SimdChoice, SimdLevel};
