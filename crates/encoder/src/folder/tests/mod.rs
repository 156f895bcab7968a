//! Small folders, written by the tests themselves: one of every kind that opens, one of every kind that does not.

mod architectures;
pub mod builder;
mod pipelines;
mod refused_settings;
mod refused_weights;
mod saving;
mod tokenizers;
