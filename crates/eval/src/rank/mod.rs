//! Rankers: methods that score documents for a query. Evaluation tasks use only the interface of a ranker, never a
//! model directly.

mod bm25;
mod dense;
mod lda;
mod postprocess;
mod precomputed;
mod rerank;
mod selector;
mod terms;
mod tfidf;

use std::{borrow::Cow, cmp::Ordering};

pub use bm25::Bm25;
pub use dense::{Dense, Hybrid};
pub use lda::Lda;
pub use postprocess::Postprocess;
pub use precomputed::Precomputed;
pub use rerank::{Reranked, Tokens};
pub use selector::{BySelector, LastPart};
pub use terms::Terms;
pub use tfidf::{Tfidf, TfidfThenSvd};

use turnwise_core::{
    error::{Error, Result},
    random::hash64,
};
use turnwise_corpus::Dialogue;
use turnwise_encoder::{Vectors, statics};

/// Documents or queries of a task: either texts or dialogues.
#[derive(Debug, Clone)]
pub enum Items {
    /// Texts, such as utterances, sentences or queries.
    Texts(Vec<String>),
    /// Whole dialogues, or the parts of dialogues before a response.
    Dialogues(Vec<Dialogue>),
}

impl Items {
    /// Returns the number of items.
    pub fn len(&self) -> usize {
        match self {
            Items::Texts(texts) => texts.len(),
            Items::Dialogues(dialogues) => dialogues.len(),
        }
    }

    /// Returns whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the text of item `n`. For a dialogue, joins the texts of its turns.
    pub fn text(&self, n: usize) -> Cow<'_, str> {
        match self {
            Items::Texts(texts) => Cow::Borrowed(&texts[n]),
            Items::Dialogues(dialogues) => Cow::Owned(statics::document(&dialogues[n])),
        }
    }
}

/// Documents of a task, and the queries for which they are ranked.
#[derive(Debug, Clone)]
pub struct Pool {
    /// Documents to rank.
    pub documents: Items,
    /// Queries. `None` means that each document is also a query.
    pub queries: Option<Items>,
    /// Additional texts that count in the document frequencies of terms. They are not ranked.
    pub background: Vec<String>,
}

impl Pool {
    /// Creates a pool without separate queries: each document is also a query.
    pub fn of(documents: Items) -> Self {
        Pool { documents, queries: None, background: Vec::new() }
    }

    /// Creates a pool with separate queries.
    pub fn with_queries(documents: Items, queries: Items) -> Self {
        Pool { documents, queries: Some(queries), background: Vec::new() }
    }

    /// Returns the queries. If there are no separate queries, returns the documents.
    pub fn queries(&self) -> &Items {
        self.queries.as_ref().unwrap_or(&self.documents)
    }
}

/// Kind of long-running step, for progress reports.
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
    /// Returns whether a stop was requested.
    fn stop(&self) -> bool;
    /// Receives the report that `done` of `all` units of a step are complete.
    fn done(&self, step: Step, done: usize, all: usize);

    /// Returns [`Error::Interrupted`] if a stop was requested.
    fn check(&self) -> Result<()> {
        if self.stop() { Err(Error::Interrupted { hint: None }) } else { Ok(()) }
    }
}

/// Receiver that ignores progress reports and never requests a stop.
impl Progress for () {
    fn stop(&self) -> bool {
        false
    }

    fn done(&self, _: Step, _: usize, _: usize) {}
}

/// Score of a document that a ranker does not return at all. The task `memory` does not rank such documents.
pub const NOT_FOUND: f32 = f32::MIN;

/// Ranking method, such as BM25 or an encoder.
pub trait Ranker: Sync {
    /// Returns the display name.
    fn name(&self) -> String;

    /// Returns a text that contains every setting that affects the scores. Rankers with the same identity return the
    /// same scores.
    fn identity(&self) -> String;

    /// Prepares the documents and queries of a pool for scoring, for example encodes or indexes them. Returns a scorer
    /// for this pool.
    fn prepare<'a>(&'a self, pool: &'a Pool, watch: &dyn Progress) -> Result<Box<dyn Scorer + 'a>>;
}

/// Scorer of the documents of one [`Pool`] for its queries. It is created by [`Ranker::prepare`].
pub trait Scorer: Sync {
    /// Replaces the content of `scores` with the scores of `documents` for a query, in the order of `documents`. Higher
    /// scores are better. `query` and `documents` are indices in the pool.
    fn scores(&self, query: usize, documents: &[u32], scores: &mut Vec<f32>) -> Result<()>;

    /// Returns the unit vectors of all documents. Returns `None` if the ranker has no vectors.
    fn vectors(&self) -> Option<&Vectors> {
        None
    }
}

/// Returns an error if a score is not finite, because the order of the documents would be undefined. `ranker` and
/// `query` are names for the error message.
pub fn ensure_finite(ranker: &str, query: &str, scores: &[f32]) -> Result<()> {
    match scores.iter().all(|score| score.is_finite()) {
        true => Ok(()),
        false => Err(Error::data(format!(
            "{ranker} returned a score that is not a finite number for the query {query}"
        ))
        .with_hint("a vector may contain NaN; `turnwise verify` checks the vectors of an index")),
    }
}

/// Ranker that returns random scores.
#[derive(Debug, Clone, Copy)]
pub struct RandomBaseline {
    /// Random seed.
    pub seed: u64,
}

impl Ranker for RandomBaseline {
    fn name(&self) -> String {
        "random order".to_owned()
    }

    fn identity(&self) -> String {
        format!("random/{}", self.seed)
    }

    fn prepare<'a>(&'a self, _: &'a Pool, _: &dyn Progress) -> Result<Box<dyn Scorer + 'a>> {
        Ok(Box::new(*self))
    }
}

impl Scorer for RandomBaseline {
    fn scores(&self, query: usize, documents: &[u32], scores: &mut Vec<f32>) -> Result<()> {
        let seed = hash64(self.seed, query as u64);
        scores.clear();
        // Use only 24 bits of each hash, because an f32 represents integers of up to 24 bits exactly.
        scores.extend(documents.iter().map(|document| (hash64(seed, u64::from(*document)) >> 40) as f32));
        Ok(())
    }
}

/// Compares two (score, id) pairs, for sorting by descending score and then by descending id. Scores must not be NaN.
pub fn better_first(a: (f32, &str), b: (f32, &str)) -> Ordering {
    // `partial_cmp` treats -0 and 0 as equal, unlike `total_cmp`.
    b.0.partial_cmp(&a.0).unwrap_or(Ordering::Equal).then_with(|| b.1.as_bytes().cmp(a.1.as_bytes()))
}

/// Returns the position of each id in the descending order of all ids. Code that ranks the same documents many times
/// can compare these positions instead of the ids, which is faster.
pub fn descending_ranks<S: AsRef<str>>(ids: &[S]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..ids.len() as u32).collect();
    order.sort_unstable_by(|a, b| {
        ids[*b as usize].as_ref().as_bytes().cmp(ids[*a as usize].as_ref().as_bytes())
    });
    let mut ranks = vec![0; ids.len()];
    order.iter().enumerate().for_each(|(rank, n)| ranks[*n as usize] = rank as u32);
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equal_scores_the_greater_id_comes_first() {
        let mut all = [(0.5, "9"), (0.5, "10"), (1.0, "2"), (0.0, "b"), (-0.0, "a")];
        all.sort_by(|a, b| better_first(*a, *b));
        assert_eq!(all.iter().map(|(_, id)| *id).collect::<Vec<_>>(), ["2", "9", "10", "b", "a"]);
        assert_eq!(descending_ranks(&["9", "10", "2"]), [0, 2, 1]);
    }
}
