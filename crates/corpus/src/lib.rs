//! Dialogue corpora: the model, reading every format people have, cleaning, splitting, statistics.

pub mod clean;
mod dialogue;
pub mod filter;
pub mod formats;
pub mod input;
pub mod json_elements;
pub mod lines;
pub mod rejects;
pub mod rows;
mod schema;
pub mod split;
pub mod stats;
pub mod texts;
pub mod walk;
pub mod writers;

pub use dialogue::{Dialogue, MAX_TURNS, Metadata, Role, Time, Turn};
pub use schema::json_schema;
