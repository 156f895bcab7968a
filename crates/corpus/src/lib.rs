//! Dialogue corpora: the data model, readers and writers for common formats, cleaning, filters, splits and
//! statistics.

pub mod clean;
mod dialogue;
pub mod filter;
pub mod formats;
pub mod input;
pub mod json_elements;
pub mod lines;
pub mod output;
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
