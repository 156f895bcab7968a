//! Vectors compared with a map, after kills and damage, and after changes of the index.

mod compact;
mod damage;
mod follow;
mod model;
mod support;
