//! What every other crate of turnwise builds on: ids, the one error type, durable files, seeded randomness, rows of vectors.

pub mod error;
pub mod files;
pub mod ids;
pub mod random;
pub mod script;
pub mod stats;
pub mod vectors;

pub use error::{Error, Result};
pub use vectors::Vectors;
