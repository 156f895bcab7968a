//! Several objectives at once: a batch holds examples of each, and costs the weighted sum of what they cost.

use candle_core::{Result as Candle, Tensor};

use super::{Objective, Place, PooledLoss, Prepared};
use crate::{
    data::TrainingSet,
    model::{Packed, Parameter},
};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};

/// An objective beside the main one.
pub struct Beside {
    /// What it asks.
    pub objective: Box<dyn Objective>,
    /// What its loss counts.
    pub weight: f64,
    /// Its examples a step.
    pub batch: usize,
}

/// The main objective, whose examples make the steps, and others beside it.
pub struct Together {
    main: Box<dyn Objective>,
    beside: Vec<(Beside, Vec<Place>)>,
    heads: Vec<Parameter>,
}

impl Together {
    /// Puts them together. One beside that finds no example in the data is an error.
    pub fn new(main: Box<dyn Objective>, beside: Vec<Beside>, data: &TrainingSet) -> Result<Self> {
        let mut heads = main.heads().to_vec();
        let mut made = Vec::with_capacity(beside.len());
        for one in beside {
            let places = one.objective.examples(data)?;
            if places.is_empty() {
                let name = one.objective.name();
                return Err(Error::data(format!("the data hold no example for {name}")));
            }
            heads.extend_from_slice(one.objective.heads());
            made.push((one, places));
        }
        Ok(Together { main, beside: made, heads })
    }
}

impl Objective for Together {
    fn name(&self) -> &'static str {
        self.main.name()
    }

    fn heads(&self) -> &[Parameter] {
        &self.heads
    }

    fn whole(&self) -> bool {
        true
    }

    fn apart(&self) -> bool {
        self.main.apart()
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<Place>> {
        self.main.examples(data)
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Place, Random)]) -> Result<Box<dyn Prepared>> {
        // What is drawn for the others hangs on the first example alone; each has a source of its own.
        let Some((_, first)) = examples.first() else {
            return Err(Error::Internal("a batch without examples".to_owned()));
        };
        let mut source = first.clone();
        let mut parts = Vec::with_capacity(1 + self.beside.len());
        let keys: Vec<u64> = self.beside.iter().map(|_| source.bits()).collect();
        parts.push((self.main.prepare(data, examples)?, 1.0));
        for ((beside, places), key) in self.beside.iter().zip(keys) {
            let mut draw = Random::new(key, 0);
            let mut drawn: Vec<_> = (0..beside.batch as u64)
                .map(|n| (places[draw.below(places.len())], Random::new(key, 1 + n)))
                .collect();
            parts.push((beside.objective.prepare(data, &mut drawn)?, beside.weight));
        }
        let sequences = parts.iter().flat_map(|(p, _)| p.packed().sequences.iter().cloned()).collect();
        Ok(Box::new(Joined { packed: Packed::new(sequences), parts }))
    }
}

/// Examples of several objectives, end to end.
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
            None => candle_core::bail!("an objective that needs more than means"),
        })
    }
}

impl Joined {
    /// The weighed sum over the parts, each of so many of the rows.
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
