//! The store: against a map, after damage, and seen from two sides at once.

mod damage;
mod model;
mod support;
