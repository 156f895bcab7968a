//! turnwise's search for nearest vectors.
//!
//! [`Points`] are vectors that can be searched: of one width, finite, and of length 1 where the metric is the cosine;
//! equal ones are one point. A graph over them is built on 8-bit codes, by hnsw_rs ([`Builder::HnswRs`]) or by our own
//! builder, and [frozen](freeze) into one file that is mapped and searched as it lies: what a walk reads of each node,
//! neighbour lists of fixed length, the vectors themselves for the exact scores of the best. Any number of processes may
//! map it.
//!
//! This is a crate of its own for the compiler's sake, as the encoder's kernels are: in development builds it alone is
//! fully optimised.

#![allow(clippy::needless_range_loop)]

mod aligned;
mod build;
mod exact;
mod file;
mod frozen;
mod graph;
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
pub use metric::Metric;
pub use points::{Originals, Points};
pub use products::products;
pub use progress::{Progress, Step, stopped};
pub use recall::{Recall, measure};
pub use search::{Allowed, Ask, Hit, Scratch, Way};
use turnwise_core::{Error, Result};
use turnwise_kernels::distances;
