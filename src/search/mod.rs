//! What people ask of an index, put together from what the indexes find.

pub mod clusters;
pub mod duplicates;
pub mod late;
