//! Keep: a regularizer against forgetting. Utterance embeddings stay close to those of the original encoder.
//!
//! After training on dialogue topics, the embeddings of single sentences get slightly worse. The loss of an utterance
//! is `1 - cos` between its current and its original embedding.

use candle_core::{Result as Candle, Tensor};

use super::{
    Location, Objective, PooledLoss, Prepared,
    definition::{Definition, Frozen, Role, Sample, Settings, Setup, StepTraining, Steps, Training},
    losses,
};
use crate::{
    data::TrainingSet,
    model::{Packed, Trainable},
    run::evaluations::Selection,
};
use turnwise_core::{error::Result, random::Random};
use turnwise_encoder::{Sequence, Vectors};

/// Definition of `keep`.
pub static KEEP: Definition = Definition {
    name: "keep",
    about: "utterances: keeps their vectors close to those of the base model",
    benchmark: "sr select.txt",
    sample: Sample::Utterances,
    held_out: true,
    select: Selection::LabelFree,
    role: Role::Auxiliary,
    min_turns: 1,
    training: Training::Steps(StepTraining {
        in_batch: false,
        pooled_loss: true,
        one_corpus: false,
        several_turns: false,
        merge_turns: false,
        steps: Steps::Total(300),
        warm_up: 0,
        batch: 32,
        learning_rate: 2e-5,
        max_tokens: 64,
        temperature: 1.0,
        frozen: Frozen::Half,
        auxiliary: &[],
        as_auxiliary: None,
        settings: |given| Box::new(KeepSettings { max_tokens: given.max_tokens() }),
    }),
};

/// Settings of `keep`.
#[derive(Debug)]
struct KeepSettings {
    max_tokens: usize,
}

impl Settings for KeepSettings {
    fn create(&self, setup: &Setup<'_>) -> Result<Box<dyn Objective>> {
        Ok(Box::new(Keep::new(setup.model, setup.data, self.max_tokens, setup.seed)?))
    }
}

/// Maximum number of sampled utterances.
const MOST: usize = 4_096;

/// The objective `keep`: a sample of utterances keeps its original embeddings.
pub struct Keep {
    locations: Vec<Location>,
    start: Vectors,
    max_tokens: usize,
}

impl Keep {
    /// Draws a random sample of utterances and encodes them with the untrained model.
    pub fn new(model: &Trainable, data: &TrainingSet, max_tokens: usize, seed: u64) -> Result<Self> {
        let mut locations = super::all_turns(data);
        Random::new(seed, 2).shuffle(&mut locations);
        locations.truncate(MOST);
        let mut keep = Keep { start: Vectors::new(model.width()), locations, max_tokens };
        let sequences = keep.locations.iter().map(|location| keep.sequence(data, *location));
        let sequences = sequences.collect::<Result<Vec<Sequence>>>()?;
        keep.start = losses::unit_means(model, &sequences)?;
        Ok(keep)
    }

    fn sequence(&self, data: &TrainingSet, location: Location) -> Result<Sequence> {
        Ok(data.utterance(&data.token_ids(location)?, self.max_tokens))
    }
}

impl Objective for Keep {
    fn definition(&self) -> &'static Definition {
        &KEEP
    }

    fn examples(&self, _: &TrainingSet) -> Result<Vec<Location>> {
        // `dialogue` holds the index of a drawn utterance.
        Ok((0..self.locations.len() as u32).map(|n| Location { dialogue: n, turn: 0 }).collect())
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Location, Random)]) -> Result<Box<dyn Prepared>> {
        let chosen = || examples.iter().map(|(location, _)| location.dialogue as usize);
        let sequences = chosen().map(|n| self.sequence(data, self.locations[n])).collect::<Result<_>>()?;
        let start = chosen().flat_map(|n| self.start.row(n).iter().copied()).collect();
        Ok(Box::new(Kept { packed: Packed::new(sequences), start }))
    }
}

/// Batch of utterances with their original embeddings.
struct Kept {
    packed: Packed,
    start: Vec<f32>,
}

impl Prepared for Kept {
    fn packed(&self) -> &Packed {
        &self.packed
    }

    fn count(&self) -> usize {
        self.packed.sequences.len()
    }

    fn shape(&self) -> serde_json::Value {
        serde_json::json!({ "start": self.start })
    }

    fn pooled_loss(&self) -> Option<&dyn PooledLoss> {
        Some(self)
    }
}

impl PooledLoss for Kept {
    fn loss_of(&self, means: &Tensor) -> Candle<Tensor> {
        let now = losses::unit(means)?;
        let start = Tensor::from_slice(&self.start, now.shape(), means.device())?.to_dtype(means.dtype())?;
        1.0 - (now * start)?.sum(1)?.mean_all()?
    }
}
