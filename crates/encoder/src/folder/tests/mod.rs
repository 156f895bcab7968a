//! Tests with small model folders, valid and invalid.

mod architectures;
pub mod builder;
mod pipelines;
mod refused;
mod saving;
mod tokenizers;
