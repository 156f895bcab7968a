//! Similarities of contexts and responses that are encoded separately, for the head `matching` of selectors. They are the
//! differentiable versions of those in the crate `turnwise-encoder`.

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
    /// The contexts whose responses are scored.
    scored: Vec<Scored>,
}

/// A text that is encoded separately.
struct Text {
    kind: TextKind,
    ids: Vec<u32>,
}

/// Kinds of texts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TextKind {
    /// A turn of the dialogue with this number.
    Turn(u32),
    /// A response that was drawn.
    Drawn,
    /// A context as one text. It is no response.
    Context,
}

/// The turns of a context, and the response to them.
struct Query {
    /// Indices of the turns of the context.
    turns: Range<usize>,
    /// Index of the true response.
    truth: usize,
}

/// A context whose responses are scored.
struct Scored {
    /// Index of the query.
    query: usize,
    /// The context as one text.
    context: WithTokens,
    /// The responses. The first one is the true response.
    responses: Vec<WithTokens>,
}

/// A text whose tokens are compared, too.
pub(super) struct WithTokens {
    /// Index of the text.
    pub(super) text: usize,
    /// Indices of the tokens.
    pub(super) tokens: Range<usize>,
}

/// Similarities of contexts and responses.
pub(super) struct Similarities {
    /// Smooth maximum of the cosines of the turns: one row per query, and one column per text.
    turns: Tensor,
    /// Sum of the scaled similarities: one row per scored context, and one column per response of these contexts.
    sums: Tensor,
}

impl Compared {
    /// Adds a text. Returns its index.
    pub(super) fn add_text(&mut self, kind: TextKind, ids: &[u32]) -> usize {
        self.texts.push(Text { kind, ids: ids.to_vec() });
        self.texts.len() - 1
    }

    /// Adds the turns of a context, and the true response. Returns the index of the query.
    pub(super) fn add_query(&mut self, turns: Range<usize>, truth: usize) -> usize {
        self.queries.push(Query { turns, truth });
        self.queries.len() - 1
    }

    /// Adds the responses to score for a query. `context` is the whole context as one text.
    pub(super) fn add_scored(&mut self, query: usize, context: WithTokens, responses: Vec<WithTokens>) {
        self.scored.push(Scored { query, context, responses });
    }

    /// Returns the responses of all scored contexts.
    fn responses(&self) -> impl Iterator<Item = &WithTokens> {
        self.scored.iter().flat_map(|scored| &scored.responses)
    }

    /// Computes the similarities from the vectors of the texts, followed by those of the tokens, and from the scales of a
    /// head.
    pub(super) fn similarities(&self, vectors: &Tensor, scales: &Tensor) -> Candle<Similarities> {
        let unit = losses::unit(vectors)?;
        let texts = unit.narrow(0, 0, self.texts.len())?;
        let cosines = texts.matmul(&texts.t()?)?;
        let of_queries = self.queries.iter().map(|query| vec![sum_of(query.turns.clone())]);
        let turns = smooth_maximum(&cosines, of_queries.collect())?;
        let pick = |rows: &mut dyn Iterator<Item = usize>, of: &Tensor, dim| {
            let rows: Vec<u32> = rows.map(|row| row as u32).collect();
            of.index_select(&losses::indices(&rows, of)?, dim)
        };
        let of_responses = |of: &Tensor, rows: &mut dyn Iterator<Item = usize>| {
            pick(&mut self.responses().map(|response| response.text), &pick(rows, of, 0)?, 1)
        };
        let of_turns = of_responses(&turns, &mut self.scored.iter().map(|scored| scored.query))?;
        let of_contexts = of_responses(&cosines, &mut self.scored.iter().map(|scored| scored.context.text))?;
        let scales = scales.to_dtype(turns.dtype())?;
        let scaled = |of: &Tensor, n| of.broadcast_mul(&scales.narrow(0, n, 1)?);
        let sums =
            ((scaled(&of_turns, 0)? + scaled(&of_contexts, 1)?)? + scaled(&self.of_tokens(&unit)?, 2)?)?;
        Ok(Similarities { turns, sums })
    }

    /// Computes the similarities of the tokens of the scored contexts and of their responses. Every token of a response has
    /// a smooth maximum of its cosines with the tokens of the context, and their mean is the similarity.
    fn of_tokens(&self, unit: &Tensor) -> Candle<Tensor> {
        // The tokens of each text follow those of the text before it.
        let picked = |texts: &mut dyn Iterator<Item = &WithTokens>| {
            let (mut rows, mut ranges) = (Vec::new(), Vec::new());
            for text in texts {
                let start = rows.len();
                rows.extend(text.tokens.clone().map(|token| (self.texts.len() + token) as u32));
                ranges.push(start..rows.len());
            }
            let vectors = unit.index_select(&losses::indices(&rows, unit)?, 0)?;
            Candle::Ok((vectors, ranges))
        };
        let (contexts, of_contexts) = picked(&mut self.scored.iter().map(|scored| &scored.context))?;
        let (responses, of_responses) = picked(&mut self.responses())?;
        let of_contexts = of_contexts.into_iter().map(|tokens| vec![sum_of(tokens)]);
        let best = smooth_maximum(&contexts.matmul(&responses.t()?)?, of_contexts.collect())?;
        let mean_of = |tokens: Range<usize>| Part { weight: 1.0 / tokens.len().max(1) as f32, rows: tokens };
        let means = of_responses.into_iter().map(|tokens| vec![mean_of(tokens)]);
        pool(&best.t()?.contiguous()?, means.collect())?.t()?.contiguous()
    }

    /// Returns the sums of the scaled similarities of the contexts with their own responses.
    pub(super) fn of_pairs(&self, similarities: &Similarities) -> Candle<Tensor> {
        let width = self.responses().count();
        let (mut places, mut column) = (Vec::new(), 0);
        for (row, scored) in self.scored.iter().enumerate() {
            places.extend(
                (column..column + scored.responses.len()).map(|column| (row * width + column) as u32),
            );
            column += scored.responses.len();
        }
        let sums = &similarities.sums;
        sums.flatten_all()?.index_select(&losses::indices(&places, sums)?, 0)
    }

    /// Computes the in-batch loss: the true response must be more similar to its context than the others. For every reply,
    /// the turns of the context are compared with all texts; for the scored contexts, the sum of the scaled similarities
    /// with the responses of all of them.
    pub(super) fn in_batch_loss(&self, similarities: &Similarities) -> Candle<Tensor> {
        let texts: Vec<usize> = (0..self.texts.len()).collect();
        let truths: Vec<usize> = self.queries.iter().map(|query| query.truth).collect();
        let of_turns = self.among(&(&similarities.turns / TEMPERATURE)?, &texts, &truths)?;
        let responses: Vec<usize> = self.responses().map(|response| response.text).collect();
        let mut first = 0;
        let first_of = |scored: &Scored| {
            first += scored.responses.len();
            first - scored.responses.len()
        };
        let truths: Vec<usize> = self.scored.iter().map(first_of).collect();
        of_turns + self.among(&similarities.sums, &responses, &truths)?
    }

    /// Computes the cross-entropy of the true responses, whose columns are `truths`. `texts` are the texts of the columns.
    /// Turns of the same dialogue, contexts, and texts that are equal to the response are no negatives.
    fn among(&self, scores: &Tensor, texts: &[usize], truths: &[usize]) -> Candle<Tensor> {
        let mut mask = Vec::with_capacity(truths.len() * texts.len());
        for column in truths {
            let truth = &self.texts[texts[*column]];
            mask.extend(texts.iter().map(|text| &self.texts[*text]).enumerate().map(|(n, text)| {
                let is_excluded =
                    text.kind == truth.kind || text.kind == TextKind::Context || text.ids == truth.ids;
                if is_excluded && n != *column { losses::MASKED } else { 0.0 }
            }));
        }
        let mask = Tensor::from_vec(mask, scores.shape(), scores.device())?;
        let truths: Vec<u32> = truths.iter().map(|column| *column as u32).collect();
        losses::cross_entropy(&(scores + mask.to_dtype(scores.dtype())?)?, &truths)
    }
}

/// Returns the term that adds up rows.
fn sum_of(rows: Range<usize>) -> Part {
    Part { rows, weight: 1.0 }
}

/// Computes the smooth maximum of rows of cosines, one output row per set of rows.
fn smooth_maximum(cosines: &Tensor, rows: Vec<Vec<Part>>) -> Candle<Tensor> {
    let softness = f64::from(SOFTNESS);
    // Cosines are at most 1, so the exponential does not overflow.
    let powers = (cosines / softness)?.exp()?;
    pool(&powers, rows)?.log()? * softness
}
