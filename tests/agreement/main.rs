//! Compares the vectors of the program with those of sentence-transformers. Some tests run the Python packages; others
//! use stored vectors.
//!
//! `benchmarks/encode/peers.sh` installs the packages. If they are missing, tests that run them are skipped, or fail if
//! TURNWISE_PEERS is set. The tests with stored vectors need only the default model. It is downloaded if it is missing;
//! TURNWISE_TEST_MODEL can name its folder.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod batches;
mod live;
mod models;
mod nearest;
mod saved;
mod scorers;
mod stored;
mod support;
mod texts;
