//! Runs the same scenarios on every engine: a local index, which is the reference; Milvus Lite, which the test starts
//! (`tests/milvus.sh` installs it); and the cluster in `TURNWISE_MILVUS_URI`, if it is set.
//!
//! The tests compare the hits and their order, but not the BM25 scores.

// A skipped test prints the reason.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod corpus;
mod hashed_words;
mod scenarios;
mod test_engines;

#[cfg(feature = "milvus")]
mod faults;
#[cfg(feature = "milvus")]
mod server;
