//! Remote search engine: dialogues, their vectors and their keywords in Milvus.
//!
//! ```text
//! chats                      an alias: the name that users know; it refers to the generation in use
//! chats_g1_dialogues         a row per dialogue: keywords, vector, filter columns; its properties hold the manifest
//! chats_g1_utterances        a row per turn: the same columns
//! chats_g1_records           the dialogues themselves as JSON, in pieces of at most 60,000 bytes
//! ```
//!
//! **The record of a dialogue decides which version is current.** The rows are written first; their ids contain the
//! version of the content. Then the first piece of the record is written, as one row. Readers skip rows of other
//! versions than the record's. A change is therefore visible completely or not at all, even after a crash. The next
//! ingest of the same dialogue removes leftover rows.
//!
//! **A generation is replaced as a whole.** A new encoder, a new corpus or a moved index fills a new generation with the
//! next number, which is not visible yet. Then the alias is switched.
//!
//! Keywords are the terms of turnwise's analyzer, encoded so that every Milvus tokenizer keeps them unchanged. Filters
//! are translated to Milvus expressions. Fusion and reranking are done by the layers above, as for a local index.

mod connection;
mod engine;
mod expression;
mod generations;
mod location;
mod names;
mod reading;
mod rows;
mod schema;
mod target;
mod vector_source;
mod view;
mod walk;
mod writer;
mod writing;

pub use engine::Milvus;
pub use generations::{Manifest, Unfinished};
pub use location::MilvusLocation;
pub use target::{Consistency, Graph, Target};
pub use vector_source::{Encoding, Of, VectorSource};
pub use walk::{Moved, Walk};
pub use writer::MilvusWriter;
