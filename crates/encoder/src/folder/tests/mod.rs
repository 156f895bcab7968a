//! Tests with small model folders, valid and invalid.

mod architectures;
pub mod builder;
mod pipelines;
mod refused_settings;
mod refused_weights;
mod saving;
mod tokenizers;
