//! Scoring of responses.

use std::sync::Arc;

use rayon::prelude::*;
use turnwise_core::{
    error::{Error, Result},
    vectors::cosine,
};

use super::{HeadPooling, History, Sample, Selected, Selector, Utterance, engine::Engine};
use crate::{
    InputVectors, Part, Reduction, Vectors,
    backend::pool_into,
    transformer::{Item, run_states},
};

impl Selector {
    /// Scores the responses of a context. Turns and responses without tokens are allowed; a turn without tokens is
    /// skipped. Fails if no turn of the context has a token.
    pub fn select(&self, context: &[&str], responses: &[&str]) -> Result<Selected> {
        let mut selected = self.select_all(&[Sample::new(context, responses)])?;
        selected.pop().ok_or_else(|| Error::Internal("the context was not scored".to_owned()))
    }

    /// Scores the responses of several contexts. The order of the results is the order of the samples.
    ///
    /// A selector that compares vectors reads only the most similar responses together with their context: 16, or fewer if
    /// the context is long. The other responses get lower scores, in the order of their similarities.
    pub fn select_all(&self, samples: &[Sample<'_>]) -> Result<Vec<Selected>> {
        let tokenized = samples.par_iter().map(|sample| self.tokenize(sample));
        let tokenized = tokenized.collect::<Result<Vec<Tokenized>>>()?;
        let alone = self.encode_alone(&tokenized)?;
        let (mut items, mut all) = (Vec::new(), Vec::new());
        for (sample, alone) in tokenized.iter().zip(&alone) {
            let mut selected = Selected { outputs: alone.scores.clone(), ..Selected::default() };
            let turns: Vec<&[u32]> = sample.context.iter().map(Vec::as_slice).collect();
            let most = match alone.scores.is_empty() {
                true => usize::MAX,
                false => most_read(self.layout.context_inputs(&turns)),
            };
            let read = read_first(&alone.scores, sample.responses.len(), most);
            self.read(sample, alone, &read, &mut items, &mut selected);
            all.push((selected, read));
        }
        let states = self.engine.run(&items, items.len(), &[(self.engine.layers, 1.0)])?;
        let mut outputs = states.rows().map(|state| self.head.score(state));
        let finished = all.into_iter().map(|(mut selected, read)| {
            let outputs: Vec<f32> = outputs.by_ref().take(read.len()).collect();
            add_outputs(&mut selected.outputs, &read, &outputs);
            selected
        });
        Ok(finished.collect())
    }

    /// Adds the sequences of the responses `read` of a sample to `items`, and counts in `selected` what was cut off.
    fn read(
        &self,
        sample: &Tokenized,
        alone: &Alone,
        read: &[usize],
        items: &mut Vec<Item>,
        selected: &mut Selected,
    ) {
        let turns: Vec<&[u32]> = sample.context.iter().map(Vec::as_slice).collect();
        // Responses of about the same length have the same turns, so they can share one copy of the vectors.
        let mut shared: Option<(usize, Arc<[f32]>)> = None;
        for n in read.iter().copied() {
            let response = &sample.responses[n];
            let pair = match self.settings().history {
                _ if !self.is_own => self.layout.query_and_text(&turns.concat(), response),
                History::Tokens => self.layout.tokens(&turns, response),
                History::Sentences => self.layout.sentences(turns.len(), response),
            };
            selected.cut_context = selected.cut_context.max(sample.dropped + pair.cut_context);
            if pair.cut_response > 0 {
                selected.cut_responses.push(n);
            }
            let mut sequence = pair.sequence;
            selected.tokens += sequence.len() as u64;
            if let Some((_, first)) = pair.vectors.first() {
                let count = pair.vectors.len();
                let elements = match &shared {
                    Some((known, elements)) if *known == count => elements.clone(),
                    _ => {
                        let rows = (*first as usize..).take(count);
                        let elements: Arc<[f32]> = rows.flat_map(|n| alone.context.row(n)).copied().collect();
                        shared = Some((count, elements.clone()));
                        elements
                    }
                };
                let tokens = pair.vectors.iter().map(|(token, _)| *token).collect();
                sequence.vectors = Some(InputVectors { tokens, elements });
            }
            let rows = match self.head.pooling {
                HeadPooling::First => 0..1,
                HeadPooling::Mean => 0..sequence.len(),
            };
            let pool = vec![Part { weight: 1.0 / rows.len() as f32, rows }];
            items.push(Item { input: items.len(), sequence, pools: vec![pool] });
        }
    }

    fn tokenize(&self, sample: &Sample<'_>) -> Result<Tokenized> {
        let pieces = |text: &&str| self.tokenizer.pieces(text);
        let mut context = match self.is_own {
            true => sample.context.iter().map(pieces).collect::<Result<Vec<_>>>()?,
            // A cross-encoder of sentence-transformers reads one text, not turns.
            false => vec![self.tokenizer.pieces(&sample.context.join(" "))?],
        };
        if self.is_own {
            context.retain(|turn| !turn.is_empty());
            if context.is_empty() {
                return Err(Error::input("there is nothing to answer: no turn of the context has text")
                    .with_hint("pass the previous turns as the context"));
            }
        }
        let cut = sample.last_tokens.map_or([0; 2], |room| keep_last_tokens(&mut context, room));
        let responses = sample.responses.iter().map(pieces).collect::<Result<Vec<_>>>()?;
        let dropped = match self.settings().sentences {
            Some(_) => {
                // Do not encode turns that no sequence can hold.
                let beyond = context.len().saturating_sub(self.layout.max_turns());
                context.drain(..beyond);
                cut[0] + beyond
            }
            None => cut[1],
        };
        Ok(Tokenized { context, dropped, responses })
    }

    /// Encodes what the selector encodes separately: the context turns if they become sentence vectors, and the context
    /// turns and the responses if the head compares them.
    fn encode_alone(&self, samples: &[Tokenized]) -> Result<Vec<Alone>> {
        let (by_turn, scales) = (self.settings().history == History::Sentences, self.head.scales);
        let mut texts = Vec::new();
        let mut counts = Vec::new();
        for sample in samples {
            let context: Vec<&[u32]> = sample.context.iter().map(Vec::as_slice).collect();
            let before = texts.len();
            if by_turn || scales.is_some() {
                texts.extend(self.layout.context(&context));
            }
            counts.push(texts.len() - before);
            if scales.is_some() {
                texts.push(self.layout.whole_context(&context));
                texts.extend(sample.responses.iter().map(|response| self.layout.utterance(response)));
            }
        }
        let Some(scales) = scales else {
            let vectors = self.sentence_vectors(&texts)?;
            let mut rows = vectors.rows();
            let alone = counts.into_iter().map(|count| {
                let mut context = Vectors::new(vectors.dim());
                rows.by_ref().take(count).for_each(|row| context.push(row));
                Alone { context, scores: Vec::new() }
            });
            return Ok(alone.collect());
        };
        let texts = self.texts(&texts)?;
        let mut rest = texts.as_slice();
        let mut all = Vec::with_capacity(samples.len());
        for (sample, count) in samples.iter().zip(counts) {
            let (turns, more) = rest.split_at(count);
            let (whole, more) = more.split_at(1);
            let (responses, more) = more.split_at(sample.responses.len());
            rest = more;
            let mut context = Vectors::new(self.engine.backend.hidden());
            turns.iter().for_each(|turn| context.push(&turn.vector));
            let score = |response: &Text| {
                scales.turns * similarity(&context, &response.vector)
                    + scales.context * cosine(&whole[0].vector, &response.vector)
                    + scales.tokens * similarity_of_tokens(&whole[0].tokens, &response.tokens)
            };
            let scores = responses.par_iter().map(score).collect();
            all.push(Alone { context, scores });
        }
        Ok(all)
    }

    /// Returns the vectors of texts that are encoded separately, and those of their compared tokens.
    fn texts(&self, texts: &[Utterance]) -> Result<Vec<Text>> {
        let item = |(input, text): (usize, &Utterance)| Item {
            input,
            sequence: text.sequence.clone(),
            pools: Vec::new(),
        };
        let items: Vec<Item> = texts.iter().enumerate().map(item).collect();
        // One pass suffices if the vectors depend on the last layer only.
        let pooled = match texts.iter().all(|text| text.terms[0].is_empty()) {
            true => None,
            false => Some(self.sentence_vectors(texts)?),
        };
        let width = self.engine.backend.hidden();
        let of_text = |n: usize, states: &[f32]| {
            let text = &texts[n];
            let vector = match &pooled {
                Some(pooled) => pooled.row(n).to_vec(),
                None => {
                    let mut sum = vec![0.0; width];
                    pool_into(&mut sum, states, &text.terms[1], Reduction::Sum);
                    sum
                }
            };
            let mut tokens = Vectors::new(width);
            text.compared.iter().for_each(|row| tokens.push(&states[*row as usize * width..][..width]));
            tokens.normalize();
            Text { vector, tokens }
        };
        let Engine { backend, layers, budget } = &self.engine;
        run_states(backend.as_ref(), budget, &[(*layers, 1.0)], &items, &of_text)
    }

    /// Returns the vectors of texts that are encoded separately, by the network that computes them.
    pub(super) fn sentence_vectors(&self, texts: &[Utterance]) -> Result<Vectors> {
        let engine = self.sentence_engine.as_ref().unwrap_or(&self.engine);
        engine.sentence_vectors(&self.layout.vector_settings(), texts)
    }
}

/// Removes tokens from the start of a context until at most `room` are left. Returns the numbers of removed turns and
/// of removed tokens.
fn keep_last_tokens(context: &mut Vec<Vec<u32>>, room: usize) -> [usize; 2] {
    let total: usize = context.iter().map(Vec::len).sum();
    let cut = total.saturating_sub(room);
    let (mut turns, mut left) = (0, cut);
    while context.get(turns).is_some_and(|turn| turn.len() <= left && left > 0) {
        left -= context[turns].len();
        turns += 1;
    }
    context.drain(..turns);
    if let Some(first) = context.first_mut() {
        first.drain(..left);
    }
    [turns, cut]
}

/// Maximum and minimum number of responses that are read together with their context, if all are compared with it before.
const MOST_READ: usize = 16;
const LEAST_READ: usize = 4;
/// Maximum number of inputs that a context takes in the sequences of all responses that are read together, unless only
/// [`LEAST_READ`] are read.
const MOST_INPUTS: usize = 3_072;

/// Returns the maximum number of responses to read together with a context that has `inputs` inputs in a sequence.
pub(super) fn most_read(inputs: usize) -> usize {
    (MOST_INPUTS / inputs.max(1)).clamp(LEAST_READ, MOST_READ)
}

/// Returns the indices of the responses to read: the `most` responses with the highest scores.
pub(super) fn read_first(scores: &[f32], count: usize, most: usize) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..count).collect();
    if count > most {
        indices.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
        indices.truncate(most);
        indices.sort_unstable();
    }
    indices
}

/// Adds the outputs of the responses `read` to their scores. All other scores are reduced by the same amount, such that
/// they are not higher than the lowest score of a response that was read.
pub(super) fn add_outputs(scores: &mut Vec<f32>, read: &[usize], outputs: &[f32]) {
    if scores.is_empty() {
        scores.extend(outputs);
        return;
    }
    let mut is_read = vec![false; scores.len()];
    for (n, output) in read.iter().zip(outputs) {
        is_read[*n] = true;
        scores[*n] += output;
    }
    let of =
        |wanted: bool| scores.iter().zip(&is_read).filter(move |(_, read)| **read == wanted).map(|(s, _)| *s);
    let lowest = of(true).fold(f32::INFINITY, f32::min);
    let excess = of(false).fold(f32::NEG_INFINITY, f32::max) - lowest;
    if excess > 0.0 {
        scores.iter_mut().zip(&is_read).filter(|(_, read)| !**read).for_each(|(score, _)| *score -= excess);
    }
}

/// Range of cosines within which several turns count in the similarity of a context and a response.
pub const SOFTNESS: f32 = 0.05;

/// Returns the similarity of turns and a response: the smooth maximum of the cosines of their vectors. A response
/// usually answers one of the turns, and other turns that fit raise the similarity a little.
pub(super) fn similarity(turns: &Vectors, response: &[f32]) -> f32 {
    let powers = turns.rows().map(|row| (cosine(row, response) / SOFTNESS).exp());
    powers.sum::<f32>().ln() * SOFTNESS
}

/// Returns the similarity of the tokens of a context and of a response: the mean, over the tokens of the response, of the
/// smooth maximum of the cosines with the tokens of the context. The vectors must be L2-normalized.
pub(super) fn similarity_of_tokens(context: &Vectors, response: &Vectors) -> f32 {
    if context.is_empty() || response.is_empty() {
        return 0.0;
    }
    let best = |token: &[f32]| {
        let powers = context.rows().map(|row| (dot(row, token) / SOFTNESS).exp());
        powers.sum::<f32>().ln() * SOFTNESS
    };
    response.rows().map(best).sum::<f32>() / response.len() as f32
}

/// Returns the dot product. It is computed in lanes, for speed.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut lanes = [0.0f32; LANES];
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest = a.remainder().iter().zip(b.remainder()).map(|(a, b)| a * b).sum::<f32>();
    for (a, b) in a.zip(b) {
        lanes.iter_mut().zip(a).zip(b).for_each(|((lane, a), b)| *lane += a * b);
    }
    lanes.iter().sum::<f32>() + rest
}

/// Vectors of a text that is encoded separately.
#[derive(Default)]
struct Text {
    vector: Vec<f32>,
    /// L2-normalized vectors of the compared tokens.
    tokens: Vectors,
}

/// Results of encoding the texts of a sample alone.
struct Alone {
    /// Vectors of the context turns.
    context: Vectors,
    /// Sum of the scaled similarities of the context and each response. Empty if the head does not compare them.
    scores: Vec<f32>,
}

/// Tokens of a sample.
pub(super) struct Tokenized {
    context: Vec<Vec<u32>>,
    /// Number of tokens, or of turns if the selector reads sentence vectors, that were removed from the start of the
    /// context.
    dropped: usize,
    responses: Vec<Vec<u32>>,
}
