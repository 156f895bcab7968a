//! Search indexes over utterances and dialogues: the lexical index, the stored vectors, and graphs over the vectors.
//! All are derived from the record store and can be rebuilt. Readers see one consistent state while a process writes.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use turnwise_index::{lexical::Lexical, vectors::Kind};
//! use turnwise_store::Snapshot;
//!
//! # fn main() -> turnwise_core::error::Result<()> {
//! let root = Path::new("indexes/chats");
//! let snapshot = Snapshot::open(root)?;
//! Lexical::update(None, root, &snapshot, &|| false, &mut |_| {})?;
//! let lexical = Lexical::open(root)?;
//! for hit in lexical.find(Kind::Utterances, &lexical.words("late parcel"), 10, None)? {
//!     println!("{:.2} {}", hit.score, hit.dialogue);
//! }
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

mod admitted;
pub mod dense;
pub mod embedded;
pub mod engine;
pub mod lexical;
pub mod location;
pub mod sealed;
pub mod speakers;
pub mod vectors;

pub use admitted::Admitted;
pub use engine::SearchModes;
