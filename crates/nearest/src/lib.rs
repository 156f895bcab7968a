//! Nearest-neighbor search of turnwise.
//!
//! [`Points`] collects the vectors of an index. All have the same number of dimensions, and equal vectors become one
//! point. [`freeze`] builds an HNSW graph over the points and writes it to a file. The builder is hnsw_rs
//! ([`Builder::HnswRs`]) or our own ([`Builder::Native`]). Both compare vectors by 8-bit codes.
//!
//! The file is read-only and memory-mapped, so any number of processes can share it ([`Frozen`]). It contains
//! quantized vectors for the beam search, neighbor lists of fixed length, and the original vectors. A search scores
//! the best candidates exactly, with the original vectors.
//!
//! This is a separate crate so that development builds can optimize it fully, like the kernels.

#![allow(clippy::needless_range_loop)]

mod aligned;
mod build;
mod exact;
mod file;
mod frozen;
mod graph;
mod highest;
mod metric;
mod nibbles;
mod points;
mod products;
mod progress;
mod quantizer;
mod recall;
mod search;
mod skim;
#[cfg(test)]
mod tests;
mod walk;

pub use build::{BuildOptions, Builder, freeze};
pub use exact::Scorer;
pub use frozen::{Frozen, Info};
pub use highest::highest;
pub use metric::Metric;
pub use points::{Originals, Points};
pub use products::products;
pub use progress::{Progress, Step, stopped};
pub use recall::{Recall, measure};
pub use search::{Allowed, Ask, Hit, Scratch, Way};
use turnwise_core::{Error, Result};
use turnwise_kernels::distances;
