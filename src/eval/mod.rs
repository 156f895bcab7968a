//! How good a search is: the papers' tasks, whoever ranks, and measures that agree with the standard tools.

pub mod build;
pub mod compare;
pub mod data;
pub mod order;
pub mod rank;
pub mod recipe;
pub mod result;
pub mod significance;
pub mod tasks;
pub mod trec;
