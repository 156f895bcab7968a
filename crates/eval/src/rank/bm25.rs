//! BM25 ranker. Its formula is the same as in the search of turnwise.

use std::collections::HashMap;

use rayon::prelude::*;

use super::{Items, Pool, Progress, Ranker, Scorer, Terms};
use turnwise_core::error::Result;

/// BM25 ranker with Lucene's inverse document frequency. The formula omits the factor k1 + 1. A term that is repeated
/// in a query counts only once.
#[derive(Debug, Clone, Copy)]
pub struct Bm25 {
    /// How texts are split into terms.
    pub terms: Terms,
    /// Term frequency saturation (k1), at least 0. If it is 0, only the presence of a term counts.
    pub k1: f32,
    /// Document length normalization (b), from 0 (none) to 1 (full).
    pub b: f32,
}

impl Default for Bm25 {
    fn default() -> Self {
        Bm25 { terms: Terms::default(), k1: 1.2, b: 0.75 }
    }
}

impl Ranker for Bm25 {
    fn name(&self) -> String {
        self.terms.named("BM25")
    }

    fn identity(&self) -> String {
        format!("bm25/{}/{}/{}", self.terms, self.k1, self.b)
    }

    fn prepare<'a>(&'a self, pool: &'a Pool, watch: &dyn Progress) -> Result<Box<dyn Scorer + 'a>> {
        let words = Words::of(pool, self.terms);
        watch.check()?;
        let length = |words: &Vec<(u32, u32)>| words.iter().map(|(_, count)| f64::from(*count)).sum::<f64>();
        let (count, documents) = (words.count as f64, words.documents.len().max(1) as f64);
        let mean = (words.documents.iter().map(length).sum::<f64>() / documents).max(1e-9);
        let (k1, b) = (f64::from(self.k1), f64::from(self.b));
        let weigh = |document: &Vec<(u32, u32)>| {
            let long = k1 * (1.0 - b + b * length(document) / mean);
            let weight = |(word, times): &(u32, u32)| {
                let with = f64::from(words.documents_with[*word as usize]);
                let rare = (1.0 + (count - with + 0.5) / (with + 0.5)).ln();
                let times = f64::from(*times);
                (*word, (rare * times / (times + long)) as f32)
            };
            document.iter().map(weight).collect()
        };
        let weights = words.documents.par_iter().map(weigh).collect();
        Ok(Box::new(Prepared { words, weights }))
    }
}

/// Term counts of all documents and queries. Each distinct term in the documents has a number.
pub(super) struct Words {
    /// For each document, (term number, count) pairs, sorted by term number.
    pub(super) documents: Vec<Vec<(u32, u32)>>,
    /// For each query, (term number, count) pairs of the terms that occur in documents. `None` if the documents are the
    /// queries.
    pub(super) queries: Option<Vec<Vec<(u32, u32)>>>,
    /// Number of documents and background texts that contain each term, by term number.
    pub(super) documents_with: Vec<u32>,
    /// Number of documents and background texts.
    pub(super) count: usize,
}

impl Words {
    pub(super) fn of(pool: &Pool, terms: Terms) -> Self {
        let of = |items: &Items| -> Vec<Vec<String>> {
            (0..items.len()).into_par_iter().map(|n| terms.of(&items.text(n))).collect()
        };
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let documents: Vec<Vec<(u32, u32)>> = of(&pool.documents)
            .into_iter()
            .map(|words| {
                let number = |word| {
                    let next = numbers.len() as u32;
                    *numbers.entry(word).or_insert(next)
                };
                counted(words.into_iter().map(number).collect())
            })
            .collect();
        let known = |words: Vec<String>| {
            counted(words.iter().filter_map(|word| numbers.get(word).copied()).collect())
        };
        let queries = pool.queries.as_ref().map(|queries| of(queries).into_iter().map(known).collect());
        let background: Vec<Vec<(u32, u32)>> =
            pool.background.iter().map(|text| known(terms.of(text))).collect();
        let mut documents_with = vec![0; numbers.len()];
        documents
            .iter()
            .chain(&background)
            .flatten()
            .for_each(|(word, _)| documents_with[*word as usize] += 1);
        let count = documents.len() + background.len();
        Words { documents, queries, documents_with, count }
    }

    pub(super) fn query(&self, n: usize) -> &[(u32, u32)] {
        &self.queries.as_ref().unwrap_or(&self.documents)[n]
    }
}

fn counted(mut words: Vec<u32>) -> Vec<(u32, u32)> {
    words.sort_unstable();
    words.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u32)).collect()
}

struct Prepared {
    words: Words,
    /// For each document, (term number, weight) pairs. The weight is the contribution of the term to a score.
    weights: Vec<Vec<(u32, f32)>>,
}

impl Scorer for Prepared {
    fn scores(&self, query: usize, documents: &[u32], scores: &mut Vec<f32>) -> Result<()> {
        let query = self.words.query(query);
        scores.clear();
        scores.extend(documents.iter().map(|document| {
            let sum = both(query, &self.weights[*document as usize], |_, weight| f64::from(weight));
            sum as f32
        }));
        Ok(())
    }
}

/// Returns the sum of `f` over the terms that both lists contain. Both lists must be sorted by term number.
pub(super) fn both<A: Copy, B: Copy>(a: &[(u32, A)], b: &[(u32, B)], f: impl Fn(A, B) -> f64) -> f64 {
    let (mut i, mut j, mut sum) = (0, 0, 0.0);
    while i < a.len() && j < b.len() {
        let (x, y) = (a[i].0, b[j].0);
        if x == y {
            sum += f(a[i].1, b[j].1);
        }
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    sum
}
