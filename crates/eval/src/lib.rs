//! Evaluation of rankers and encoders: evaluation tasks from papers, rankers, and measures that agree with trec_eval.

pub mod ann;
pub mod build;
pub mod cookbook;
pub mod data;
pub mod groups;
pub mod halves;
pub mod label_free;
pub mod plots;
pub mod rank;
pub mod recipe;
pub mod replies;
pub mod result;
pub mod significance;
pub mod tables;
pub mod tasks;
pub mod throughput;
pub mod trec;
