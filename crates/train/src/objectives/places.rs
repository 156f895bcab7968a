//! Places: who says it, and where in the dialogue?
//!
//! What an utterance does (asks, answers, agrees, thanks) shows in who says it and when: customers open, agents ask back,
//! thanks come last. Each such place has a direction: to where the utterances of that place lie from the middle of all, by
//! the encoder as it is. An utterance is drawn to the direction of its own place and away from those of the others, by
//! cosine, so that utterances come to lie by what they do. What they are about is told by none of it, and stays as far as
//! something beside it keeps it.

use candle_core::{Result as Candle, Tensor};

use super::{Objective, Place, PooledLoss, Prepared, likeness};
use crate::{
    data::TrainingSet,
    model::{Packed, Trainable},
};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
    vectors::normalize,
};
use turnwise_encoder::Sequence;

/// Utterances that the directions are found by, at most.
const MOST: usize = 16_384;
/// Who speaks: the first, the second, anybody else.
const PARTS: u32 = 3;
/// Where: first, second, last, last but one, between them.
const WHERE: u32 = 5;

/// How many places there are.
const PLACES: usize = (PARTS * WHERE) as usize;

/// The objective with its settings.
pub struct Places {
    /// τ.
    pub temperature: f64,
    /// Tokens that an utterance may have.
    pub max_tokens: usize,
    /// The direction of each place, of length 1; nothing where nobody speaks.
    directions: Vec<f32>,
    /// The logarithm of the part of all utterances that a place has.
    parts: [f32; PLACES],
}

impl Places {
    /// Finds the directions by some utterances of the data, drawn by the seed, with a model that has not been trained yet.
    pub fn new(model: &Trainable, data: &TrainingSet, max_tokens: usize, seed: u64) -> Result<Self> {
        let mut chosen = super::every_turn(data);
        Random::new(seed, 3).shuffle(&mut chosen);
        chosen.truncate(MOST);
        let width = model.width();
        let mut places = Places {
            temperature: 0.2,
            max_tokens,
            directions: vec![0.0; PLACES * width],
            parts: [0.0; PLACES],
        };
        let (sequences, classes) = places.utterances(data, chosen.iter().copied())?;
        let vectors = likeness::unit_means(model, &sequences)?;
        let mut counts = [0usize; PLACES];
        let mut middle = vec![0f32; width];
        for (row, class) in vectors.rows().zip(&classes) {
            let class = *class as usize;
            counts[class] += 1;
            let sum = &mut places.directions[class * width..][..width];
            sum.iter_mut().zip(row).for_each(|(sum, number)| *sum += number);
            middle.iter_mut().zip(row).for_each(|(sum, number)| *sum += number);
        }
        let all = classes.len().max(1) as f32;
        for ((direction, count), part) in
            places.directions.chunks_exact_mut(width).zip(counts).zip(&mut places.parts)
        {
            // One more than there are: what nobody said in these may be said in others.
            *part = ((count + 1) as f32 / (all + PLACES as f32)).ln();
            if count > 0 {
                direction.iter_mut().zip(&middle).for_each(|(d, m)| *d = *d / count as f32 - m / all);
                normalize(direction);
            }
        }
        Ok(places)
    }

    /// The sequences of utterances, and the places that they are of.
    fn utterances(
        &self,
        data: &TrainingSet,
        places: impl Iterator<Item = Place>,
    ) -> Result<(Vec<Sequence>, Vec<u32>)> {
        let (mut sequences, mut classes) = (Vec::new(), Vec::new());
        for place in places {
            let dialogue = data.dialogue(place.dialogue)?;
            let said = dialogue
                .get(place.turn as usize)
                .ok_or_else(|| Error::Internal(format!("no turn {} in a dialogue", place.turn)))?;
            classes.push(class(said.part, place.turn, dialogue.len() as u32));
            sequences.push(data.utterance(&said.ids, self.max_tokens));
        }
        Ok((sequences, classes))
    }
}

/// The number of a place. Of short dialogues the first turns are the first, whatever else they are.
fn class(part: u32, turn: u32, turns: u32) -> u32 {
    let place = match (turn, turns - turn) {
        (0, _) => 0,
        (1, _) => 1,
        (_, 1) => 2,
        (_, 2) => 3,
        _ => 4,
    };
    part.min(PARTS - 1) * WHERE + place
}

impl Objective for Places {
    fn name(&self) -> &'static str {
        "places"
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<Place>> {
        Ok(super::every_turn(data))
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Place, Random)]) -> Result<Box<dyn Prepared>> {
        let (sequences, classes) = self.utterances(data, examples.iter().map(|(place, _)| *place))?;
        Ok(Box::new(Placed {
            packed: Packed::new(sequences),
            classes,
            directions: self.directions.clone(),
            parts: self.parts,
            temperature: self.temperature,
        }))
    }
}

/// Utterances, and the places that they are of.
struct Placed {
    packed: Packed,
    classes: Vec<u32>,
    directions: Vec<f32>,
    parts: [f32; PLACES],
    temperature: f64,
}

impl Prepared for Placed {
    fn packed(&self) -> &Packed {
        &self.packed
    }

    fn count(&self) -> usize {
        self.classes.len()
    }

    fn shape(&self) -> serde_json::Value {
        serde_json::json!({ "classes": self.classes, "directions": self.directions, "parts": self.parts })
    }

    fn pooled_loss(&self) -> Option<&dyn PooledLoss> {
        Some(self)
    }
}

impl PooledLoss for Placed {
    fn loss_of(&self, means: &Tensor) -> Candle<Tensor> {
        let (on, width) = (means.device(), means.dim(1)?);
        let of = |numbers: &[f32], shape: (usize, usize)| {
            Tensor::from_slice(numbers, shape, on)?.to_dtype(means.dtype())
        };
        let directions = of(&self.directions, (PLACES, width))?;
        let scores = (likeness::unit(means)?.matmul(&directions.t()?)? / self.temperature)?;
        let scores = scores.broadcast_add(&of(&self.parts, (1, PLACES))?)?;
        let classes = Tensor::from_slice(&self.classes, (self.classes.len(), 1), on)?;
        likeness::log_shares(&scores, 1.0)?.gather(&classes, 1)?.mean_all()?.neg()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_who_says_it_and_where() {
        let places = |turns: u32| -> Vec<u32> { (0..turns).map(|turn| class(0, turn, turns)).collect() };
        assert_eq!(places(2), [0, 1]);
        assert_eq!(places(3), [0, 1, 2]);
        assert_eq!(places(6), [0, 1, 4, 4, 3, 2]);
        // The other speaker's are others; all further speakers' are one.
        assert_eq!(class(1, 5, 6), WHERE + 2);
        assert_eq!((class(2, 0, 6), class(9, 0, 6)), (2 * WHERE, 2 * WHERE));
    }
}
