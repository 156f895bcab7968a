//! Utterance relevance: is this what was said next, something else of the same dialogue, or of another one?
//!
//! A few turns and a response in one sequence; a layer on the first token tells which of the three it is. One of the two
//! tasks by which encoders are prepared for choosing responses (the other is that of masked words).

use candle_core::{Device, Result as Candle, Tensor};

use super::{Objective, Place, Prepared, likeness};
use crate::{
    data::{Said, TrainingSet},
    model::{Packed, Parameter},
    ops::linear,
};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_encoder::Sequence;

/// The true next turn, another of the same dialogue, one of another dialogue.
const CLASSES: usize = 3;

/// The objective with its settings.
pub struct Relevance {
    /// Turns before the response, at most.
    pub context: usize,
    /// Tokens that a sequence may have; turns are cut off in front.
    pub max_tokens: usize,
    heads: Vec<Parameter>,
}

impl Relevance {
    /// Its layer begins with numbers that belong to the seed.
    pub fn new(width: usize, seed: u64, device: &Device) -> Result<Self> {
        let heads = likeness::layer("relevance", [CLASSES, width], seed, 0, device)?.to_vec();
        Ok(Relevance { context: 3, max_tokens: 128, heads })
    }

    /// A response behind the turns before a turn of its dialogue.
    fn sequence(&self, data: &TrainingSet, dialogue: &[Said], turn: usize, response: &Said) -> Sequence {
        // A response never takes more than half.
        let response = &response.ids[..response.ids.len().min(self.max_tokens / 2)];
        let room = self.max_tokens.saturating_sub(data.before.len() + response.len() + data.after.len());
        let said = dialogue[turn.saturating_sub(self.context)..turn].iter();
        let mut ids: Vec<u32> = said.flat_map(|said| said.ids.iter().chain(&data.after)).copied().collect();
        ids.drain(..ids.len().saturating_sub(room));
        Sequence::new([&data.before, &ids, response, &data.after].concat())
    }
}

impl Objective for Relevance {
    fn name(&self) -> &'static str {
        "relevance"
    }

    fn heads(&self) -> &[Parameter] {
        &self.heads
    }

    fn examples(&self, data: &TrainingSet) -> Result<Vec<Place>> {
        // With two turns there is no other of the same dialogue.
        Ok(super::turns_of(data, 3).into_iter().filter(|place| place.turn > 0).collect())
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Place, Random)]) -> Result<Box<dyn Prepared>> {
        if data.len() < 2 {
            return Err(Error::data("one dialogue has no other dialogue to take wrong responses from"));
        }
        let (mut sequences, mut classes) = (Vec::new(), Vec::new());
        for (place, random) in examples {
            let (own, turn) = (place.dialogue, place.turn as usize);
            let dialogue = data.dialogue(own)?;
            let class = random.below(CLASSES);
            let elsewhere;
            let response = match class {
                0 => &dialogue[turn],
                1 => {
                    let other = random.below(dialogue.len() - 1);
                    &dialogue[other + usize::from(other >= turn)]
                }
                _ => {
                    let other = random.below(data.len() - 1) as u32;
                    elsewhere = data.dialogue(other + u32::from(other >= own))?;
                    &elsewhere[random.below(elsewhere.len())]
                }
            };
            // "Yes." is said everywhere: where it is word for word the true one, it is the true one.
            classes.push(if response.ids == dialogue[turn].ids { 0 } else { class as u32 });
            sequences.push(self.sequence(data, &dialogue, turn, response));
        }
        let heads = self.heads.iter().map(|head| head.var.as_tensor().clone()).collect();
        Ok(Box::new(Told { packed: Packed::new(sequences), classes, heads }))
    }
}

struct Told {
    packed: Packed,
    classes: Vec<u32>,
    heads: Vec<Tensor>,
}

impl Prepared for Told {
    fn packed(&self) -> &Packed {
        &self.packed
    }

    fn count(&self) -> usize {
        self.classes.len()
    }

    fn shape(&self) -> serde_json::Value {
        serde_json::json!({ "classes": self.classes })
    }

    fn loss(&self, states: &Tensor) -> Candle<Tensor> {
        let (count, on) = (self.count(), states.device());
        let first: Vec<u32> = self.packed.starts[..count].iter().map(|start| *start as u32).collect();
        let first = states.index_select(&Tensor::from_slice(&first, count, on)?, 0)?;
        let [weight, bias] = [0, 1].map(|n: usize| self.heads[n].to_dtype(states.dtype()));
        let shares = likeness::log_shares(&linear(&first, &weight?, &bias?, None)?, 1.0)?;
        let classes = Tensor::from_slice(&self.classes, (count, 1), on)?;
        shares.gather(&classes, 1)?.mean_all()?.neg()
    }
}
