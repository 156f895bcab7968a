//! Hybrid ranker: weighted sum of dense and BM25 scores, with the same formula as the search.

use super::{Bm25, Dense, Pool, Progress, Ranker, Scorer};
use turnwise_core::error::Result;
use turnwise_encoder::Vectors;
use turnwise_search::Fusion;

/// Dense ranker combined with BM25.
#[derive(Clone)]
pub struct Hybrid<'e> {
    /// Dense ranker.
    pub dense: Dense<'e>,
    /// BM25 ranker.
    pub words: Bm25,
    /// Weights of the two scores.
    pub fusion: Fusion,
}

impl Ranker for Hybrid<'_> {
    fn name(&self) -> String {
        format!("{} + {} × {}", self.dense.name(), self.fusion.bm25, self.words.name())
    }

    fn identity(&self) -> String {
        format!("hybrid/{:?}/{}/{}", self.fusion, self.dense.identity(), self.words.identity())
    }

    fn prepare<'a>(&'a self, pool: &'a Pool, watch: &dyn Progress) -> Result<Box<dyn Scorer + 'a>> {
        let (dense, words) = (self.dense.prepare(pool, watch)?, self.words.prepare(pool, watch)?);
        Ok(Box::new(Prepared { dense, words, fusion: self.fusion }))
    }
}

struct Prepared<'a> {
    dense: Box<dyn Scorer + 'a>,
    words: Box<dyn Scorer + 'a>,
    fusion: Fusion,
}

impl Scorer for Prepared<'_> {
    fn scores(&self, query: usize, documents: &[u32], scores: &mut Vec<f32>) -> Result<()> {
        let mut words = Vec::new();
        self.words.scores(query, documents, &mut words)?;
        self.dense.scores(query, documents, scores)?;
        scores
            .iter_mut()
            .zip(&words)
            .for_each(|(score, words)| *score = self.fusion.weighted(*score, *words));
        Ok(())
    }

    fn vectors(&self) -> Option<&Vectors> {
        self.dense.vectors()
    }
}
