//! SimCSE without labels: an utterance is like itself under another dropout, and unlike the others of the batch.

use candle_core::{Result as Candle, Tensor};

use super::{Objective, Place, PooledLoss, Prepared, likeness};
use crate::{data::TrainingSet, model::Packed};
use turnwise_core::{error::Result, random::Random};
use turnwise_encoder::Sequence;

/// SimCSE with its settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SimCse {
    /// τ.
    pub temperature: f64,
    /// Tokens an utterance may have.
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

    fn whole(&self) -> bool {
        true
    }

    fn apart(&self) -> bool {
        true
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<Place>> {
        Ok(super::all_turns(data))
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Place, Random)]) -> Result<Box<dyn Prepared>> {
        let utterance =
            |(place, _): &(Place, Random)| Ok(data.utterance(&data.said(*place)?, self.max_tokens));
        let once = examples.iter().map(utterance).collect::<Result<Vec<Sequence>>>()?;
        let masked = likeness::said_twice(&once);
        let both = once.iter().chain(&once).cloned().collect();
        Ok(Box::new(Twice { packed: Packed::new(both), masked, temperature: self.temperature }))
    }
}

/// Utterances, and all of them again.
struct Twice {
    packed: Packed,
    /// What is added to each likeness.
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
        likeness::diagonal_of(&scores, self.temperature)
    }
}
