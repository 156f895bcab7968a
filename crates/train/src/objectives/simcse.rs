//! Unsupervised SimCSE: the positive of an utterance is the same utterance with a different dropout mask, and the
//! other utterances of the batch are negatives.

use candle_core::{Result as Candle, Tensor};

use super::{
    Loss, Objective, ObjectiveBuilder, Prepared, TurnLocation,
    definition::{Definition, StepTraining},
    losses, turns_of,
};
use crate::{data::TrainingSet, model::Packed};
use turnwise_core::{error::Result, random::Random};
use turnwise_encoder::Sequence;

pub static SIMCSE: Definition = Definition {
    name: "simcse",
    about: "utterances: an utterance matches itself under a different dropout mask (SimCSE)",
    min_turns: 1,
    steps: Some(StepTraining {
        in_batch: true,
        pooled_loss: true,
        one_corpus: true,
        batch: 64,
        learning_rate: 3e-5,
        max_tokens: 32,
        temperature: 0.05,
        freezes_half: false,
        ..StepTraining::new(|given| {
            let objective = SimCse { temperature: given.temperature(), max_tokens: given.max_tokens() };
            ObjectiveBuilder::new(move |_| Ok(objective))
        })
    }),
    ..Definition::DEFAULT
};

/// The unsupervised SimCSE objective.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimCse {
    /// Temperature τ of the softmax.
    pub temperature: f64,
    /// Maximum number of tokens of an utterance.
    pub max_tokens: usize,
}

impl Objective for SimCse {
    fn definition(&self) -> &'static Definition {
        &SIMCSE
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<TurnLocation>> {
        Ok(turns_of(data, 1))
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(TurnLocation, Random)]) -> Result<Prepared> {
        let utterances = examples.iter().map(|(location, _)| data.utterance_at(*location, self.max_tokens));
        let mut sequences = utterances.collect::<Result<Vec<Sequence>>>()?;
        let loss = PairLoss { mask: losses::duplicate_mask(&sequences), temperature: self.temperature };
        sequences.extend_from_within(..);
        Ok(Prepared::new(&SIMCSE, sequences, examples.len(), loss))
    }
}

/// Loss of a batch that holds all utterances, followed by the same utterances again.
struct PairLoss {
    /// Mask that is added to the scores.
    mask: Vec<f32>,
    temperature: f64,
}

impl Loss for PairLoss {
    fn compute(&self, packed: &Packed, means: &Tensor) -> Candle<Tensor> {
        let count = packed.sequences.len() / 2;
        let means = losses::unit(means)?;
        let scores =
            losses::scores(&means.narrow(0, 0, count)?, &means.narrow(0, count, count)?, &self.mask)?;
        losses::nt_xent_diagonal(&scores, self.temperature)
    }
}
