//! How good a search is: the papers' tasks, whoever ranks, and measures that agree with the standard tools.

pub mod ann;
pub mod build;
pub mod compare;
pub mod cookbook;
pub mod data;
pub mod halves;
pub mod label_free;
pub mod order;
pub mod rank;
pub mod recipe;
pub mod result;
pub mod result_store;
pub mod significance;
pub mod tables;
pub mod tasks;
pub mod throughput;
pub mod trec;
