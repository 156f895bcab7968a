//! Response selection with in-batch negatives: the embedding of a context must be most similar to that of its own
//! response, among all responses of the batch.
//!
//! The context turns form one sequence, and the response is a second sequence. Identical responses in a batch are not
//! negatives of each other.
//!
//! `responses` compares the two embeddings by cosine similarity in both directions, like at inference. `siamese-s`
//! and `siamese-m` are baselines of the DialogueCSE paper. They add layers that are discarded after training.

use candle_core::{Device, Result as Candle, Tensor};

use super::{
    Location, Objective, PooledLoss, Prepared,
    definition::{Definition, Frozen, Role, Sample, Settings, Setup, StepTraining, Steps, Training},
    losses,
};
use crate::{
    data::TrainingSet,
    model::{Packed, Parameter},
    ops::linear,
    recipe::Given,
    run::evaluations::Selection,
};
use turnwise_core::{error::Result, random::Random};
use turnwise_encoder::{Sequence, network::Activation};

/// Definition of `responses`.
pub static RESPONSES: Definition = Definition {
    name: "responses",
    about: "utterances: a response is similar to the turns before it",
    benchmark: "response responses.jsonl",
    sample: Sample::Utterances,
    held_out: true,
    select: Selection::LabelFree,
    role: Role::Both,
    min_turns: 2,
    training: Training::Steps(RESPONSES_STEPS),
};

/// Training steps of `responses`.
const RESPONSES_STEPS: StepTraining = StepTraining {
    in_batch: true,
    pooled_loss: true,
    one_corpus: true,
    several_turns: true,
    merge_turns: false,
    steps: Steps::Total(300),
    warm_up: 30,
    batch: 64,
    learning_rate: 2e-5,
    max_tokens: 64,
    temperature: 0.05,
    frozen: Frozen::Half,
    auxiliary: &[],
    as_auxiliary: None,
    settings: |given| Box::new(MatchingSettings::read(given, Matching::Cosine, 3)),
};

/// Definition of `siamese-s`.
pub static SIAMESE_S: Definition = Definition {
    name: "siamese-s",
    about: "utterances: a turn matches its response (SiameseBERT-S)",
    benchmark: "sr select.txt",
    sample: Sample::Utterances,
    held_out: true,
    select: Selection::LabelFree,
    role: Role::Both,
    min_turns: 2,
    training: Training::Steps(StepTraining {
        several_turns: false,
        settings: |given| Box::new(MatchingSettings::read(given, Matching::Layer, 1)),
        ..SIAMESE_STEPS
    }),
};

/// Definition of `siamese-m`.
pub static SIAMESE_M: Definition = Definition {
    name: "siamese-m",
    about: "utterances: several turns match their response (SiameseBERT-M)",
    benchmark: "sr select.txt",
    sample: Sample::Utterances,
    held_out: true,
    select: Selection::LabelFree,
    role: Role::Both,
    min_turns: 2,
    training: Training::Steps(SIAMESE_STEPS),
};

/// Training steps of `siamese-m`.
const SIAMESE_STEPS: StepTraining = StepTraining {
    warm_up: 0,
    temperature: 1.0,
    settings: |given| Box::new(MatchingSettings::read(given, Matching::Perceptron, 3)),
    ..RESPONSES_STEPS
};

/// Settings of `responses`, `siamese-s` and `siamese-m`.
#[derive(Debug)]
struct MatchingSettings {
    matching: Matching,
    context: usize,
    temperature: f64,
    max_tokens: usize,
}

impl MatchingSettings {
    fn read(given: &mut Given<'_>, matching: Matching, context: usize) -> Self {
        MatchingSettings {
            matching,
            context: given.context(context),
            temperature: given.temperature(),
            max_tokens: given.max_tokens(),
        }
    }
}

impl Settings for MatchingSettings {
    fn create(&self, setup: &Setup<'_>) -> Result<Box<dyn Objective>> {
        let model = setup.model;
        let mut objective = ResponseSelection::new(self.matching, model.width(), setup.seed, model.device())?;
        objective.context = self.context;
        (objective.temperature, objective.max_tokens) = (self.temperature, self.max_tokens);
        Ok(Box::new(objective))
    }
}

/// Matching function between context and response embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matching {
    /// Cosine similarity without extra layers; the loss covers both directions.
    Cosine,
    /// SiameseBERT-S: a linear layer with tanh on the response (Yang et al. 2018), then a dot product.
    Layer,
    /// SiameseBERT-M: a two-layer perceptron on each side (Henderson et al. 2020), then cosine similarity.
    Perceptron,
}

/// The objectives `responses`, `siamese-s` and `siamese-m`.
pub struct ResponseSelection {
    /// Maximum number of context turns before the response.
    pub context: usize,
    /// Temperature τ of the softmax.
    pub temperature: f64,
    /// Maximum number of tokens of a response, and of its context.
    pub max_tokens: usize,
    matching: Matching,
    pub(super) heads: Vec<Parameter>,
}

impl ResponseSelection {
    /// Creates the objective. The seed initializes the layers of the matching function.
    pub fn new(matching: Matching, width: usize, seed: u64, device: &Device) -> Result<Self> {
        let names: &[&str] = match matching {
            Matching::Cosine => &[],
            Matching::Layer => &["response"],
            Matching::Perceptron => &["context.0", "context.1", "response.0", "response.1"],
        };
        let mut heads = Vec::new();
        for (n, name) in names.iter().enumerate() {
            heads.extend(losses::layer(&format!("matching.{name}"), [width, width], seed, n as u64, device)?);
        }
        Ok(ResponseSelection { context: 3, temperature: 0.05, max_tokens: 64, matching, heads })
    }

    /// Builds the context sequence of a turn. If it is too long, its start is truncated.
    fn context_sequence(&self, data: &TrainingSet, location: Location) -> Result<Sequence> {
        let (dialogue, turn) = (data.dialogue(location.dialogue)?, location.turn as usize);
        let context = dialogue[turn.saturating_sub(self.context)..turn].iter();
        let mut ids: Vec<u32> =
            context.flat_map(|turn| turn.ids.iter().chain(&data.after)).copied().collect();
        let room = self.max_tokens.saturating_sub(data.before.len()).max(1);
        ids.drain(..ids.len().saturating_sub(room));
        Ok(Sequence::new([data.before.as_slice(), &ids].concat()))
    }
}

impl Objective for ResponseSelection {
    fn definition(&self) -> &'static Definition {
        match self.matching {
            Matching::Cosine => &RESPONSES,
            Matching::Layer => &SIAMESE_S,
            Matching::Perceptron => &SIAMESE_M,
        }
    }

    fn heads(&self) -> &[Parameter] {
        &self.heads
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<Location>> {
        Ok(super::all_turns(data).into_iter().filter(|location| location.turn > 0).collect())
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Location, Random)]) -> Result<Box<dyn Prepared>> {
        let response = |(location, _): &(Location, Random)| -> Result<Sequence> {
            Ok(data.utterance(&data.token_ids(*location)?, self.max_tokens))
        };
        let contexts = examples.iter().map(|(location, _)| self.context_sequence(data, *location));
        let mut sequences = contexts.collect::<Result<Vec<Sequence>>>()?;
        let responses = examples.iter().map(response).collect::<Result<Vec<Sequence>>>()?;
        let masked = losses::duplicate_mask(&responses);
        sequences.extend(responses);
        Ok(Box::new(Pairs {
            packed: Packed::new(sequences),
            masked,
            temperature: self.temperature,
            matching: self.matching,
            heads: self.heads.iter().map(|head| head.var.as_tensor().clone()).collect(),
        }))
    }
}

/// Batch of all contexts, followed by all responses.
struct Pairs {
    packed: Packed,
    /// Mask that is added to the scores.
    masked: Vec<f32>,
    temperature: f64,
    matching: Matching,
    heads: Vec<Tensor>,
}

impl Pairs {
    /// Applies the layers of the matching function to the context and response embeddings.
    fn matched(&self, contexts: &Tensor, responses: &Tensor) -> Candle<[Tensor; 2]> {
        let layer = |n: usize, x: &Tensor, activation| {
            let cast = |t: &Tensor| t.to_dtype(x.dtype());
            linear(&x.contiguous()?, &cast(&self.heads[2 * n])?, &cast(&self.heads[2 * n + 1])?, activation)
        };
        match self.matching {
            Matching::Cosine => Ok([losses::unit(contexts)?, losses::unit(responses)?]),
            Matching::Layer => {
                // Scaled by √width, as in attention: large dot products would saturate the softmax.
                let scale = (contexts.dim(1)? as f64).sqrt();
                Ok([(contexts / scale)?, layer(0, responses, None)?.tanh()?])
            }
            Matching::Perceptron => {
                let two = |n: usize, x: &Tensor| {
                    losses::unit(&layer(n + 1, &layer(n, x, Some(Activation::Relu))?, None)?)
                };
                Ok([two(0, contexts)?, two(2, responses)?])
            }
        }
    }
}

impl Prepared for Pairs {
    fn packed(&self) -> &Packed {
        &self.packed
    }

    fn count(&self) -> usize {
        self.packed.sequences.len() / 2
    }

    fn shape(&self) -> serde_json::Value {
        serde_json::json!({ "count": self.count() })
    }

    fn pooled_loss(&self) -> Option<&dyn PooledLoss> {
        Some(self)
    }
}

impl PooledLoss for Pairs {
    fn loss_of(&self, means: &Tensor) -> Candle<Tensor> {
        let count = self.count();
        let [contexts, responses] =
            self.matched(&means.narrow(0, 0, count)?, &means.narrow(0, count, count)?)?;
        let scores = losses::scores(&contexts, &responses, &self.masked)?;
        let forward = losses::nt_xent_diagonal(&scores, self.temperature)?;
        if self.matching != Matching::Cosine {
            return Ok(forward);
        }
        let reverse = losses::nt_xent_diagonal(&scores.t()?.contiguous()?, self.temperature)?;
        (forward + reverse)? / 2.0
    }
}
