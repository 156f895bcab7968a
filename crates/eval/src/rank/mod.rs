//! Rankers: dense, lexical, hybrid and random. Tasks use only this interface and never a model directly.

mod bm25;
mod dense;
mod given;
mod hybrid;
mod lda;
mod random_baseline;
mod rerank;
mod spread;
mod terms;
mod tfidf;

use std::borrow::Cow;

pub use bm25::Bm25;
pub use dense::Dense;
pub use given::Given;
pub use hybrid::Hybrid;
pub use lda::Lda;
pub use random_baseline::RandomBaseline;
pub use rerank::{Reranked, Tokens};
pub use spread::Spread;
pub use terms::Terms;
pub use tfidf::{Tfidf, TfidfThenSvd};

use turnwise_core::error::{Error, Result};
use turnwise_corpus::Dialogue;
use turnwise_encoder::{Vectors, statics};

/// Items to rank or to query with: texts or dialogues.
#[derive(Debug, Clone)]
pub enum Items {
    /// Utterances, sentences, queries.
    Texts(Vec<String>),
    /// Whole dialogues, or the context before a response.
    Dialogues(Vec<Dialogue>),
}

impl Items {
    /// Number of items.
    pub fn len(&self) -> usize {
        match self {
            Items::Texts(texts) => texts.len(),
            Items::Dialogues(dialogues) => dialogues.len(),
        }
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The whole text of one item.
    pub fn text(&self, n: usize) -> Cow<'_, str> {
        match self {
            Items::Texts(texts) => Cow::Borrowed(&texts[n]),
            Items::Dialogues(dialogues) => Cow::Owned(statics::document(&dialogues[n])),
        }
    }
}

/// Documents and queries of a task.
#[derive(Debug, Clone)]
pub struct Pool {
    /// Documents to rank.
    pub documents: Items,
    /// Queries. `None` means that each document is also a query.
    pub queries: Option<Items>,
    /// More texts of the same kind, used only for document frequencies.
    pub background: Vec<String>,
}

impl Pool {
    /// Creates a pool whose documents are also its queries.
    pub fn of(documents: Items) -> Self {
        Pool { documents, queries: None, background: Vec::new() }
    }

    /// Creates a pool with separate queries.
    pub fn with_queries(documents: Items, queries: Items) -> Self {
        Pool { documents, queries: Some(queries), background: Vec::new() }
    }

    /// The queries, or the documents if there are no separate queries.
    pub fn queries(&self) -> &Items {
        self.queries.as_ref().unwrap_or(&self.documents)
    }
}

/// Long-running step, for progress reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Encoding texts or dialogues.
    Encoding,
    /// Fitting a topic model.
    FindingTopics,
    /// Ranking documents for queries.
    Ranking,
    /// Clustering dialogues.
    Clustering,
    /// Building a graph of nearest neighbors.
    Linking,
    /// Projecting vectors onto a plane.
    Mapping,
}

/// Receiver of progress reports, which can also request a stop.
pub trait Progress: Sync {
    /// Whether a stop was requested.
    fn stop(&self) -> bool;
    /// Reports that `done` of `all` units of a step are complete.
    fn done(&self, step: Step, done: usize, all: usize);

    /// Returns an error if a stop was requested.
    fn check(&self) -> Result<()> {
        if self.stop() { Err(Error::Interrupted { hint: None }) } else { Ok(()) }
    }
}

/// Ignores progress and never stops.
impl Progress for () {
    fn stop(&self) -> bool {
        false
    }

    fn done(&self, _: Step, _: usize, _: usize) {}
}

/// Ranking method.
pub trait Ranker: Sync {
    /// Display name.
    fn name(&self) -> String;

    /// Text that identifies every setting that affects the scores. Rankers with the same identity give the same scores.
    fn identity(&self) -> String;

    /// Prepares a pool for scoring, for example encodes or indexes it.
    fn prepare<'a>(&'a self, pool: &'a Pool, watch: &dyn Progress) -> Result<Box<dyn Scorer + 'a>>;
}

/// Ranker that is prepared for a pool.
pub trait Scorer: Sync {
    /// Replaces `scores` with the scores of `documents` for a query, in their order. A higher score is better.
    fn scores(&self, query: usize, documents: &[u32], scores: &mut Vec<f32>) -> Result<()>;

    /// The documents' vectors, each of length 1. Lexical rankers have none.
    fn vectors(&self) -> Option<&Vectors> {
        None
    }
}

/// Returns an error if a score is not finite, because the order would be undefined.
pub fn ensure_finite(ranker: &str, query: &str, scores: &[f32]) -> Result<()> {
    match scores.iter().all(|score| score.is_finite()) {
        true => Ok(()),
        false => Err(Error::Data {
            message: format!("{ranker} returned a score that is not a finite number for the query {query}"),
            hint: Some(
                "a vector may contain NaN; `turnwise verify` checks the vectors of an index".to_owned(),
            ),
        }),
    }
}
