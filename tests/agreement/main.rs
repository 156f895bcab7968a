//! The same vectors as sentence-transformers: the program against the real Python packages, and against vectors of
//! theirs that are stored here.
//!
//! `benchmarks/encode/peers.sh` installs the packages; without them the live tests skip, saying so. With
//! TURNWISE_PEERS set they must be there. The stored vectors need the default model alone, which is fetched once if
//! it is not at hand; TURNWISE_TEST_MODEL may name its folder.

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
