//! One suite for every engine: the same scenarios against an index on this machine, which is the reference, against a Milvus
//! that the test starts (`tests/milvus.sh` installs it), and against a cluster that `TURNWISE_MILVUS_URI` names.
//!
//! Compared are what is found and in which order, never the scores of BM25 themselves.

// Why nothing was tested is said.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod corpus;
mod places;
mod scenarios;
mod words;

#[cfg(feature = "milvus")]
mod faults;
#[cfg(feature = "milvus")]
mod server;
