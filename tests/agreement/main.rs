//! Compares the vectors of the program with those of sentence-transformers: computed by the Python packages, and stored
//! in a fixture.
//!
//! `benchmarks/encode/peers.sh` installs the packages. Without them, the tests that need them are skipped; if
//! TURNWISE_PEERS is set, a missing package is an error. The tests with stored vectors need only the default model, which
//! is downloaded if it is missing; TURNWISE_TEST_MODEL can name its folder.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod batches;
mod live;
mod models;
mod nearest;
mod saved;
mod stored;
mod support;
mod texts;
