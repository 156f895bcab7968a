//! Our own inference on the CPU.
//!
//! The tokens of a batch lie end to end, without padding, and every linear layer is one product over all of them
//! (`product`); attention is by sequence. Weights are packed at loading in the order in which the kernels read them,
//! and in the numbers in which they multiply (`pack`). Kernels are written once, over `simd::Simd`, and compiled for
//! each kind of vectors; which of them is used is decided at run time, after it has proved right (`proof`).

// A tile's loops run over one index of several arrays at once; an iterator over one of them would hide the others.
#![allow(clippy::needless_range_loop)]

mod attention;
mod buffer;
mod codes;
mod embed;
mod engine;
mod format;
mod layer;
mod math;
mod norm;
mod pack;
mod product;
mod proof;
#[cfg(test)]
mod reference;
mod simd;
#[cfg(test)]
mod tests;
mod tile;

pub use engine::CpuEngine;
pub use simd::{SIMD_VARIABLE, SimdChoice, SimdLevel};
