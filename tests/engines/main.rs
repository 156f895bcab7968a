//! Runs the same scenarios on every engine, and compares the results with those of a local index. The tests start
//! Milvus Lite, which `tests/milvus.sh` installs. If `TURNWISE_MILVUS_URI` is set, they also use the cluster at this
//! address.
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
