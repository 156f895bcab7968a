//! Making the sets of the tasks out of labelled corpora.

mod response;
mod sr;

pub use response::{ResponseSet, Selection, response_set};
pub use sr::{Recipe, RetrievalSet, retrieval_set};
