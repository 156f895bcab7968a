//! Training of encoders on unlabeled dialogues.
//!
//! A [`recipe`] names the settings of a run, [`objectives`] holds the losses, and [`trainer`] runs the training loop.

pub mod data;
pub mod device;
pub mod gradients;
pub mod model;
pub mod neighbors;
pub mod objectives;
pub mod ops;
pub mod optimizer;
pub mod order;
pub mod recipe;
pub mod run;
mod scatter;
pub mod schedule;
pub mod spool;
pub mod surroundings;
pub mod teacher;
pub mod trainer;
pub mod unique;
