//! Files in the folder of a training run.

pub mod card;
pub mod checkpoint;
pub mod evaluations;
pub mod events;
pub mod learned;
pub mod lines;
pub mod metrics;
