//! turnwise makes conversations searchable: it ingests dialogue corpora in the formats people have, keeps them in an
//! index that loses nothing, and finds the turn that is meant.
//!
//! [`Index`] is the way in: add dialogues, encode them, search. The modules are the crates below it: [`corpus`] reads and
//! writes dialogues, [`store`] keeps them, [`encoder`] turns them into vectors, [`index`] has the indexes, [`search`] the
//! requests and hits, [`train`] trains encoders, and [`eval`] runs benchmarks. `examples/` has a program for each.
//!
//! ```
//! use turnwise::{Index, search::SearchRequest};
//!
//! # fn main() -> turnwise::Result<()> {
//! # let folder = std::env::temp_dir().join(format!("turnwise-lib-doc-{}", std::process::id()));
//! let index = Index::open_or_create(&folder)?;
//! index.add(turnwise::samples::dialogues()?)?;
//!
//! let request = SearchRequest { query: "the parcel never came".into(), k: 3, ..SearchRequest::default() };
//! for hit in index.searcher()?.search(&request)?.hits {
//!     println!("{:.2} {} {}", hit.score, hit.id, hit.turn.text);
//! }
//! # std::fs::remove_dir_all(&folder).ok();
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
mod facade;
pub mod samples;

pub use facade::{Added, Index};
pub use turnwise_core::{Error, Result, error, ids};
pub use turnwise_corpus as corpus;
pub use turnwise_encoder as encoder;
pub use turnwise_eval as eval;
pub use turnwise_index as index;
pub use turnwise_measures as measures;
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
