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

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
pub mod samples;

pub use turnwise_core::{Error, Result, error, ids};
pub use turnwise_corpus as corpus;
pub use turnwise_encoder as encoder;
pub use turnwise_eval as eval;
pub use turnwise_index as index;
#[cfg(feature = "milvus")]
pub use turnwise_milvus as milvus;
pub use turnwise_search as search;
#[cfg(feature = "serve")]
pub use turnwise_serve as serve;
pub use turnwise_store as store;
pub use turnwise_text as text;
pub use turnwise_train as train;

/// The README's own example, compiled and run with the other documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
