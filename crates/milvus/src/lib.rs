//! Search engine over dialogues in Milvus. Milvus stores the dialogues, their vectors and their keywords.
//!
//! ```text
//! chats                      an alias for the generation in use; users see only this name
//! chats_g1_dialogues         one row per dialogue: keywords, vector, filter columns; a property contains the manifest
//! chats_g1_utterances        one row per turn: the same columns as for dialogues
//! chats_g1_records           the dialogues themselves as JSON, in pieces of at most 60,000 bytes
//! ```
//!
//! **The record of a dialogue determines which version is current.** The rows of a new version are written first. The
//! first piece of the record is written last. Readers skip rows whose version is not that of the record. A change is
//! therefore visible completely or not at all, even after a crash.
//!
//! **A generation is replaced as a whole.** To change the encoder or all dialogues, turnwise writes a new generation
//! with the next number. Searches do not use it until turnwise switches the alias.
//!
//! By default, keywords are the terms of turnwise's analyzer. They are encoded so that every Milvus tokenizer keeps
//! them unchanged. Filters are translated to Milvus expressions.

mod connection;
mod engine;
mod expression;
mod generations;
mod location;
mod names;
mod reading;
mod rows;
mod schema;
mod speakers;
mod target;
mod vector_source;
mod view;
mod walk;
mod writer;
mod writing;

pub use engine::Milvus;
pub use generations::Manifest;
pub use location::MilvusLocation;
pub use target::Target;
pub use vector_source::{Encoding, VectorInput, VectorSource};
pub use walk::{Moved, Walk};
pub use writer::MilvusWriter;
