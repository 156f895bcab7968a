//! Unsupervised SimCSE: the positive of an utterance is the same utterance with a different dropout mask, and the
//! other utterances of the batch are negatives.

use candle_core::{Result as Candle, Tensor};

use super::{Location, Objective, PooledLoss, Prepared, likeness};
use crate::{data::TrainingSet, model::Packed};
use turnwise_core::{error::Result, random::Random};
use turnwise_encoder::Sequence;

/// The unsupervised SimCSE objective.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimCse {
    /// Temperature τ.
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
    fn name(&self) -> &'static str {
        "simcse"
    }

    fn in_batch(&self) -> bool {
        true
    }

    fn one_corpus(&self) -> bool {
        true
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<Location>> {
        Ok(super::all_turns(data))
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Location, Random)]) -> Result<Box<dyn Prepared>> {
        let utterance = |(location, _): &(Location, Random)| {
            Ok(data.utterance(&data.token_ids(*location)?, self.max_tokens))
        };
        let once = examples.iter().map(utterance).collect::<Result<Vec<Sequence>>>()?;
        let masked = likeness::duplicate_mask(&once);
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
        let means = likeness::unit(means)?;
        let scores =
            likeness::scores(&means.narrow(0, 0, count)?, &means.narrow(0, count, count)?, &self.masked)?;
        likeness::nt_xent_diagonal(&scores, self.temperature)
    }
}
