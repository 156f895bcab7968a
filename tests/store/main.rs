//! Tests of the store: comparison with a map, damage, and concurrent readers and writers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod concurrent;
mod damage;
mod model;
mod support;
