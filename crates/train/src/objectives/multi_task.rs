//! Multi-task training: a batch holds examples of several objectives. The loss of the batch is the weighted sum of the
//! losses of the objectives.

use candle_core::{Result as Candle, Tensor};

use super::{Definition, Loss, Objective, Prepared, TurnLocation};
use crate::{
    data::TrainingSet,
    model::{Packed, Parameter},
};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_encoder::selector::{Head, SelectorSettings};

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
    auxiliary: Vec<(Auxiliary, Vec<TurnLocation>)>,
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

    fn selector(&self) -> Result<Option<(SelectorSettings, Head)>> {
        self.main.selector()
    }

    fn pooler(&self) -> Result<Option<[Vec<f32>; 2]>> {
        self.main.pooler()
    }

    fn in_batch(&self) -> bool {
        true
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<TurnLocation>> {
        self.main.examples(data)
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(TurnLocation, Random)]) -> Result<Prepared> {
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
        let sequences = parts.iter().flat_map(|(part, _)| part.packed.sequences.iter().cloned()).collect();
        let is_pooled = parts.iter().all(|(part, _)| part.is_pooled);
        // The rows of the main objective come first, so the places of its utterances remain valid.
        let utterances = parts[0].0.utterances.take();
        let joined =
            Prepared::new(self.definition(), sequences, parts[0].0.count, Joined { parts, is_pooled });
        Ok(Prepared { is_pooled, utterances, ..joined })
    }
}

/// Weighted sum of the losses of several batches, whose sequences are concatenated.
struct Joined {
    /// Batches of the objectives with the weights of their losses. The batch of the main objective is first.
    parts: Vec<(Prepared, f64)>,
    /// True if all losses need only the pooled embedding of each sequence.
    is_pooled: bool,
}

impl Loss for Joined {
    fn compute(&self, _: &Packed, input: &Tensor) -> Candle<Tensor> {
        let mut first = 0;
        let mut sum = Tensor::zeros((), input.dtype(), input.device())?;
        for (part, weight) in &self.parts {
            let rows = if self.is_pooled { part.packed.sequences.len() } else { part.packed.tokens() };
            let own = input.narrow(0, first, rows)?;
            let loss = if self.is_pooled { part.pooled_loss(&own)? } else { part.loss(&own, None)? };
            sum = (sum + (loss * *weight)?)?;
            first += rows;
        }
        Ok(sum)
    }

    fn shape(&self, _: usize) -> serde_json::Value {
        let parts = self.parts.iter();
        parts.map(|(part, weight)| serde_json::json!({ "weight": weight, "of": part.shape() })).collect()
    }
}
