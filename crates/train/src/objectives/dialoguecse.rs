//! DialogueCSE: contrastive learning of utterance embeddings with matching-guided embeddings.
//!
//! The embedding of a response is compared with its context-aware embedding. `U` and `R` are the token embeddings of a
//! context turn and of the response. The matching-guided embedding of a context turn is `R̂ = M·R` with `M = U·Rᵀ/√d`.
//! The context-aware embedding is a mean of all R̂: first over the context turns (in the paper, I₂ is the plain mean and
//! I₁ a weighted mean), then over the tokens.
//!
//! `M` has no softmax, so the mean over the tokens of a turn can be moved into the product:
//! `mean(M·R) = (mean(U)·Rᵀ/√d)·R`. The token-by-token matrix is therefore never computed.

use candle_core::{D, Device, Result as Candle, Tensor};

use super::{
    HardNegatives, Loss, Objective, ObjectiveBuilder, ObjectiveName, Prepared, TurnLocation,
    check_several_dialogues,
    definition::{Definition, Role, Sample, StepTraining},
    losses, other_dialogue, turns_of,
};
use crate::{
    data::TrainingSet,
    model::{Packed, Parameter},
    ops::pool,
    recipe::Given,
};
use turnwise_core::{
    error::{Error, Result},
    named_enum,
    random::Random,
};
use turnwise_encoder::{Part, Sequence, network::Activation};

pub static DIALOGUECSE: Definition = Definition {
    name: "dialoguecse",
    about: "utterances: a response matches its context better than other responses do (DialogueCSE)",
    steps: Some(StepTraining { learning_rate: 5e-5, ..steps(|given| read(given, 0)) }),
    ..Definition::DEFAULT
};

/// Definition of `joint`: DialogueCSE with hard negatives, combined with other objectives.
pub static JOINT: Definition = Definition {
    name: "joint",
    about: "dialogues and utterances: dialoguecse with neighbors, dial2vec and self-distillation",
    benchmark: "dialogues labeled.jsonl",
    sample: Sample::Dialogues,
    role: Role::Main,
    steps: Some(StepTraining {
        several_turns: true,
        steps: 100,
        per_corpus: true,
        warm_up: 10,
        learning_rate: 3e-5,
        auxiliary: &[
            (ObjectiveName::Dial2vec, 0.1),
            (ObjectiveName::Neighbors, 1.0),
            (ObjectiveName::SelfDistillation, 1.0),
        ],
        ..steps(|given| read(given, 2))
    }),
    ..Definition::DEFAULT
};

/// Default properties of `dialoguecse` and `joint`.
const fn steps(settings: fn(&mut Given<'_>) -> ObjectiveBuilder) -> StepTraining {
    StepTraining {
        merge_turns: true,
        batch: 20,
        max_tokens: 50,
        temperature: 0.1,
        ..StepTraining::new(settings)
    }
}

/// Reads the settings and returns a builder of the objective. `hard_negatives` is the default number of hard negatives.
fn read(given: &mut Given<'_>, hard_negatives: usize) -> ObjectiveBuilder {
    let (negatives, hard_negatives) = (given.negatives(9), given.hard_negatives(hard_negatives));
    let (context, aggregation) = (given.context(3), given.aggregation());
    let (temperature, max_tokens) = (given.temperature(), given.max_tokens());
    ObjectiveBuilder::new(move |setup| {
        let (model, seed) = (setup.model, setup.seed);
        let objective = DialogueCse::new(aggregation, model.width(), seed, model.device())?;
        let hard = match hard_negatives {
            0 => None,
            count => Some((count, setup.sources.hard_negatives(turns_of(setup.data, 2), max_tokens)?)),
        };
        Ok(DialogueCse { context, negatives, hard, temperature, max_tokens, ..objective })
    })
}

named_enum! {
    /// Aggregation of the context turns.
    pub enum Aggregation: "aggregation" {
        /// I₁: a mean with weights from a two-layer network.
        I1 = "i1",
        /// I₂: the mean.
        #[default]
        I2 = "i2",
    }
}

/// The DialogueCSE objective.
pub struct DialogueCse {
    /// Maximum number of context turns around a response.
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
    /// Parameters of the aggregation network; empty for mean aggregation (I₂).
    heads: Vec<Parameter>,
}

impl DialogueCse {
    /// Creates the objective with the settings of the paper. The seed initializes the aggregation network of I₁.
    pub fn new(aggregation: Aggregation, width: usize, seed: u64, device: &Device) -> Result<Self> {
        let heads = match aggregation {
            Aggregation::I2 => Vec::new(),
            Aggregation::I1 => aggregation_network(width, seed, device)?,
        };
        Ok(DialogueCse { context: 3, negatives: 9, hard: None, temperature: 0.1, max_tokens: 50, heads })
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

/// Creates the parameters of the two-layer network that computes the weight of a turn.
fn aggregation_network(width: usize, seed: u64, device: &Device) -> Result<Vec<Parameter>> {
    let [weight, bias] = losses::layer("turns.inner", [width, width], seed, 0, device)?;
    // The second layer has no bias, because the softmax over the turns would cancel it.
    let outer = losses::random_weights([1, width], seed, 1);
    Ok(vec![weight, bias, Parameter::new("turns.outer.weight", outer, &[1, width], true, device)?])
}

impl Objective for DialogueCse {
    fn definition(&self) -> &'static Definition {
        &DIALOGUECSE
    }

    fn heads(&self) -> &[Parameter] {
        &self.heads
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<TurnLocation>> {
        Ok(turns_of(data, 2))
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(TurnLocation, Random)]) -> Result<Prepared> {
        check_several_dialogues(data)?;
        let mut sequences: Vec<Sequence> = Vec::new();
        let mut contexts = Vec::with_capacity(examples.len());
        for (location, random) in &mut *examples {
            let (own, turn) = (location.dialogue, location.turn as usize);
            let dialogue = data.dialogue(own)?;
            let around = self.around(turn, dialogue.len());
            contexts.push(around.len());
            let mut add = |ids: &[u32]| sequences.push(data.utterance(ids, self.max_tokens));
            around.iter().for_each(|t| add(&dialogue[*t].ids));
            let response = &dialogue[turn].ids;
            add(response);
            for n in 0..self.negatives {
                let hard = match &self.hard {
                    Some((count, hard)) if n < *count => hard.draw(response, own, random),
                    _ => None,
                };
                match hard {
                    Some(location) => add(&data.token_ids(location)?),
                    None => add(&random_negative(data, own, response, random)?),
                }
            }
        }
        let loss = Responses {
            contexts,
            candidates: 1 + self.negatives,
            temperature: self.temperature,
            network: losses::tensors(&self.heads),
        };
        Ok(Prepared::new(&DIALOGUECSE, sequences, examples.len(), loss))
    }
}

/// Maximum number of random draws for a negative. If none is suitable, all dialogues are searched.
const MAX_DRAWS: usize = 20;

/// Draws an utterance from a dialogue other than `own`, and returns its token ids. Its text differs from the true
/// response.
fn random_negative(data: &TrainingSet, own: u32, response: &[u32], random: &mut Random) -> Result<Vec<u32>> {
    let mut dialogue = own;
    // A short response such as "Yes." occurs in many dialogues, so one draw may not be enough.
    for _ in 0..MAX_DRAWS {
        dialogue = other_dialogue(data, own, random);
        let turn = random.below(data.turn_counts()[dialogue as usize] as usize) as u32;
        let drawn = data.token_ids(TurnLocation { dialogue, turn })?;
        if drawn != response {
            return Ok(drawn);
        }
    }
    let count = data.len() as u32;
    for other in (dialogue..count).chain(0..dialogue).filter(|other| *other != own) {
        if let Some(turn) = data.dialogue(other)?.iter().find(|turn| turn.ids != response) {
            return Ok(turn.ids.clone());
        }
    }
    Err(Error::data("negative responses need at least two different texts, but all turns have the same text"))
}

/// Loss of a batch that holds, for each example, the context turns, the true response and the negative responses.
struct Responses {
    /// Number of context turns of each example.
    contexts: Vec<usize>,
    /// Number of responses per example: one true response and the negatives.
    candidates: usize,
    temperature: f64,
    /// Parameters of the aggregation network; empty for mean aggregation (I₂).
    network: Vec<Tensor>,
}

impl Responses {
    /// Returns the rows and the terms of the weighted sums that the loss needs.
    fn tokens(&self, packed: &Packed) -> Tokens {
        let mut tokens = Tokens::default();
        let mut sequence = 0;
        for (example, contexts) in self.contexts.iter().enumerate() {
            let turns = sequence..sequence + contexts;
            sequence += contexts;
            tokens.turns.extend(turns.clone().map(|t| packed.mean(t, 1.0)));
            let scaled_mean = |t| packed.mean(t, 1.0 / *contexts as f32);
            tokens.contexts.push(turns.flat_map(scaled_mean).collect());
            for _ in 0..self.candidates {
                let rows = packed.rows(sequence);
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

    /// Computes the context-aware embeddings of the responses with mean aggregation (I₂).
    fn mean_aggregated(&self, states: &Tensor, responses: &Tensor, tokens: &Tokens) -> Candle<Tensor> {
        let contexts = pool(states, tokens.contexts.clone())?;
        let of_token = contexts.index_select(&losses::indices(&tokens.example, states)?, 0)?;
        matched(responses, &of_token, &tokens.sums)
    }

    /// Computes the context-aware embeddings of the responses with weighted aggregation (I₁).
    fn weighted_aggregated(&self, states: &Tensor, responses: &Tensor, tokens: &Tokens) -> Candle<Tensor> {
        let turns = pool(states, tokens.turns.clone())?;
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
        let repeated = responses.index_select(&losses::indices(&rows, states)?, 0)?;
        let of_token = turns.index_select(&losses::indices(&of_turn, states)?, 0)?;
        let refined = matched(&repeated, &of_token, &sums)?;
        let scores = losses::apply(&self.network, &refined, Some(Activation::Relu))?;
        let scores = scores.matmul(&self.network[2].to_dtype(states.dtype())?.t()?)?.flatten_all()?;
        let mut all = Vec::with_capacity(groups.len());
        for group in groups {
            let weights = candle_nn::ops::softmax(&scores.narrow(0, group.start, group.len())?, D::Minus1)?;
            all.push(weights.unsqueeze(0)?.matmul(&refined.narrow(0, group.start, group.len())?)?);
        }
        Tensor::cat(&all, 0)
    }
}

/// Computes `Σ (w·r/√d)·r` over the tokens `r` of each response. `with` has the vector `w` of each token.
fn matched(responses: &Tensor, with: &Tensor, sums: &[Vec<Part>]) -> Candle<Tensor> {
    let scale = (responses.dim(1)? as f64).sqrt();
    let weights = ((responses * with)?.sum_keepdim(1)? / scale)?;
    pool(&responses.broadcast_mul(&weights)?, sums.to_vec())
}

#[derive(Default)]
struct Tokens {
    /// For each example, the mean of the token means of its context turns.
    contexts: Vec<Vec<Part>>,
    /// For each context turn, the mean over its tokens.
    turns: Vec<Vec<Part>>,
    /// Row of each response token in the hidden states.
    rows: Vec<u32>,
    /// Index of the example that each response token belongs to.
    example: Vec<u32>,
    /// For each response, the mean over its tokens.
    means: Vec<Vec<Part>>,
    /// For each response, the sum over its tokens.
    sums: Vec<Vec<Part>>,
}

impl Loss for Responses {
    fn compute(&self, packed: &Packed, states: &Tensor) -> Candle<Tensor> {
        let tokens = self.tokens(packed);
        let responses = states.index_select(&losses::indices(&tokens.rows, states)?, 0)?;
        let aware = match self.network.is_empty() {
            true => self.mean_aggregated(states, &responses, &tokens)?,
            false => self.weighted_aggregated(states, &responses, &tokens)?,
        };
        let plain = pool(&responses, tokens.means)?;
        let scores = losses::cosines(&plain, &aware)?.reshape((self.contexts.len(), self.candidates))?;
        losses::nt_xent_first(&scores, self.temperature)
    }

    fn shape(&self, _: usize) -> serde_json::Value {
        serde_json::json!({ "contexts": self.contexts, "candidates": self.candidates })
    }
}
