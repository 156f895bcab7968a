//! The store: against a map, after damage, and seen from two sides at once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod concurrent;
mod damage;
mod model;
mod support;
