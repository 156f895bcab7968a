//! turnwise makes conversations searchable by meaning.

pub mod corpus;
pub mod error;
pub mod ids;
pub mod store;

pub use error::{Error, Result};
