//! The engine past one machine: dialogues, their vectors and their words in Milvus.
//!
//! ```text
//! chats                      an alias: the name that users know; it stands for the dialogues of the generation in use
//! chats_g1_dialogues         a row a dialogue: its words, its vector, what filters ask; its properties hold the manifest
//! chats_g1_utterances        a row a turn: the same
//! chats_g1_records           the dialogues themselves as JSON, in pieces of at most 60,000 bytes
//! ```
//!
//! **A dialogue counts when its record does.** Its rows are written first, under names that hold the version of their
//! content; then the first piece of its record, by one row. Whoever finds a row of another version than the record has
//! passes it over: so a change is seen whole or not at all, whenever the one who made it dies. What is left behind is
//! removed by the next ingest of the same dialogue.
//!
//! **A generation is exchanged as a whole.** What takes the place of what is there (another encoder, another corpus, an index
//! that moves in) is filled beside it under the next number, which no name stands for; then the alias is switched.
//!
//! Words are our own terms, written so that any of Milvus's tokenizers leaves them as they are; filters are expressions
//! made of the typed filter. Fusion, ranking again and everything else is made above, as for an index on this machine.

mod change_watcher;
mod connection;
mod engine;
mod expression;
mod generations;
mod listing;
mod manifest;
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

pub use change_watcher::{ChangeWatcher, MilvusVersion};
pub use engine::Milvus;
pub use generations::Unfinished;
pub use manifest::Manifest;
pub use target::{Consistency, Graph, Target};
pub use vector_source::{Encoding, Of, VectorSource};
pub use walk::{Moved, Walk};
pub use writer::MilvusWriter;
