//! Multi-task training: a batch holds examples of several objectives, and its loss is the weighted sum of their
//! losses.

use candle_core::{Result as Candle, Tensor};

use super::{Definition, Location, Objective, PooledLoss, Prepared};
use crate::{
    data::TrainingSet,
    model::{Packed, Parameter},
};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};

/// An auxiliary objective with its weight and its batch size.
pub struct Auxiliary {
    /// The auxiliary objective.
    pub objective: Box<dyn Objective>,
    /// Weight of the auxiliary loss in the sum of the losses.
    pub weight: f64,
    /// Number of auxiliary examples per step.
    pub batch: usize,
}

/// A main objective with auxiliary objectives. The examples of the main objective define the epochs.
pub struct MultiTask {
    main: Box<dyn Objective>,
    auxiliary: Vec<(Auxiliary, Vec<Location>)>,
    heads: Vec<Parameter>,
}

impl MultiTask {
    /// Combines the objectives. Returns an error if the data has no example for an auxiliary objective.
    pub fn new(main: Box<dyn Objective>, auxiliary: Vec<Auxiliary>, data: &TrainingSet) -> Result<Self> {
        let mut heads = main.heads().to_vec();
        let mut with_examples = Vec::with_capacity(auxiliary.len());
        for auxiliary in auxiliary {
            let locations = auxiliary.objective.examples(data)?;
            if locations.is_empty() {
                let name = auxiliary.objective.definition().name;
                return Err(Error::data(format!("the data has no examples for {name}")));
            }
            heads.extend_from_slice(auxiliary.objective.heads());
            with_examples.push((auxiliary, locations));
        }
        Ok(MultiTask { main, auxiliary: with_examples, heads })
    }
}

impl Objective for MultiTask {
    fn definition(&self) -> &'static Definition {
        self.main.definition()
    }

    fn heads(&self) -> &[Parameter] {
        &self.heads
    }

    fn in_batch(&self) -> bool {
        true
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<Location>> {
        self.main.examples(data)
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Location, Random)]) -> Result<Box<dyn Prepared>> {
        // The generator of the first example seeds one generator per auxiliary objective.
        let Some((_, first)) = examples.first() else {
            return Err(Error::Internal("the batch has no examples".to_owned()));
        };
        let mut source = first.clone();
        let mut parts = Vec::with_capacity(1 + self.auxiliary.len());
        let keys: Vec<u64> = self.auxiliary.iter().map(|_| source.bits()).collect();
        parts.push((self.main.prepare(data, examples)?, 1.0));
        for ((auxiliary, locations), key) in self.auxiliary.iter().zip(keys) {
            let mut draw = Random::new(key, 0);
            let mut drawn: Vec<_> = (0..auxiliary.batch as u64)
                .map(|n| (locations[draw.below(locations.len())], Random::new(key, 1 + n)))
                .collect();
            parts.push((auxiliary.objective.prepare(data, &mut drawn)?, auxiliary.weight));
        }
        let sequences = parts.iter().flat_map(|(p, _)| p.packed().sequences.iter().cloned()).collect();
        Ok(Box::new(Joined { packed: Packed::new(sequences), parts }))
    }
}

/// Batches of several objectives, concatenated.
struct Joined {
    packed: Packed,
    parts: Vec<(Box<dyn Prepared>, f64)>,
}

impl Prepared for Joined {
    fn packed(&self) -> &Packed {
        &self.packed
    }

    fn count(&self) -> usize {
        self.parts[0].0.count()
    }

    fn shape(&self) -> serde_json::Value {
        self.parts
            .iter()
            .map(|(p, weight)| serde_json::json!({ "weight": weight, "of": p.shape() }))
            .collect()
    }

    fn loss(&self, states: &Tensor) -> Candle<Tensor> {
        self.sum(states, &|part| part.packed().tokens(), &|part, rows| part.loss(rows))
    }

    fn pooled_loss(&self) -> Option<&dyn PooledLoss> {
        self.parts.iter().all(|(part, _)| part.pooled_loss().is_some()).then_some(self)
    }
}

impl PooledLoss for Joined {
    fn loss_of(&self, means: &Tensor) -> Candle<Tensor> {
        self.sum(means, &|part| part.packed().sequences.len(), &|part, rows| match part.pooled_loss() {
            Some(part) => part.loss_of(rows),
            None => candle_core::bail!("an objective has no pooled loss"),
        })
    }
}

impl Joined {
    /// Weighted sum of the losses. `count` returns the number of rows of an objective.
    fn sum(
        &self,
        rows: &Tensor,
        count: &dyn Fn(&dyn Prepared) -> usize,
        loss: &dyn Fn(&dyn Prepared, &Tensor) -> Candle<Tensor>,
    ) -> Candle<Tensor> {
        let mut at = 0;
        let mut sum = Tensor::zeros((), rows.dtype(), rows.device())?;
        for (part, weight) in &self.parts {
            let count = count(part.as_ref());
            sum = (sum + (loss(part.as_ref(), &rows.narrow(0, at, count)?)? * *weight)?)?;
            at += count;
        }
        Ok(sum)
    }
}
