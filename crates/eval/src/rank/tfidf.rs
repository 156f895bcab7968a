//! TF-IDF rankers: cosine similarity of TF-IDF weights, with or without singular value decomposition.

use std::collections::BTreeSet;

use rayon::prelude::*;

use super::{
    Dense, Items, Pool, Progress, Ranker, Scorer, Terms,
    bm25::{Words, both},
    dense,
};
use turnwise_core::error::{Error, Result};
use turnwise_encoder::{
    Vectors,
    statics::{
        TfidfSettings, fit_tfidf,
        linalg::{self, Effort, Sparse},
    },
};

/// TF-IDF ranker with the smoothed inverse document frequency and the sublinear term frequency of scikit-learn.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tfidf {
    /// How texts are split into terms.
    pub terms: Terms,
}

impl Ranker for Tfidf {
    fn name(&self) -> String {
        self.terms.named("TF-IDF")
    }

    fn identity(&self) -> String {
        format!("tfidf/{}", self.terms)
    }

    fn prepare<'a>(&'a self, pool: &'a Pool, watch: &dyn Progress) -> Result<Box<dyn Scorer + 'a>> {
        let words = Words::of(pool, self.terms);
        watch.check()?;
        let idf = idf(&words);
        let weigh = |words: &Vec<(u32, u32)>| weights(words, &idf);
        Ok(Box::new(Prepared {
            documents: words.documents.par_iter().map(weigh).collect(),
            queries: words.queries.as_ref().map(|queries| queries.par_iter().map(weigh).collect()),
        }))
    }
}

struct Prepared {
    documents: Vec<Vec<(u32, f64)>>,
    queries: Option<Vec<Vec<(u32, f64)>>>,
}

impl Scorer for Prepared {
    fn scores(&self, query: usize, documents: &[u32], scores: &mut Vec<f32>) -> Result<()> {
        let query = &self.queries.as_ref().unwrap_or(&self.documents)[query];
        scores.clear();
        let product = |document: &u32| both(query, &self.documents[*document as usize], |a, b| a * b) as f32;
        scores.extend(documents.iter().map(product));
        Ok(())
    }
}

/// Ranker by TF-IDF, followed by truncated singular value decomposition (SVD). Both steps are fitted to the documents.
#[derive(Debug, Clone, Copy)]
pub struct TfidfThenSvd {
    /// Dimension of the vectors.
    pub dim: usize,
    /// Random seed of the decomposition.
    pub seed: u64,
    /// How texts are split into terms. `None` to use the encoder of `turnwise model fit` with its default settings;
    /// this encoder splits the texts itself.
    pub terms: Option<Terms>,
}

impl Ranker for TfidfThenSvd {
    fn name(&self) -> String {
        let terms = self.terms.map(|terms| format!(" {terms}")).unwrap_or_default();
        format!("TF-IDF+SVD-{}{terms}", self.dim)
    }

    fn identity(&self) -> String {
        format!("tfidf-svd/{}/{}/{:?}", self.dim, self.seed, self.terms)
    }

    fn prepare<'a>(&'a self, pool: &'a Pool, watch: &dyn Progress) -> Result<Box<dyn Scorer + 'a>> {
        match self.terms {
            None => self.fitted(pool, watch),
            Some(terms) => self.plain(terms, pool),
        }
    }
}

impl TfidfThenSvd {
    fn fitted<'a>(&self, pool: &'a Pool, watch: &dyn Progress) -> Result<Box<dyn Scorer + 'a>> {
        let settings = TfidfSettings { dim: self.dim, seed: self.seed, ..TfidfSettings::default() };
        // Remove repeated texts, because they would count several times.
        let texts: Vec<String> = match &pool.documents {
            Items::Texts(texts) => texts.iter().collect::<BTreeSet<_>>().into_iter().cloned().collect(),
            dialogues => (0..dialogues.len()).map(|n| dialogues.text(n).into_owned()).collect(),
        };
        let encoder = fit_tfidf(texts.into_iter(), &settings)?;
        let dense = Dense::new(&encoder);
        Ok(Box::new(dense::Prepared::new(&dense, pool, watch)?))
    }

    /// Creates a scorer with the vectors that `TfidfVectorizer(sublinear_tf=True, min_df=2)` and `TruncatedSVD` of
    /// scikit-learn compute.
    fn plain(&self, terms: Terms, pool: &Pool) -> Result<Box<dyn Scorer>> {
        let words = Words::of(pool, terms);
        let mut kept = 0;
        let columns: Vec<Option<u32>> =
            words.documents_with.iter().map(|with| (*with >= 2).then(|| (kept += 1, kept - 1).1)).collect();
        let idf = idf(&words);
        let row = |document: &Vec<(u32, u32)>| {
            let known: Vec<(u32, u32)> =
                document.iter().filter(|(word, _)| columns[*word as usize].is_some()).copied().collect();
            let weights = weights(&known, &idf).into_iter();
            weights
                .filter_map(|(word, weight)| Some((columns[word as usize]?, weight as f32)))
                .collect::<Vec<_>>()
        };
        let mut matrix = Sparse::new(kept as usize);
        words.documents.iter().for_each(|document| matrix.push(row(document)));
        let effort = if terms == Terms::Scikit { Effort::SCIKIT } else { Effort::THOROUGH };
        let svd = linalg::truncated_svd(&matrix, self.dim, effort, self.seed);
        let dim = svd.values.len();
        if dim == 0 {
            return Err(Error::data("TF-IDF needs at least one term that occurs in two documents"));
        }
        let project = |document: &Vec<(u32, u32)>| {
            let mut vector = vec![0.0f32; dim];
            for (column, weight) in row(document) {
                let component = &svd.components[column as usize * dim..][..dim];
                vector.iter_mut().zip(component).for_each(|(v, c)| *v += weight * c);
            }
            vector
        };
        let vectors = |rows: &Vec<Vec<(u32, u32)>>| {
            let flat = rows.par_iter().map(project).collect::<Vec<_>>().concat();
            let mut vectors = Vectors::from_flat(dim, flat).unwrap_or_default();
            vectors.normalize();
            vectors
        };
        Ok(Box::new(dense::Prepared::given(vectors(&words.documents), words.queries.as_ref().map(vectors))))
    }
}

/// Returns the smoothed inverse document frequency of each term, as in scikit-learn.
fn idf(words: &Words) -> Vec<f64> {
    let count = words.count as f64;
    words.documents_with.iter().map(|with| ((1.0 + count) / (1.0 + f64::from(*with))).ln() + 1.0).collect()
}

/// Returns the L2-normalized TF-IDF weights of a text, as (term number, weight) pairs.
fn weights(words: &[(u32, u32)], idf: &[f64]) -> Vec<(u32, f64)> {
    let weigh = |(word, times): &(u32, u32)| (*word, (1.0 + f64::from(*times).ln()) * idf[*word as usize]);
    let mut weights: Vec<(u32, f64)> = words.iter().map(weigh).collect();
    let length = weights.iter().map(|(_, weight)| weight * weight).sum::<f64>().sqrt();
    weights.iter_mut().for_each(|(_, weight)| *weight /= length.max(1e-12));
    weights
}
