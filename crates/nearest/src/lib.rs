//! Nearest-neighbor search of turnwise.
//!
//! [`Points`] collects the vectors of an index. Equal vectors become one point. [`write_graph`] builds an HNSW graph
//! over the points and writes it to a file. The builder is hnsw_rs ([`Builder::HnswRs`]) or the native builder of this
//! crate ([`Builder::Native`]).
//!
//! A [`GraphFile`] is read-only and memory-mapped, so any number of processes can share it. It contains quantized
//! vectors for the beam search, neighbor lists of fixed length, and the original vectors. A search scores the best
//! candidates exactly, with the original vectors.
//!
//! The search is a separate crate so that development builds can optimize it fully.
//!
//! ```
//! use turnwise_nearest::{BuildOptions, Metric, Points, Scratch, SearchOptions};
//!
//! let vectors = [[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]];
//! let mut points = Points::new(Metric::Cosine, 2)?;
//! for (row, vector) in vectors.iter().enumerate() {
//!     points.push(row as u32, vector)?;
//! }
//! let graph = points.build(&BuildOptions::default())?;
//!
//! let options = SearchOptions { k: 2, ..SearchOptions::default() };
//! let mut hits = Vec::new();
//! graph.search(&[1.0, 0.1], &options, &mut Scratch::default(), &mut hits)?;
//! assert_eq!((graph.rows(hits[0].node), graph.rows(hits[1].node)), (&[0][..], &[2][..]));
//! # Ok::<(), turnwise_core::Error>(())
//! ```

#![allow(clippy::needless_range_loop)]

mod build;
mod candidates;
mod codes;
mod exact;
mod file;
mod graph;
mod graph_file;
mod nibbles;
mod points;
mod search;
#[cfg(test)]
mod tests;

use turnwise_core::{Error, Result};
use turnwise_kernels::distances;

pub use build::{BuildOptions, Builder, Progress, Step, interrupted, write_graph};
pub use exact::{Scorer, highest, products};
pub use graph_file::{GraphFile, GraphInfo};
pub use points::{Metric, Points, VectorFormat};
pub use search::{Hit, NodeSet, Recall, Scratch, SearchMethod, SearchOptions, measure};
