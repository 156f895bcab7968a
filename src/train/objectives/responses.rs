//! Responses: what is said next is like the turns before it, and unlike what was said next elsewhere.
//!
//! The last turns as one sequence and the next turn as another, in a batch: each is drawn to its own and away from the
//! others' (both ways). What is said word for word twice in a batch is no wrong answer to either.

use candle_core::{Result as Candle, Tensor};

use super::{Objective, Place, Prepared, likeness};
use crate::{
    encoder::Sequence,
    error::Result,
    random::Random,
    train::{data::TrainingSet, model::Packed},
};

/// The objective with its settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NextTurn {
    /// Turns before the response, at most.
    pub context: usize,
    /// τ.
    pub temperature: f64,
    /// Tokens that a response, or its context, may have.
    pub max_tokens: usize,
}

impl Default for NextTurn {
    fn default() -> Self {
        NextTurn { context: 3, temperature: 0.05, max_tokens: 64 }
    }
}

impl NextTurn {
    /// The turns before one. Where they are too long, the end of them.
    fn before(&self, data: &TrainingSet, place: Place) -> Sequence {
        let (dialogue, turn) = (&data.dialogues[place.dialogue as usize], place.turn as usize);
        let said = dialogue[turn.saturating_sub(self.context)..turn].iter();
        let mut ids: Vec<u32> = said.flat_map(|said| said.ids.iter().chain(&data.after)).copied().collect();
        let room = self.max_tokens.saturating_sub(data.before.len()).max(1);
        ids.drain(..ids.len().saturating_sub(room));
        Sequence::new([data.before.as_slice(), &ids].concat())
    }
}

impl Objective for NextTurn {
    fn name(&self) -> &'static str {
        "responses"
    }

    fn whole(&self) -> bool {
        true
    }

    fn examples(&self, data: &TrainingSet) -> Vec<Place> {
        super::all_turns(data).into_iter().filter(|place| place.turn > 0).collect()
    }

    fn prepare(&self, data: &TrainingSet, examples: &mut [(Place, Random)]) -> Result<Box<dyn Prepared>> {
        let response = |place: &Place| {
            let said = &data.dialogues[place.dialogue as usize][place.turn as usize];
            data.utterance(&said.ids, self.max_tokens)
        };
        let mut sequences: Vec<Sequence> =
            examples.iter().map(|(place, _)| self.before(data, *place)).collect();
        let responses: Vec<Sequence> = examples.iter().map(|(place, _)| response(place)).collect();
        let masked = likeness::said_twice(&responses);
        sequences.extend(responses);
        Ok(Box::new(Pairs { packed: Packed::new(sequences), masked, temperature: self.temperature }))
    }
}

/// Contexts, and behind them their responses.
struct Pairs {
    packed: Packed,
    /// What is added to each likeness.
    masked: Vec<f32>,
    temperature: f64,
}

impl Prepared for Pairs {
    fn packed(&self) -> &Packed {
        &self.packed
    }

    fn count(&self) -> usize {
        self.packed.sequences.len() / 2
    }

    fn shape(&self) -> serde_json::Value {
        serde_json::json!({ "count": self.count() })
    }

    fn loss(&self, states: &Tensor) -> Candle<Tensor> {
        let count = self.count();
        let means = likeness::unit(&likeness::means(states, &self.packed)?)?;
        let scores = means.narrow(0, 0, count)?.matmul(&means.narrow(0, count, count)?.t()?)?;
        let masked = Tensor::from_slice(&self.masked, (count, count), states.device())?;
        let scores = (scores + masked)?;
        let there = likeness::diagonal_of(&scores, self.temperature)?;
        let back = likeness::diagonal_of(&scores.t()?.contiguous()?, self.temperature)?;
        (there + back)? / 2.0
    }
}
