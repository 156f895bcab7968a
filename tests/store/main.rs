//! The store: compared with a map, after damage, and with concurrent readers and writers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod concurrent;
mod damage;
mod model;
mod support;
