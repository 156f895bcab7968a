//! The folder of a run.

pub mod card;
pub mod checkpoint;
pub mod metrics;
