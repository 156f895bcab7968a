//! DialogueCSE: contrastive learning of utterance embeddings with matching-guided embeddings.
//!
//! The embedding of a response is compared with its context-aware embedding. For each context turn, the
//! matching-guided embedding is `M = U·Rᵀ/√d`, `R̂ = M·R`. The turns are aggregated by a mean (I₂) or a weighted
//! mean (I₁), then the tokens by a mean.
//!
//! `M` has no softmax, so the mean over the tokens of a turn can be moved inside: `mean(M·R) = (mean(U)·Rᵀ/√d)·R`.
//! The token-by-token matrix is therefore never computed.

use std::{str::FromStr, sync::Arc};

use candle_core::{D, Device, Result as Candle, Tensor};
use serde::{Deserialize, Serialize};

use super::{
    HardNegatives, Location, Objective, Prepared,
    definition::{Definition, Frozen, Role, Sample, Settings, Setup, StepTraining, Steps, Training},
    every_turn, losses,
};
use crate::{
    data::TrainingSet,
    model::{Packed, Parameter},
    ops::{Segments, linear, pool},
    recipe::Given,
    run::evaluations::Selection,
};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_encoder::{Part, Sequence, network::Activation};

/// Definition of `dialoguecse`.
pub static DIALOGUECSE: Definition = Definition {
    name: "dialoguecse",
    about: "utterances: a response matches its context better than other responses do (DialogueCSE)",
    benchmark: "sr select.txt",
    sample: Sample::Utterances,
    held_out: true,
    select: Selection::LabelFree,
    role: Role::Both,
    min_turns: 2,
    training: Training::Steps(StepTraining {
        in_batch: false,
        pooled_loss: false,
        one_corpus: false,
        several_turns: false,
        merge_turns: true,
        steps: Steps::Total(300),
        warm_up: 0,
        batch: 20,
        learning_rate: 5e-5,
        max_tokens: 50,
        temperature: 0.1,
        frozen: Frozen::Half,
        auxiliary: &[],
        as_auxiliary: None,
        settings: |given| Box::new(DialogueCseSettings::read(given, 0)),
    }),
};

/// Aggregation of the context turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Aggregation {
    /// I₁: a mean with weights from a two-layer network.
    I1,
    /// I₂: the mean.
    #[default]
    I2,
}

impl FromStr for Aggregation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "i1" => Ok(Aggregation::I1),
            "i2" => Ok(Aggregation::I2),
            _ => Err(Error::unknown_name("aggregation", text, ["i1", "i2"])),
        }
    }
}

/// Settings of DialogueCSE.
#[derive(Debug)]
pub(super) struct DialogueCseSettings {
    context: usize,
    negatives: usize,
    hard_negatives: usize,
    aggregation: Aggregation,
    temperature: f64,
    max_tokens: usize,
}

impl DialogueCseSettings {
    /// Reads the settings. `hard_negatives` is the default number of hard negatives.
    pub(super) fn read(given: &mut Given<'_>, hard_negatives: usize) -> Self {
        DialogueCseSettings {
            negatives: given.negatives(9),
            hard_negatives: given.hard_negatives(hard_negatives),
            context: given.context(3),
            aggregation: given.aggregation(),
            temperature: given.temperature(),
            max_tokens: given.max_tokens(),
        }
    }
}

impl Settings for DialogueCseSettings {
    fn create(&self, setup: &Setup<'_>) -> Result<Box<dyn Objective>> {
        let mut objective =
            DialogueCse::new(self.aggregation, setup.model.width(), setup.seed, setup.model.device())?;
        (objective.context, objective.negatives) = (self.context, self.negatives);
        (objective.temperature, objective.max_tokens) = (self.temperature, self.max_tokens);
        if self.hard_negatives > 0 {
            objective.hard = Some((self.hard_negatives, setup.sources.hard_negatives(self.max_tokens)?));
        }
        Ok(Box::new(objective))
    }
}

/// The DialogueCSE objective.
pub struct DialogueCse {
    /// Number of context turns around a response.
    pub context: usize,
    /// Number of negative responses per example.
    pub negatives: usize,
    /// Number of hard negatives among the negatives, and the mined hard negatives. Random negatives replace missing
    /// hard negatives.
    pub hard: Option<(usize, HardNegatives)>,
    /// Temperature τ of the softmax.
    pub temperature: f64,
    /// Maximum number of tokens of an utterance.
    pub max_tokens: usize,
    /// Aggregation of the context turns.
    aggregation: Aggregation,
    /// Parameters of the aggregation network.
    heads: Vec<Parameter>,
}

impl DialogueCse {
    /// Creates the objective with the settings of the paper. The seed initializes the aggregation network.
    pub fn new(aggregation: Aggregation, width: usize, seed: u64, device: &Device) -> Result<Self> {
        let heads = match aggregation {
            Aggregation::I2 => Vec::new(),
            Aggregation::I1 => aggregation_network(width, seed, device)?,
        };
        Ok(DialogueCse {
            context: 3,
            negatives: 9,
            hard: None,
            temperature: 0.1,
            max_tokens: 50,
            aggregation,
            heads,
        })
    }

    /// Returns the context turns of a response: the nearest turns on both sides, in the order of the dialogue.
    ///
    /// Of two turns at the same distance, the earlier one is preferred.
    fn around(&self, turn: usize, turns: usize) -> Vec<usize> {
        let mut near: Vec<usize> = (0..turns).filter(|t| *t != turn).collect();
        near.sort_by_key(|t| (t.abs_diff(turn), *t > turn));
        near.truncate(self.context);
        near.sort_unstable();
        near
    }
}

/// Parameters of the two-layer network that computes the weight of a turn.
fn aggregation_network(width: usize, seed: u64, device: &Device) -> Result<Vec<Parameter>> {
    let make = |name: &str, numbers: Vec<f32>, shape: &[usize], decays| {
        Parameter::new(format!("turns.{name}"), numbers, shape, decays, device)
    };
    Ok(vec![
        make("inner.weight", losses::random_weights([width, width], seed, 0), &[width, width], true)?,
        make("inner.bias", vec![0.0; width], &[width], false)?,
        // No bias: the softmax over the turns would cancel it.
        make("outer.weight", losses::random_weights([1, width], seed, 1), &[1, width], true)?,
    ])
}

impl Objective for DialogueCse {
    fn definition(&self) -> &'static Definition {
        &DIALOGUECSE
    }

    fn heads(&self) -> &[Parameter] {
        &self.heads
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<Location>> {
        Ok(every_turn(data))
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Location, Random)]) -> Result<Box<dyn Prepared>> {
        if data.len() < 2 {
            return Err(Error::data(
                "negative responses need at least two dialogues, but the data has only one",
            ));
        }
        let mut sequences: Vec<Sequence> = Vec::new();
        let mut contexts = Vec::with_capacity(examples.len());
        for (location, random) in examples {
            let (own, turn) = (location.dialogue, location.turn as usize);
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
                    Some(at) => add(&data.token_ids(at)?),
                    None => add(&random_negative(data, own, &dialogue[turn].ids, random)?),
                }
            }
        }
        Ok(Box::new(Responses {
            packed: Packed::new(sequences),
            contexts,
            candidates: 1 + self.negatives,
            temperature: self.temperature,
            aggregation: match self.aggregation {
                Aggregation::I2 => None,
                Aggregation::I1 => Some(self.heads.iter().map(|h| h.var.as_tensor().clone()).collect()),
            },
        }))
    }
}

/// Draws an utterance from a different dialogue whose text differs from the true response.
fn random_negative(data: &TrainingSet, own: u32, response: &[u32], random: &mut Random) -> Result<Vec<u32>> {
    let mut drawn = random_utterance(data, own, random)?;
    // A short response such as "Yes." occurs in many dialogues. Give up after 20 draws.
    for _ in 0..20 {
        if drawn != response {
            break;
        }
        drawn = random_utterance(data, own, random)?;
    }
    Ok(drawn)
}

/// Draws an utterance from a dialogue other than `own`.
fn random_utterance(data: &TrainingSet, own: u32, random: &mut Random) -> Result<Vec<u32>> {
    let drawn = random.below(data.len() - 1) as u32;
    let dialogue = drawn + u32::from(drawn >= own);
    let turn = random.below(data.turns_each()[dialogue as usize] as usize) as u32;
    data.token_ids(Location { dialogue, turn })
}

/// Batch of contexts, each followed by its true response and its negative responses.
struct Responses {
    packed: Packed,
    /// Number of context turns of each example.
    contexts: Vec<usize>,
    /// Number of responses per example: one true response and the negatives.
    candidates: usize,
    temperature: f64,
    /// Parameters of the aggregation network, for I₁.
    aggregation: Option<Vec<Tensor>>,
}

impl Responses {
    /// Row indices of the response tokens and of the context turns.
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

    /// Context-aware embeddings of the responses with mean aggregation (I₂).
    fn mean_aggregated(&self, states: &Tensor, responses: &Tensor, tokens: &Tokens) -> Candle<Tensor> {
        let contexts = pool(states, &Arc::new(Segments::new(tokens.contexts.clone())))?;
        let of_token = contexts.index_select(&indices(&tokens.example, states)?, 0)?;
        matched(responses, &of_token, &tokens.sums)
    }

    /// Context-aware embeddings of the responses with weighted aggregation (I₁).
    fn weighted_aggregated(
        &self,
        states: &Tensor,
        responses: &Tensor,
        tokens: &Tokens,
        aggregation: &[Tensor],
    ) -> Candle<Tensor> {
        let turns = pool(states, &Arc::new(Segments::new(tokens.turns.clone())))?;
        // Each turn is matched with every response, so the tokens of a response are repeated per turn.
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
        let repeated = responses.index_select(&indices(&rows, states)?, 0)?;
        let of_token = turns.index_select(&indices(&of_turn, states)?, 0)?;
        let refined = matched(&repeated, &of_token, &sums)?;
        let [inner, bias, outer] = aggregation else {
            candle_core::bail!("the aggregation network must have three parameters")
        };
        let cast = |t: &Tensor| t.to_dtype(states.dtype());
        let scores = linear(&refined, &cast(inner)?, &cast(bias)?, Some(Activation::Relu))?;
        let scores = scores.matmul(&cast(outer)?.t()?)?.flatten_all()?;
        let mut all = Vec::with_capacity(groups.len());
        for group in groups {
            let weights = candle_nn::ops::softmax(&scores.narrow(0, group.start, group.len())?, D::Minus1)?;
            all.push(weights.unsqueeze(0)?.matmul(&refined.narrow(0, group.start, group.len())?)?);
        }
        Tensor::cat(&all, 0)
    }
}

/// `Σ (w·r/√d)·r` over the tokens `r` of each response. `with` holds the matched vector `w` of each token.
fn matched(responses: &Tensor, with: &Tensor, sums: &[Vec<Part>]) -> Candle<Tensor> {
    let scale = (responses.dim(1)? as f64).sqrt();
    let weights = ((responses * with)?.sum_keepdim(1)? / scale)?;
    pool(&responses.broadcast_mul(&weights)?, &Arc::new(Segments::new(sums.to_vec())))
}

#[derive(Default)]
struct Tokens {
    /// For each example, the mean of the token means of its context turns.
    contexts: Vec<Vec<Part>>,
    /// For each context turn, the mean over its tokens.
    turns: Vec<Vec<Part>>,
    /// Row of each response token.
    rows: Vec<u32>,
    /// Example of each response token.
    example: Vec<u32>,
    /// For each response, the mean over its tokens.
    means: Vec<Vec<Part>>,
    /// For each response, the sum over its tokens.
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
        let aware = match &self.aggregation {
            None => self.mean_aggregated(states, &responses, &tokens)?,
            Some(aggregation) => self.weighted_aggregated(states, &responses, &tokens, aggregation)?,
        };
        let plain = pool(&responses, &Arc::new(Segments::new(tokens.means)))?;
        let scores = losses::cosines(&plain, &aware)?.reshape((self.count(), self.candidates))?;
        losses::nt_xent_first(&scores, self.temperature)
    }
}
