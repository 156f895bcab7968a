//! turnwise makes conversations searchable by meaning.

#[cfg(feature = "cli")]
pub mod cli;
pub mod corpus;
pub mod error;
pub mod ids;
#[cfg(feature = "lexical")]
pub mod index;
pub mod samples;
pub mod store;
pub mod text;

pub use error::{Error, Result};
