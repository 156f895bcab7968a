//! turnwise makes conversations searchable: it ingests dialogue corpora in the formats people have, keeps them in an
//! index that loses nothing, and finds the turn that is meant.
//!
//! The rooms, from the ground up: [`error`] and [`ids`]; [`corpus`], the dialogue model and everything that reads and
//! writes it; [`store`], the crash-safe home of the records; [`text`], the analysis of words; [`encoder`], texts to
//! vectors; [`index`], what is searched in; `search` (feature `lexical`), searching; `cli` (feature `cli`), the program. ARCHITECTURE.md tells why.
//!
//! ```
//! use turnwise::{corpus::{Dialogue, Role}, ids::DialogueId, store::{Prepared, Snapshot, Store}};
//!
//! # fn main() -> turnwise::Result<()> {
//! # let folder = std::env::temp_dir().join(format!("turnwise-doc-{}", std::process::id()));
//! let mut dialogue = Dialogue::new(DialogueId::new("call-17")?);
//! dialogue.push("Ann", Role::User, "my card is gone");
//! dialogue.push("Bo", Role::Agent, "I am blocking it now");
//! dialogue.check().map_err(turnwise::Error::data)?;
//!
//! let mut store = Store::open_or_create(&folder, "my program")?;
//! store.put(&Prepared::new(&dialogue)?)?;
//! store.commit(None)?; // on the disk from here on
//! store.close()?;
//!
//! assert_eq!(Snapshot::open(&folder)?.get(&dialogue.id)?, Some(dialogue));
//! # std::fs::remove_dir_all(&folder).ok();
//! # Ok(())
//! # }
//! ```

mod average;
#[cfg(feature = "cli")]
pub mod cli;
pub mod corpus;
pub mod encoder;
pub mod error;
#[cfg(feature = "lexical")]
pub mod eval;
pub mod ids;
pub mod index;
#[cfg(feature = "lexical")]
pub mod measures;
mod random;
pub mod samples;
#[cfg(feature = "lexical")]
pub mod search;
#[cfg(feature = "serve")]
pub mod serve;
pub mod store;
pub mod text;
pub mod train;

pub use error::{Error, Result};

/// The README's own example, compiled and run with the other documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
