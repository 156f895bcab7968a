//! Response selection with in-batch negatives: among all responses of the batch, the true response to a context must
//! have the embedding that is most similar to the embedding of the context.
//!
//! The context turns form one sequence, and the response is a second sequence. Identical responses in a batch are not
//! negatives of each other.
//!
//! `responses` compares the embeddings by cosine similarity, as at inference. Its loss covers both directions: from
//! context to response, and from response to context. `siamese-s` and `siamese-m` are baselines of the DialogueCSE
//! paper. Their extra layers are discarded after training.

use candle_core::{Device, Result as Candle, Tensor};

use super::{
    Loss, Objective, ObjectiveBuilder, Prepared, TurnLocation,
    definition::{Definition, StepTraining},
    losses, turns_of,
};
use crate::{
    data::TrainingSet,
    model::{Packed, Parameter},
    recipe::Given,
};
use turnwise_core::{error::Result, random::Random};
use turnwise_encoder::{Sequence, network::Activation};

pub static RESPONSES: Definition = Definition {
    name: "responses",
    about: "responses: a response is similar to the turns before it, by the cosine",
    benchmark: "response responses.jsonl",
    steps: Some(StepTraining {
        warm_up: 30,
        temperature: 0.05,
        ..steps(|given| read(given, Matching::Cosine, 3))
    }),
    ..Definition::DEFAULT
};

pub static SIAMESE_S: Definition = Definition {
    name: "siamese-s",
    about: "responses: a turn matches its response, compared after a trained layer (SiameseBERT-S, a baseline in the DialogueCSE paper)",
    steps: Some(StepTraining { several_turns: false, ..steps(|given| read(given, Matching::Layer, 1)) }),
    ..Definition::DEFAULT
};

pub static SIAMESE_M: Definition = Definition {
    name: "siamese-m",
    about: "responses: several turns together match their response, compared after two trained layers (SiameseBERT-M, a baseline in the DialogueCSE paper)",
    steps: Some(steps(|given| read(given, Matching::Perceptron, 3))),
    ..Definition::DEFAULT
};

/// Default properties of `responses`, `siamese-s` and `siamese-m`.
const fn steps(settings: fn(&mut Given<'_>) -> ObjectiveBuilder) -> StepTraining {
    StepTraining {
        in_batch: true,
        pooled_loss: true,
        one_corpus: true,
        several_turns: true,
        batch: 64,
        ..StepTraining::new(settings)
    }
}

/// Reads the settings and returns a builder of the objective. `context` is the default number of context turns.
fn read(given: &mut Given<'_>, matching: Matching, context: usize) -> ObjectiveBuilder {
    let (context, temperature, max_tokens) =
        (given.context(context), given.temperature(), given.max_tokens());
    ObjectiveBuilder::new(move |setup| {
        let (model, seed) = (setup.model, setup.seed);
        let objective = ResponseSelection::new(matching, model.width(), seed, model.device())?;
        Ok(ResponseSelection { context, temperature, max_tokens, ..objective })
    })
}

/// Matching function between context and response embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matching {
    /// Cosine similarity without extra layers. The loss also covers the direction from response to context.
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
    /// Maximum number of tokens of a sequence: a response, or all context turns together.
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

    /// Builds the context sequence of a turn. If the context is too long, its start is cut off.
    fn context_sequence(&self, data: &TrainingSet, location: TurnLocation) -> Result<Sequence> {
        let (dialogue, turn) = (data.dialogue(location.dialogue)?, location.turn as usize);
        let room = self.max_tokens.saturating_sub(data.before.len()).max(1);
        let context = data.last_tokens(&dialogue[turn.saturating_sub(self.context)..turn], room);
        Ok(Sequence::new([data.before.as_slice(), &context].concat()))
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

    fn examples(&self, data: &TrainingSet) -> Result<Vec<TurnLocation>> {
        Ok(turns_of(data, 1).into_iter().filter(|location| location.turn > 0).collect())
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(TurnLocation, Random)]) -> Result<Prepared> {
        let locations = || examples.iter().map(|(location, _)| *location);
        let contexts = locations().map(|location| self.context_sequence(data, location));
        let mut sequences = contexts.collect::<Result<Vec<Sequence>>>()?;
        let responses = locations().map(|location| data.utterance_at(location, self.max_tokens));
        let responses = responses.collect::<Result<Vec<Sequence>>>()?;
        let loss = Pairs {
            mask: losses::duplicate_mask(&responses),
            temperature: self.temperature,
            matching: self.matching,
            heads: losses::tensors(&self.heads),
        };
        sequences.extend(responses);
        Ok(Prepared::new(self.definition(), sequences, examples.len(), loss))
    }
}

/// Loss of a batch that holds all contexts, followed by all responses.
struct Pairs {
    /// Mask that is added to the scores.
    mask: Vec<f32>,
    temperature: f64,
    matching: Matching,
    /// Weights and biases of the layers of the matching function.
    heads: Vec<Tensor>,
}

impl Pairs {
    /// Applies the layers of the matching function to the context and response embeddings.
    fn matched(&self, contexts: &Tensor, responses: &Tensor) -> Candle<[Tensor; 2]> {
        let layer = |n: usize, x: &Tensor, activation| {
            losses::apply(&self.heads[2 * n..2 * n + 2], &x.contiguous()?, activation)
        };
        match self.matching {
            Matching::Cosine => Ok([losses::unit(contexts)?, losses::unit(responses)?]),
            Matching::Layer => {
                // Divide by √width, as in attention: large dot products would saturate the softmax.
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

impl Loss for Pairs {
    fn compute(&self, packed: &Packed, means: &Tensor) -> Candle<Tensor> {
        let count = packed.sequences.len() / 2;
        let [contexts, responses] =
            self.matched(&means.narrow(0, 0, count)?, &means.narrow(0, count, count)?)?;
        let scores = losses::scores(&contexts, &responses, &self.mask)?;
        let forward = losses::nt_xent_diagonal(&scores, self.temperature)?;
        if self.matching != Matching::Cosine {
            return Ok(forward);
        }
        let reverse = losses::nt_xent_diagonal(&scores.t()?.contiguous()?, self.temperature)?;
        (forward + reverse)? / 2.0
    }
}
