//! The readers against the real data sets: counts from their READMEs and the papers. Each test unpacks what it needs
//! from `../shared/data` and skips, saying so, where that is absent.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod benchmarks;
mod chats;
mod data;
mod never_panics;
mod papers;
mod static_encoders;
mod tables;
mod task_oriented;
