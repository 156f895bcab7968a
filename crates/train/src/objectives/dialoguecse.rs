//! DialogueCSE: a response seen from the turns around it must be like the response as it is.
//!
//! `M = U·Rᵀ/√d`, `R̂ = M·R`, a mean over the turns (or a weighted one), a mean over tokens. As `M` has no softmax, the
//! mean over the tokens of a turn goes inside: `mean(M·R) = (mean(U)·Rᵀ/√d)·R`. No matrix of tokens by tokens is needed.

use std::sync::Arc;

use candle_core::{D, Device, Result as Candle, Tensor};

use super::{Objective, Place, Prepared, every_turn, likeness};
use crate::{
    data::TrainingSet,
    hard::Hard,
    model::{Packed, Parameter},
    ops::{Segments, linear, pool},
};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_encoder::{Part, Sequence, network::Activation};

/// How what the turns make of a response becomes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Turns {
    /// I₂: the mean.
    #[default]
    Mean,
    /// I₁: weights by a network of two layers.
    Weighted,
}

/// DialogueCSE with its settings.
pub struct DialogueCse {
    /// Turns around a response.
    pub context: usize,
    /// Other responses beside the true one.
    pub negatives: usize,
    /// Some of them hard ones: so many, from here, where there are some for a response.
    pub hard: Option<(usize, Hard)>,
    /// τ.
    pub temperature: f64,
    /// Tokens an utterance may have.
    pub max_tokens: usize,
    /// How turns are put together; with what that needs.
    turns: Turns,
    heads: Vec<Parameter>,
}

impl DialogueCse {
    /// With the paper's settings. What weighs turns begins with numbers that belong to the seed.
    pub fn new(turns: Turns, width: usize, seed: u64, device: &Device) -> Result<Self> {
        let heads = match turns {
            Turns::Mean => Vec::new(),
            Turns::Weighted => weigher(width, seed, device)?,
        };
        Ok(DialogueCse {
            context: 3,
            negatives: 9,
            hard: None,
            temperature: 0.1,
            max_tokens: 50,
            turns,
            heads,
        })
    }

    /// The turns next to one, from near to far, those before it first.
    fn around(&self, turn: usize, turns: usize) -> Vec<usize> {
        let mut near: Vec<usize> = (0..turns).filter(|t| *t != turn).collect();
        near.sort_by_key(|t| (t.abs_diff(turn), *t > turn));
        near.truncate(self.context);
        near.sort_unstable();
        near
    }
}

/// The two layers that weigh a turn.
fn weigher(width: usize, seed: u64, device: &Device) -> Result<Vec<Parameter>> {
    let make = |name: &str, numbers: Vec<f32>, shape: &[usize], decays| {
        Parameter::new(format!("turns.{name}"), numbers, shape, decays, device)
    };
    Ok(vec![
        make("inner.weight", likeness::drawn([width, width], seed, 0), &[width, width], true)?,
        make("inner.bias", vec![0.0; width], &[width], false)?,
        // Without a summand: it would be the same for every turn, and so for none.
        make("outer.weight", likeness::drawn([1, width], seed, 1), &[1, width], true)?,
    ])
}

impl Objective for DialogueCse {
    fn name(&self) -> &'static str {
        "dialoguecse"
    }

    fn heads(&self) -> &[Parameter] {
        &self.heads
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<Place>> {
        Ok(every_turn(data))
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Place, Random)]) -> Result<Box<dyn Prepared>> {
        if data.len() < 2 {
            return Err(Error::data("one dialogue has no other dialogue to take wrong responses from"));
        }
        let mut sequences: Vec<Sequence> = Vec::new();
        let mut contexts = Vec::with_capacity(examples.len());
        for (place, random) in examples {
            let (own, turn) = (place.dialogue, place.turn as usize);
            let dialogue = data.dialogue(own)?;
            let around = self.around(turn, dialogue.len());
            contexts.push(around.len());
            let mut add = |ids: &[u32]| sequences.push(data.utterance(ids, self.max_tokens));
            around.iter().for_each(|t| add(&dialogue[*t].ids));
            add(&dialogue[turn].ids);
            for n in 0..self.negatives {
                let hard = match &self.hard {
                    Some((count, hard)) if n < *count => hard.draw(&dialogue[turn].ids, own, random),
                    _ => None,
                };
                match hard {
                    Some(at) => add(&data.said(at)?),
                    None => add(&other(data, own, &dialogue[turn].ids, random)?),
                }
            }
        }
        Ok(Box::new(Responses {
            packed: Packed::new(sequences),
            contexts,
            candidates: 1 + self.negatives,
            temperature: self.temperature,
            weigher: match self.turns {
                Turns::Mean => None,
                Turns::Weighted => Some(self.heads.iter().map(|h| h.var.as_tensor().clone()).collect()),
            },
        }))
    }
}

/// An utterance of another dialogue, and another utterance.
fn other(data: &TrainingSet, own: u32, said: &[u32], random: &mut Random) -> Result<Vec<u32>> {
    let mut drawn = said_at(data, own, random)?;
    // "Yes." is said everywhere; a true response is no wrong one.
    for _ in 0..20 {
        if drawn != said {
            break;
        }
        drawn = said_at(data, own, random)?;
    }
    Ok(drawn)
}

fn said_at(data: &TrainingSet, own: u32, random: &mut Random) -> Result<Vec<u32>> {
    let drawn = random.below(data.len() - 1) as u32;
    let dialogue = drawn + u32::from(drawn >= own);
    let turn = random.below(data.turns_each()[dialogue as usize] as usize) as u32;
    data.said(Place { dialogue, turn })
}

/// Contexts, each followed by its true response and wrong ones.
struct Responses {
    packed: Packed,
    /// How many turns of context each example has.
    contexts: Vec<usize>,
    candidates: usize,
    temperature: f64,
    weigher: Option<Vec<Tensor>>,
}

impl Responses {
    /// Where the tokens of responses are, and what hangs on that.
    fn tokens(&self) -> Tokens {
        let mut tokens = Tokens::default();
        let mut sequence = 0;
        for (example, contexts) in self.contexts.iter().enumerate() {
            let turns = sequence..sequence + contexts;
            sequence += contexts;
            tokens.turns.extend(turns.clone().map(|t| self.packed.mean(t, 1.0)));
            let of = |t| self.packed.mean(t, 1.0 / *contexts as f32);
            tokens.contexts.push(turns.flat_map(of).collect());
            for _ in 0..self.candidates {
                let rows = self.packed.rows(sequence);
                let start = tokens.rows.len();
                tokens.rows.extend(rows.clone().map(|r| r as u32));
                tokens.example.extend(rows.clone().map(|_| example as u32));
                let weight = 1.0 / rows.len().max(1) as f32;
                tokens.means.push(vec![Part { rows: start..start + rows.len(), weight }]);
                tokens.sums.push(vec![Part { rows: start..start + rows.len(), weight: 1.0 }]);
                sequence += 1;
            }
        }
        tokens
    }

    /// Responses as the turns see them, one after the other: with the mean over turns inside.
    fn seen(&self, states: &Tensor, responses: &Tensor, tokens: &Tokens) -> Candle<Tensor> {
        let contexts = pool(states, &Arc::new(Segments::new(tokens.contexts.clone())))?;
        let of_token = contexts.index_select(&indices(&tokens.example, states)?, 0)?;
        matched(responses, &of_token, &tokens.sums)
    }

    /// The same with weights for the turns.
    fn weighed(
        &self,
        states: &Tensor,
        responses: &Tensor,
        tokens: &Tokens,
        weigher: &[Tensor],
    ) -> Candle<Tensor> {
        let turns = pool(states, &Arc::new(Segments::new(tokens.turns.clone())))?;
        // For every turn the tokens of all its candidates again.
        let (mut rows, mut of_turn, mut sums) = (Vec::new(), Vec::new(), Vec::new());
        let (mut turn, mut candidate) = (0, 0);
        let mut groups = Vec::new();
        for contexts in &self.contexts {
            for c in candidate..candidate + self.candidates {
                groups.push(sums.len()..sums.len() + contexts);
                for t in turn..turn + contexts {
                    let own = tokens.sums[c][0].rows.clone();
                    sums.push(vec![Part { rows: rows.len()..rows.len() + own.len(), weight: 1.0 }]);
                    of_turn.extend(own.clone().map(|_| t as u32));
                    rows.extend(own.map(|r| r as u32));
                }
            }
            turn += contexts;
            candidate += self.candidates;
        }
        let again = responses.index_select(&indices(&rows, states)?, 0)?;
        let of_token = turns.index_select(&indices(&of_turn, states)?, 0)?;
        let seen = matched(&again, &of_token, &sums)?;
        let [inner, bias, outer] = weigher else { candle_core::bail!("what weighs turns has three parts") };
        let of = |t: &Tensor| t.to_dtype(states.dtype());
        let scores = linear(&seen, &of(inner)?, &of(bias)?, Some(Activation::Relu))?;
        let scores = scores.matmul(&of(outer)?.t()?)?.flatten_all()?;
        let mut all = Vec::with_capacity(groups.len());
        for group in groups {
            let weights = candle_nn::ops::softmax(&scores.narrow(0, group.start, group.len())?, D::Minus1)?;
            all.push(weights.unsqueeze(0)?.matmul(&seen.narrow(0, group.start, group.len())?)?);
        }
        Tensor::cat(&all, 0)
    }
}

/// `Σ (w·r/√d)·r` over the tokens of each response, given for each token what it is matched with.
fn matched(responses: &Tensor, with: &Tensor, sums: &[Vec<Part>]) -> Candle<Tensor> {
    let scale = (responses.dim(1)? as f64).sqrt();
    let match_ = ((responses * with)?.sum_keepdim(1)? / scale)?;
    pool(&responses.broadcast_mul(&match_)?, &Arc::new(Segments::new(sums.to_vec())))
}

#[derive(Default)]
struct Tokens {
    /// For each example the mean over its turns of their means, and each turn's mean.
    contexts: Vec<Vec<Part>>,
    turns: Vec<Vec<Part>>,
    /// The tokens of responses: their rows, the example of each.
    rows: Vec<u32>,
    example: Vec<u32>,
    /// For each response, among these tokens, its mean and its sum.
    means: Vec<Vec<Part>>,
    sums: Vec<Vec<Part>>,
}

fn indices(rows: &[u32], on: &Tensor) -> Candle<Tensor> {
    Tensor::from_slice(rows, rows.len(), on.device())
}

impl Prepared for Responses {
    fn packed(&self) -> &Packed {
        &self.packed
    }

    fn count(&self) -> usize {
        self.contexts.len()
    }

    fn shape(&self) -> serde_json::Value {
        serde_json::json!({ "contexts": self.contexts, "candidates": self.candidates })
    }

    fn loss(&self, states: &Tensor) -> Candle<Tensor> {
        let tokens = self.tokens();
        let responses = states.index_select(&indices(&tokens.rows, states)?, 0)?;
        let seen = match &self.weigher {
            None => self.seen(states, &responses, &tokens)?,
            Some(weigher) => self.weighed(states, &responses, &tokens, weigher)?,
        };
        let plain = pool(&responses, &Arc::new(Segments::new(tokens.means)))?;
        let scores = likeness::cosines(&plain, &seen)?.reshape((self.count(), self.candidates))?;
        likeness::first_of(&scores, self.temperature)
    }
}
