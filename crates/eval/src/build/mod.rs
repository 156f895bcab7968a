//! Functions that build the data sets for evaluation tasks.

mod dial;
mod dsts;
pub(crate) mod response;
mod sr;

pub(crate) use dial::with_one_domain;
pub use dial::{DialogueSet, Published, SizeDifference, dialogue_set};
pub use dsts::{Drawing, Pair, UNSCORED, write_pairs};
pub use response::{ResponseOptions, ResponseSet, response_set};
pub use sr::{CandidateSelection, RetrievalSet, retrieval_set};
