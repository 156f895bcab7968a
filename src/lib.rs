//! turnwise makes conversations searchable by meaning.

pub mod corpus;
pub mod error;
pub mod ids;
#[cfg(feature = "lexical")]
pub mod index;
pub mod store;
pub mod text;

pub use error::{Error, Result};
