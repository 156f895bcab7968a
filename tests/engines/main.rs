//! Runs the same scenarios on every engine and compares the results with those of a local index. The engines are Milvus
//! Lite, which the tests start, and the cluster in `TURNWISE_MILVUS_URI`, if it is set. `tests/milvus.sh` installs
//! Milvus Lite.
//!
//! The tests compare the hits and their order, but not the BM25 scores.

// Printing is allowed, because a skipped test prints the reason.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod corpus;
mod hashed_words;
mod scenarios;
mod test_engines;

#[cfg(feature = "milvus")]
mod faults;
#[cfg(feature = "milvus")]
mod server;
