//! Dialogue corpora: the data model, readers and writers for common formats, cleaning, filters, splits and
//! statistics.
//!
//! Readers detect the format of a file and read one dialogue at a time. An invalid record is reported as a
//! [`formats::Problem`], and reading continues. Every dialogue from a reader is valid ([`Dialogue::check`]).
//!
//! ```
//! use std::io::Cursor;
//! use turnwise_corpus::{filter::Filter, formats, formats::ReadOptions, input::Input};
//!
//! # fn main() -> turnwise_core::Result<()> {
//! let text = "Ann: Where is my parcel?\nAgent: It left the depot today.\n";
//! let input = Input::from_stream("chat.txt".to_owned(), None, Box::new(Cursor::new(text)))?;
//! let format = formats::by_name("transcript")?;
//!
//! let filter: Filter = "turns>=2 and role=agent".parse()?;
//! for dialogue in format.read(input, &ReadOptions::default())? {
//!     match dialogue {
//!         Ok(dialogue) => assert!(filter.matches(&dialogue)),
//!         Err(problem) => eprintln!("{problem:?}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```

pub mod clean;
mod dialogue;
pub mod filter;
pub mod formats;
pub mod input;
mod json_elements;
pub mod lines;
pub mod output;
pub mod reader;
mod role;
pub mod rows;
pub mod split;
pub mod stats;
pub mod texts;
mod time;
pub mod walk;
pub mod writers;

pub use dialogue::{Dialogue, MAX_TURNS, Metadata, SpokenDialogue, SpokenTurn, THREAD, Turn, json_schema};
pub use role::Role;
pub use time::Time;
