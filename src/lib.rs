//! A search engine for conversations.
//!
//! turnwise ingests dialogue corpora in many formats, stores them in a crash-safe index, and finds dialogues and
//! single turns by keywords and by meaning.
//!
//! The modules, from the lowest layer up:
//!
//! - [`error`] and [`ids`]: errors, and ids of dialogues and utterances
//! - [`corpus`]: the dialogue model, and readers and writers for all formats
//! - [`store`]: the crash-safe store of records
//! - [`text`]: text analysis for keyword search
//! - [`encoder`]: models that encode texts as vectors
//! - [`index`]: the lexical and vector indexes
//! - [`search`]: searching an index
//! - [`eval`] and [`measures`]: benchmarks and evaluation measures
//! - [`train`]: training encoders
//! - `milvus` (feature `milvus`): Milvus as a remote engine
//! - `serve` (feature `serve`): the HTTP server
//! - `cli` (feature `cli`): the command-line program
//!
//! [`Index`] combines them: it adds dialogues, encodes them, and opens searchers. `examples/` has small programs.
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
//!
//! [`train::run()`] trains an encoder on dialogues without labels. It writes the model to the folder of the run:
//!
//! ```no_run
//! use turnwise::train::{self, RunOptions, recipe::{ObjectiveName, Recipe}};
//!
//! # fn main() -> turnwise::Result<()> {
//! let (model, corpus) = ("models/all-MiniLM-L6-v2".to_owned(), vec!["chats/".into()]);
//! let recipe = Recipe::new(ObjectiveName::Responses, model, corpus);
//! // `()` ignores progress and messages; implement `train::RunObserver` to receive them.
//! let (outcome, _) = train::run(recipe, &RunOptions::new("runs/chats"), &())?;
//! println!("the model of step {} is in runs/chats/model", outcome.kept);
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

/// The example of the README, compiled and run as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
