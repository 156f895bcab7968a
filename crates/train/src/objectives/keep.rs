//! Keep: utterances stay where the encoder had them before it was trained for something else.
//!
//! An encoder that learns what dialogues are about forgets, a little, what single sentences mean. Each utterance of a batch
//! costs what its vector has turned away from the one that it had in the beginning: `1 - cos`.

use candle_core::{Result as Candle, Tensor};

use super::{Objective, Place, PooledLoss, Prepared, likeness};
use crate::{
    data::TrainingSet,
    model::{Packed, Trainable},
};
use turnwise_core::{error::Result, random::Random};
use turnwise_encoder::{Sequence, Vectors};

/// Utterances that are looked at, at most.
const MOST: usize = 4_096;

/// The objective: utterances, and their vectors in the beginning.
pub struct Keep {
    places: Vec<Place>,
    start: Vectors,
    max_tokens: usize,
}

impl Keep {
    /// Encodes some utterances of the data, drawn by the seed, with a model that has not been trained yet.
    pub fn new(model: &Trainable, data: &TrainingSet, max_tokens: usize, seed: u64) -> Result<Self> {
        let mut places = super::all_turns(data);
        Random::new(seed, 2).shuffle(&mut places);
        places.truncate(MOST);
        let mut keep = Keep { start: Vectors::new(model.width()), places, max_tokens };
        let sequences = keep.places.iter().map(|place| keep.sequence(data, *place));
        let sequences = sequences.collect::<Result<Vec<Sequence>>>()?;
        keep.start = likeness::unit_means(model, &sequences)?;
        Ok(keep)
    }

    fn sequence(&self, data: &TrainingSet, place: Place) -> Result<Sequence> {
        Ok(data.utterance(&data.said(place)?, self.max_tokens))
    }
}

impl Objective for Keep {
    fn name(&self) -> &'static str {
        "keep"
    }

    fn examples(&self, _: &TrainingSet) -> Result<Vec<Place>> {
        // A place is one of those that were chosen.
        Ok((0..self.places.len() as u32).map(|n| Place { dialogue: n, turn: 0 }).collect())
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Place, Random)]) -> Result<Box<dyn Prepared>> {
        let chosen = || examples.iter().map(|(place, _)| place.dialogue as usize);
        let sequences = chosen().map(|n| self.sequence(data, self.places[n])).collect::<Result<_>>()?;
        let start = chosen().flat_map(|n| self.start.row(n).iter().copied()).collect();
        Ok(Box::new(Kept { packed: Packed::new(sequences), start }))
    }
}

/// Utterances, and where they were.
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
        let now = likeness::unit(means)?;
        let start = Tensor::from_slice(&self.start, now.shape(), means.device())?.to_dtype(means.dtype())?;
        1.0 - (now * start)?.sum(1)?.mean_all()?
    }
}
