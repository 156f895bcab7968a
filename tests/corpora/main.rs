//! Compares the readers with the counts in the READMEs of real data sets and in the papers. These tests unpack their
//! data from `../shared/data`; if the data is missing, a test prints a message and is skipped. The tests in `chats` and
//! `never_panics` use the files in `fixtures`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod benchmarks;
mod chats;
mod data;
mod never_panics;
mod papers;
mod static_encoders;
mod tables;
mod task_oriented;
