//! Vectors against a map, after kills and damage, and as they follow an index.

mod compact;
mod damage;
mod follow;
mod model;
mod support;
