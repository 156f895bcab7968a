//! The folder of a run.

pub mod checkpoint;
pub mod metrics;
