//! Training objectives: each selects examples from dialogues and computes their loss.

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
pub use responses::{Matching, ResponseSelection};
pub use simcse::SimCse;
pub use together::{Auxiliary, MultiTask};
pub use words::Words;

use candle_core::{Result as Candle, Tensor};

use crate::{
    data::TrainingSet,
    model::{Packed, Parameter},
};
use turnwise_core::{error::Result, random::Random};

/// A training objective.
pub trait Objective: Send + Sync {
    /// Name of the objective on the command line and in recipes.
    fn name(&self) -> &'static str;

    /// Parameters of the objective's own layers, which are trained together with the encoder.
    fn heads(&self) -> &[Parameter] {
        &[]
    }

    /// Returns true if the loss compares the examples of a batch with each other, for example with in-batch
    /// negatives.
    ///
    /// Such a batch cannot be split into independent micro-batches.
    fn in_batch(&self) -> bool {
        false
    }

    /// Returns true if all examples of a batch should come from one corpus.
    ///
    /// Negatives from a different corpus are too easy: their topic alone separates them.
    fn one_corpus(&self) -> bool {
        false
    }

    /// Lists all examples in the data.
    fn examples(&self, data: &TrainingSet) -> Result<Vec<Location>>;

    /// Builds the input sequences of a batch.
    ///
    /// Random choices for an example depend only on its own random number generator.
    fn prepare(&self, data: &TrainingSet, examples: &mut [(Location, Random)]) -> Result<Box<dyn Prepared>>;
}

/// Location of an example: a dialogue, and a turn if the example is about one turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Location {
    /// Index of the dialogue in the training set.
    pub dialogue: u32,
    /// Index of the turn in the dialogue.
    pub turn: u32,
}

/// A batch that is ready for the encoder.
pub trait Prepared: Send {
    /// The input sequences.
    fn packed(&self) -> &Packed;

    /// Number of examples; the loss is the mean over them.
    fn count(&self) -> usize;

    /// Returns the structure of the sequences as JSON, for other programs that compute the same loss.
    fn shape(&self) -> serde_json::Value;

    /// Computes the mean loss from the hidden states of the tokens.
    fn loss(&self, states: &Tensor) -> Candle<Tensor> {
        match self.pooled_loss() {
            Some(examples) => examples.loss_of(&means(states, self.packed())?),
            None => candle_core::bail!("the objective has no loss"),
        }
    }

    /// Returns the loss as a function of the pooled sequence embeddings, if these are the only input of the loss.
    ///
    /// A large batch can then be computed in micro-batches.
    fn pooled_loss(&self) -> Option<&dyn PooledLoss> {
        None
    }
}

/// Loss that needs only the mean-pooled embedding of each sequence.
pub trait PooledLoss {
    /// Computes the mean loss from the embeddings, one row per sequence.
    fn loss_of(&self, means: &Tensor) -> Candle<Tensor>;
}

/// Returns the locations of all turns.
fn all_turns(data: &TrainingSet) -> Vec<Location> {
    turns_of(data, 1)
}

/// Returns the locations of all turns in dialogues with at least two turns.
pub fn every_turn(data: &TrainingSet) -> Vec<Location> {
    turns_of(data, 2)
}

/// Returns the locations of all turns in dialogues with at least `min_turns` turns.
fn turns_of(data: &TrainingSet, min_turns: u32) -> Vec<Location> {
    let long = (0..).zip(data.turns_each()).filter(|(_, turns)| **turns >= min_turns);
    long.flat_map(|(dialogue, turns)| (0..*turns).map(move |turn| Location { dialogue, turn })).collect()
}
