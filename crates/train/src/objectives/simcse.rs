//! Unsupervised SimCSE: the positive of an utterance is the same utterance with a different dropout mask, and the
//! other utterances of the batch are negatives.

use candle_core::{Result as Candle, Tensor};

use super::{
    Location, Objective, PooledLoss, Prepared,
    definition::{Definition, Frozen, Role, Sample, Settings, Setup, StepTraining, Steps, Training},
    losses,
};
use crate::{data::TrainingSet, model::Packed, run::evaluations::Selection};
use turnwise_core::{error::Result, random::Random};
use turnwise_encoder::Sequence;

/// Definition of `simcse`.
pub static SIMCSE: Definition = Definition {
    name: "simcse",
    about: "utterances: an utterance matches itself under a different dropout mask (SimCSE)",
    benchmark: "sr select.txt",
    sample: Sample::Utterances,
    held_out: true,
    select: Selection::LabelFree,
    role: Role::Both,
    min_turns: 1,
    training: Training::Steps(StepTraining {
        in_batch: true,
        pooled_loss: true,
        one_corpus: true,
        several_turns: false,
        merge_turns: false,
        steps: Steps::Total(300),
        warm_up: 0,
        batch: 64,
        learning_rate: 3e-5,
        max_tokens: 32,
        temperature: 0.05,
        frozen: Frozen::Nothing,
        auxiliary: &[],
        as_auxiliary: None,
        settings: |given| {
            Box::new(SimCse { temperature: given.temperature(), max_tokens: given.max_tokens() })
        },
    }),
};

impl Settings for SimCse {
    fn create(&self, _: &Setup<'_>) -> Result<Box<dyn Objective>> {
        Ok(Box::new(*self))
    }
}

/// The unsupervised SimCSE objective.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimCse {
    /// Temperature τ of the softmax.
    pub temperature: f64,
    /// Maximum number of tokens of an utterance.
    pub max_tokens: usize,
}

impl Default for SimCse {
    fn default() -> Self {
        SimCse { temperature: 0.05, max_tokens: 32 }
    }
}

impl Objective for SimCse {
    fn definition(&self) -> &'static Definition {
        &SIMCSE
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<Location>> {
        Ok(super::all_turns(data))
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Location, Random)]) -> Result<Box<dyn Prepared>> {
        let utterance = |(location, _): &(Location, Random)| {
            Ok(data.utterance(&data.token_ids(*location)?, self.max_tokens))
        };
        let once = examples.iter().map(utterance).collect::<Result<Vec<Sequence>>>()?;
        let masked = losses::duplicate_mask(&once);
        let both = once.iter().chain(&once).cloned().collect();
        Ok(Box::new(Twice { packed: Packed::new(both), masked, temperature: self.temperature }))
    }
}

/// Batch of all utterances, followed by the same utterances again.
struct Twice {
    packed: Packed,
    /// Mask that is added to the scores.
    masked: Vec<f32>,
    temperature: f64,
}

impl Prepared for Twice {
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

impl PooledLoss for Twice {
    fn loss_of(&self, means: &Tensor) -> Candle<Tensor> {
        let count = self.count();
        let means = losses::unit(means)?;
        let scores =
            losses::scores(&means.narrow(0, 0, count)?, &means.narrow(0, count, count)?, &self.masked)?;
        losses::nt_xent_diagonal(&scores, self.temperature)
    }
}
