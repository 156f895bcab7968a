//! Compares the readers with the counts in the READMEs of real data sets and in the papers. Each test unpacks its data
//! from `../shared/data`. If the data is missing, the test prints a message and is skipped.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod benchmarks;
mod chats;
mod data;
mod never_panics;
mod papers;
mod static_encoders;
mod tables;
mod task_oriented;
