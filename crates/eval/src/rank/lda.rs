//! LDA ranker: latent Dirichlet allocation, fitted to the documents by collapsed Gibbs sampling (Griffiths and
//! Steyvers).

use super::{Pool, Progress, Ranker, Scorer, Step, Terms, bm25::Words, dense::Prepared};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_encoder::Vectors;

/// Ranker by latent Dirichlet allocation (LDA): compares the topic mixtures of the documents. Each query must be one
/// of the documents.
#[derive(Debug, Clone, Copy)]
pub struct Lda {
    /// Number of topics.
    pub topics: usize,
    /// Number of Gibbs sampling rounds.
    pub rounds: usize,
    /// How texts are split into terms.
    pub terms: Terms,
    /// Random seed.
    pub seed: u64,
}

/// Maximum document frequency of a term, as a fraction of the documents. More frequent terms are ignored.
const COMMON: f64 = 0.5;
/// Minimum document frequency of a term, as a number of documents. Rarer terms are ignored.
const RARE: u32 = 2;
/// Parameter of the Dirichlet prior for the word distribution of a topic.
const BETA: f64 = 0.01;
/// Number of rounds over which the topic counts are averaged. These are the last rounds.
const AVERAGED: usize = 20;

impl Lda {
    /// Creates an LDA ranker with default settings.
    pub fn new(topics: usize, seed: u64) -> Self {
        Lda { topics, rounds: 200, terms: Terms::default(), seed }
    }
}

impl Ranker for Lda {
    fn name(&self) -> String {
        format!("LDA-{}", self.topics)
    }

    fn identity(&self) -> String {
        format!("lda/{}/{}/{}/{}", self.topics, self.rounds, self.terms, self.seed)
    }

    fn prepare<'a>(&'a self, pool: &'a Pool, watch: &dyn Progress) -> Result<Box<dyn Scorer + 'a>> {
        if self.topics < 2 || pool.queries.is_some() {
            return Err(Error::input("LDA needs at least two topics, and supports no separate queries")
                .with_hint("use it as a baseline of the dialogue tasks"));
        }
        let words = Words::of(pool, self.terms);
        let max_documents = (words.documents.len() as f64 * COMMON).max(1.0);
        let kept = |word: u32| {
            let with = words.documents_with[word as usize];
            with >= RARE && f64::from(with) <= max_documents
        };
        let documents: Vec<Vec<u32>> = words
            .documents
            .iter()
            .map(|document| {
                let kept = document.iter().filter(|(word, _)| kept(*word));
                kept.flat_map(|(word, times)| std::iter::repeat_n(*word, *times as usize)).collect()
            })
            .collect();
        let mut vectors = self.mixtures(&documents, words.documents_with.len(), watch)?;
        vectors.normalize();
        Ok(Box::new(Prepared::given(vectors, None)))
    }
}

impl Lda {
    /// Computes the topic mixture of each document, up to a constant factor. `words` is the number of distinct terms.
    fn mixtures(&self, documents: &[Vec<u32>], words: usize, watch: &dyn Progress) -> Result<Vectors> {
        let k = self.topics;
        let alpha = 5.0 / k as f64;
        let mut random = Random::new(self.seed, 0);
        let mut of_word = vec![0u32; words * k];
        let mut of_topic = vec![0u32; k];
        let mut of_document = vec![0u32; documents.len() * k];
        let mut topics: Vec<Vec<u32>> = documents.iter().map(|words| vec![0; words.len()]).collect();
        for (d, document) in documents.iter().enumerate() {
            for (topic, word) in topics[d].iter_mut().zip(document) {
                *topic = random.below(k) as u32;
                of_word[*word as usize * k + *topic as usize] += 1;
                of_topic[*topic as usize] += 1;
                of_document[d * k + *topic as usize] += 1;
            }
        }
        let mut sums = Vectors::zeros(documents.len(), k);
        let mut cumulative = vec![0.0; k];
        for round in 0..self.rounds {
            watch.check()?;
            for (d, document) in documents.iter().enumerate() {
                for (topic, word) in topics[d].iter_mut().zip(document) {
                    let word = *word as usize * k;
                    let old = *topic as usize;
                    of_word[word + old] -= 1;
                    of_topic[old] -= 1;
                    of_document[d * k + old] -= 1;
                    let mut sum = 0.0;
                    for t in 0..k {
                        sum += (f64::from(of_word[word + t]) + BETA)
                            / (f64::from(of_topic[t]) + BETA * words as f64)
                            * (f64::from(of_document[d * k + t]) + alpha);
                        cumulative[t] = sum;
                    }
                    let drawn = random.unit() * sum;
                    let new = cumulative.iter().position(|upper| drawn < *upper).unwrap_or(k - 1);
                    *topic = new as u32;
                    of_word[word + new] += 1;
                    of_topic[new] += 1;
                    of_document[d * k + new] += 1;
                }
            }
            if round + AVERAGED >= self.rounds {
                for d in 0..documents.len() {
                    let row = sums.row_mut(d);
                    (0..k).for_each(|t| row[t] += of_document[d * k + t] as f32 + alpha as f32);
                }
            }
            watch.done(Step::FindingTopics, round + 1, self.rounds);
        }
        Ok(sums)
    }
}
