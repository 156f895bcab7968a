//! Basic types that every turnwise crate uses: ids, the error type, atomic file writes, seeded random numbers and
//! vectors.

pub mod error;
pub mod files;
pub mod ids;
pub mod numbers;
pub mod random;
pub mod script;
pub mod stats;
pub mod vectors;

pub use error::{Error, Result};
pub use vectors::Vectors;
