//! Whoever ranks: encoders, words, both, and chance. A task asks a ranker and never a model.

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

/// Texts or dialogues.
#[derive(Debug, Clone)]
pub enum Items {
    /// Utterances, sentences, queries.
    Texts(Vec<String>),
    /// Whole dialogues, or what was said before a response.
    Dialogues(Vec<Dialogue>),
}

impl Items {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Items::Texts(texts) => texts.len(),
            Items::Dialogues(dialogues) => dialogues.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All that is said in one.
    pub fn text(&self, n: usize) -> Cow<'_, str> {
        match self {
            Items::Texts(texts) => Cow::Borrowed(&texts[n]),
            Items::Dialogues(dialogues) => Cow::Owned(statics::document(&dialogues[n])),
        }
    }
}

/// What a task has: what is ranked, and for whom.
#[derive(Debug, Clone)]
pub struct Pool {
    /// What is ranked.
    pub documents: Items,
    /// For whom; without them each document is ranked for.
    pub queries: Option<Items>,
    /// More texts of the kind, by which words are weighed, and nothing else.
    pub background: Vec<String>,
}

impl Pool {
    /// Documents that each other is ranked for.
    pub fn of(documents: Items) -> Self {
        Pool { documents, queries: None, background: Vec::new() }
    }

    /// Documents, and for whom they are ranked.
    pub fn with_queries(documents: Items, queries: Items) -> Self {
        Pool { documents, queries: Some(queries), background: Vec::new() }
    }

    /// For whom it is ranked.
    pub fn queries(&self) -> &Items {
        self.queries.as_ref().unwrap_or(&self.documents)
    }
}

/// What may take a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Texts or dialogues become vectors.
    Encoding,
    /// Topics are found.
    FindingTopics,
    /// Documents are put into order for queries.
    Ranking,
    /// Dialogues are put into clusters.
    Clustering,
    /// Vectors are linked to their neighbours.
    Linking,
    /// Vectors become points on a plane.
    Mapping,
}

/// Somebody who wants to know how far things are, and may want to stop them.
pub trait Progress: Sync {
    /// Whether to stop.
    fn stop(&self) -> bool;
    /// So much of a step is done.
    fn done(&self, step: Step, done: usize, all: usize);

    /// An error if it is to stop.
    fn check(&self) -> Result<()> {
        if self.stop() { Err(Error::Interrupted { hint: None }) } else { Ok(()) }
    }
}

/// Nobody.
impl Progress for () {
    fn stop(&self) -> bool {
        false
    }

    fn done(&self, _: Step, _: usize, _: usize) {}
}

/// Something that ranks.
pub trait Ranker: Sync {
    /// A name for people and tables.
    fn name(&self) -> String;

    /// Everything that changes its scores, in words: two with the same are the same ranker.
    fn identity(&self) -> String;

    /// Looks at what is to be ranked.
    fn prepare<'a>(&'a self, pool: &'a Pool, watch: &dyn Progress) -> Result<Box<dyn Scorer + 'a>>;
}

/// A ranker that has seen what is to be ranked.
pub trait Scorer: Sync {
    /// The scores of some documents for a query, in their order, into `scores`: the greater, the better.
    fn scores(&self, query: usize, documents: &[u32], scores: &mut Vec<f32>) -> Result<()>;

    /// The vectors of the documents, each of length 1, for tasks that ask where they lie. Words alone have none.
    fn vectors(&self) -> Option<&Vectors> {
        None
    }
}

/// An error where a score is no number: a ranking would depend on chance.
pub fn must_be_numbers(ranker: &str, query: &str, scores: &[f32]) -> Result<()> {
    match scores.iter().all(|score| score.is_finite()) {
        true => Ok(()),
        false => Err(Error::Data {
            message: format!("{ranker} gave a score that is no finite number for the query {query}"),
            hint: Some("a vector may hold NaN; `turnwise verify` checks those of an index".to_owned()),
        }),
    }
}
