//! What is trained for: examples out of dialogues, and what they cost.

mod dial2vec;
mod dialoguecse;
mod keep;
mod likeness;
mod neighbours;
mod places;
mod relevance;
mod responses;
mod simcse;
#[cfg(test)]
mod tests;
mod together;
mod words;

pub use dial2vec::Dial2vec;
pub use dialoguecse::{DialogueCse, Turns};
pub use keep::Keep;
pub(super) use likeness::{means, unit_means};
pub use neighbours::{Group, Neighbours};
pub use places::Places;
pub use relevance::Relevance;
pub use responses::{Matching, NextTurn};
pub use simcse::SimCse;
pub use together::{Beside, Together};
pub use words::Words;

use candle_core::{Result as Candle, Tensor};

use crate::{
    data::TrainingSet,
    model::{Packed, Parameter},
};
use turnwise_core::{error::Result, random::Random};

/// Something that can be trained for.
pub trait Objective: Send + Sync {
    /// Its name, as it is typed.
    fn name(&self) -> &'static str;

    /// What is trained beside the encoder.
    fn heads(&self) -> &[Parameter] {
        &[]
    }

    /// Whether the examples of a step are compared with each other: their loss is none of single examples.
    fn whole(&self) -> bool {
        false
    }

    /// Whether the examples of a step are to be of one corpus: what is said in another would be told apart by what it is
    /// about, and nothing learned from it.
    fn apart(&self) -> bool {
        false
    }

    /// The examples that there are, by numbers that stand for them.
    fn examples(&self, data: &TrainingSet) -> Result<Vec<Place>>;

    /// Makes examples ready to be computed. What is drawn for one hangs on nothing but its own source of chance.
    fn prepare(&self, data: &TrainingSet, examples: &mut [(Place, Random)]) -> Result<Box<dyn Prepared>>;
}

/// Where an example is found: a dialogue, and a turn of it where it is about one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Place {
    /// The dialogue.
    pub dialogue: u32,
    /// The turn.
    pub turn: u32,
}

/// Examples that are ready to be computed.
pub trait Prepared: Send {
    /// Their sequences.
    fn packed(&self) -> &Packed;

    /// How many examples there are: what the loss is a mean over.
    fn count(&self) -> usize;

    /// What of their sequences is what, for those who compute the same elsewhere.
    fn shape(&self) -> serde_json::Value;

    /// What they cost on average, given the states of their tokens.
    fn loss(&self, states: &Tensor) -> Candle<Tensor> {
        match self.pooled_loss() {
            Some(examples) => examples.loss_of(&means(states, self.packed())?),
            None => candle_core::bail!("examples without a loss"),
        }
    }

    /// The same from the mean of each sequence, where the loss needs nothing else: then a large batch can be computed in
    /// parts.
    fn pooled_loss(&self) -> Option<&dyn PooledLoss> {
        None
    }
}

/// Examples whose loss is one of the means of their sequences.
pub trait PooledLoss {
    /// What they cost on average, given a mean a row.
    fn loss_of(&self, means: &Tensor) -> Candle<Tensor>;
}

/// Every turn.
fn all_turns(data: &TrainingSet) -> Vec<Place> {
    turns_of(data, 1)
}

/// Every turn of dialogues that have others.
pub fn every_turn(data: &TrainingSet) -> Vec<Place> {
    turns_of(data, 2)
}

/// Every turn of dialogues that have so many at least.
fn turns_of(data: &TrainingSet, least: u32) -> Vec<Place> {
    let long = (0..).zip(data.turns_each()).filter(|(_, turns)| **turns >= least);
    long.flat_map(|(dialogue, turns)| (0..*turns).map(move |turn| Place { dialogue, turn })).collect()
}
