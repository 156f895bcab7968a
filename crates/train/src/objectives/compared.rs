//! Similarities of contexts and responses whose turns are encoded separately, for the head `matching` of selectors.

use std::ops::Range;

use candle_core::{Result as Candle, Tensor};

use super::losses;
use crate::ops::pool;
use turnwise_encoder::{Part, selector::SOFTNESS};

/// Temperature τ of the in-batch loss.
const TEMPERATURE: f64 = 0.05;

/// Contexts and texts to compare. The texts are those that a batch encodes separately, in the same order.
#[derive(Default)]
pub(super) struct Compared {
    texts: Vec<Text>,
    queries: Vec<Query>,
    /// Query and text of each pair that is scored.
    pairs: Vec<(usize, usize)>,
}

/// A turn, or a response that was drawn.
struct Text {
    /// Dialogue of the turn; `None` for a response that was drawn.
    dialogue: Option<u32>,
    ids: Vec<u32>,
}

/// A context, and the response to it.
struct Query {
    /// Indices of the turns of the context.
    turns: Range<usize>,
    /// Index of the true response.
    truth: usize,
}

impl Compared {
    /// Adds a text. Returns its index.
    pub(super) fn add_text(&mut self, dialogue: Option<u32>, ids: &[u32]) -> usize {
        self.texts.push(Text { dialogue, ids: ids.to_vec() });
        self.texts.len() - 1
    }

    /// Adds a context and its true response. Returns the index of the query.
    pub(super) fn add_query(&mut self, turns: Range<usize>, truth: usize) -> usize {
        self.queries.push(Query { turns, truth });
        self.queries.len() - 1
    }

    /// Adds a pair to score.
    pub(super) fn add_pair(&mut self, query: usize, text: usize) {
        self.pairs.push((query, text));
    }

    /// Returns the similarity of each context with each text: the smooth maximum of the cosines of its turns.
    pub(super) fn similarities(&self, vectors: &Tensor) -> Candle<Tensor> {
        let unit = losses::unit(vectors)?;
        let softness = f64::from(SOFTNESS);
        // Cosines are at most 1, so the exponential does not overflow.
        let powers = (unit.matmul(&unit.t()?)? / softness)?.exp()?;
        let sums = self.queries.iter().map(|query| vec![Part { rows: query.turns.clone(), weight: 1.0 }]);
        pool(&powers, sums.collect())?.log()? * softness
    }

    /// Returns the similarities of the pairs.
    pub(super) fn of_pairs(&self, similarities: &Tensor) -> Candle<Tensor> {
        let places: Vec<u32> =
            self.pairs.iter().map(|(query, text)| (query * self.texts.len() + text) as u32).collect();
        similarities.flatten_all()?.index_select(&losses::indices(&places, similarities)?, 0)
    }

    /// Computes the loss of `responses`: among all texts, the true response must be the most similar to its context.
    /// Turns of the same dialogue and texts that are equal to the response are no negatives.
    pub(super) fn in_batch_loss(&self, similarities: &Tensor) -> Candle<Tensor> {
        let mut mask = Vec::with_capacity(self.queries.len() * self.texts.len());
        for query in &self.queries {
            let truth = &self.texts[query.truth];
            mask.extend(self.texts.iter().enumerate().map(|(n, text)| {
                let is_excluded = text.dialogue == truth.dialogue || text.ids == truth.ids;
                if is_excluded && n != query.truth { losses::MASKED } else { 0.0 }
            }));
        }
        let mask = Tensor::from_vec(mask, similarities.shape(), similarities.device())?;
        let scores = ((similarities + mask.to_dtype(similarities.dtype())?)? / TEMPERATURE)?;
        let truths: Vec<u32> = self.queries.iter().map(|query| query.truth as u32).collect();
        losses::cross_entropy(&scores, &truths)
    }
}
