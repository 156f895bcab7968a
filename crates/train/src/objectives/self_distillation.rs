//! Self-distillation: a regularizer against forgetting. Utterance embeddings stay close to those of the base model.
//!
//! Training on dialogue topics makes the embeddings of single sentences slightly worse. The loss of an utterance is the
//! cosine distance between its current and its original embedding.

use candle_core::{Result as Candle, Tensor};

use super::{
    Loss, Objective, ObjectiveBuilder, Prepared, TurnLocation,
    definition::{Definition, Role, StepTraining},
    losses, turns_of,
};
use crate::{
    data::TrainingSet,
    model::{Packed, Trainable},
};
use turnwise_core::{error::Result, random::Random};
use turnwise_encoder::{Sequence, Vectors};

pub static SELF_DISTILLATION: Definition = Definition {
    name: "self-distillation",
    former_name: Some("keep"),
    about: "utterances: keeps their vectors close to those of the start model",
    role: Role::Auxiliary,
    min_turns: 1,
    steps: Some(StepTraining {
        pooled_loss: true,
        ..StepTraining::new(|given| {
            let max_tokens = given.max_tokens();
            ObjectiveBuilder::new(move |setup| {
                SelfDistillation::new(setup.model, setup.data, max_tokens, setup.seed)
            })
        })
    }),
    ..Definition::DEFAULT
};

/// Maximum number of sampled utterances.
const MAX_UTTERANCES: usize = 4_096;

/// The objective `self-distillation`: the utterances of a sample keep their original embeddings.
pub struct SelfDistillation {
    /// Locations of the sampled utterances.
    locations: Vec<TurnLocation>,
    /// Embeddings of the sampled utterances by the untrained model.
    targets: Vectors,
    max_tokens: usize,
}

impl SelfDistillation {
    /// Draws a random sample of utterances and encodes them with the untrained model.
    pub fn new(model: &Trainable, data: &TrainingSet, max_tokens: usize, seed: u64) -> Result<Self> {
        let mut locations = turns_of(data, 1);
        Random::new(seed, 2).shuffle(&mut locations);
        locations.truncate(MAX_UTTERANCES);
        let sequences = locations.iter().map(|location| data.utterance_at(*location, max_tokens));
        let targets = losses::unit_means(model, &sequences.collect::<Result<Vec<Sequence>>>()?)?;
        Ok(SelfDistillation { locations, targets, max_tokens })
    }
}

impl Objective for SelfDistillation {
    fn definition(&self) -> &'static Definition {
        &SELF_DISTILLATION
    }

    fn examples(&self, _: &TrainingSet) -> Result<Vec<TurnLocation>> {
        // `dialogue` is the index of an utterance in the sample.
        Ok((0..self.locations.len() as u32).map(|n| TurnLocation { dialogue: n, turn: 0 }).collect())
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(TurnLocation, Random)]) -> Result<Prepared> {
        let chosen = || examples.iter().map(|(location, _)| location.dialogue as usize);
        let sequences = chosen().map(|n| data.utterance_at(self.locations[n], self.max_tokens));
        let sequences = sequences.collect::<Result<Vec<Sequence>>>()?;
        let targets = chosen().flat_map(|n| self.targets.row(n).iter().copied()).collect();
        Ok(Prepared::new(&SELF_DISTILLATION, sequences, examples.len(), Distance { targets }))
    }
}

/// Loss of a batch of utterances: their mean cosine distance from the original embeddings.
struct Distance {
    /// Original embeddings, concatenated.
    targets: Vec<f32>,
}

impl Loss for Distance {
    fn compute(&self, _: &Packed, means: &Tensor) -> Candle<Tensor> {
        let current = losses::unit(means)?;
        let targets = Tensor::from_slice(&self.targets, current.shape(), means.device())?;
        1.0 - (current * targets.to_dtype(means.dtype())?)?.sum(1)?.mean_all()?
    }

    fn shape(&self, _: usize) -> serde_json::Value {
        serde_json::json!({ "start": self.targets })
    }
}
