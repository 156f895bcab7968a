//! Training objectives: each selects examples from dialogues and computes their loss.

pub mod definition;
mod dial2vec;
mod dialoguecse;
mod hard_negatives;
mod joint;
mod keep;
mod losses;
mod multi_task;
mod neighbours;
mod places;
mod relevance;
mod responses;
mod simcse;
mod surroundings;
#[cfg(test)]
mod tests;
mod words;

pub use definition::{Definition, Sample, Settings, Setup, Sources, Training};
pub use dial2vec::{Dial2vec, Profile};
pub use dialoguecse::{Aggregation, DialogueCse};
pub use hard_negatives::{HardNegatives, MiningSettings};
pub use keep::Keep;
pub(super) use losses::means;
pub use multi_task::{Auxiliary, MultiTask};
pub use neighbours::{Group, Neighbours};
pub use places::Places;
pub use relevance::Relevance;
pub use responses::{Matching, ResponseSelection};
pub use simcse::SimCse;
pub use words::Words;

use std::str::FromStr;

use candle_core::{Result as Candle, Tensor};

use serde::{Deserialize, Serialize};

use crate::{
    data::TrainingSet,
    model::{Packed, Parameter},
};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};

/// Generates [`ObjectiveName`] from a list of names and definitions.
macro_rules! objectives {
    ($($name:ident: $definition:path),* $(,)?) => {
        /// Name of a training objective.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        #[allow(missing_docs)]
        pub enum ObjectiveName {
            $($name),*
        }

        impl ObjectiveName {
            /// All objectives.
            pub const ALL: &[ObjectiveName] = &[$(ObjectiveName::$name),*];

            /// Definition of the objective.
            pub fn definition(self) -> &'static Definition {
                match self {
                    $(ObjectiveName::$name => &$definition),*
                }
            }
        }
    };
}

// The list of objectives. Its order is the order of auxiliary objectives in a run: append new ones.
objectives! {
    Dialoguecse: dialoguecse::DIALOGUECSE,
    Dial2vec: dial2vec::DIAL2VEC,
    Simcse: simcse::SIMCSE,
    Neighbours: neighbours::NEIGHBOURS,
    Surroundings: surroundings::SURROUNDINGS,
    Responses: responses::RESPONSES,
    Places: places::PLACES,
    SiameseS: responses::SIAMESE_S,
    SiameseM: responses::SIAMESE_M,
    Words: words::WORDS,
    Relevance: relevance::RELEVANCE,
    Joint: joint::JOINT,
    Keep: keep::KEEP,
}

/// Objective named `auto`: the best one for dialogues so far, see "What training gains" in benchmarks/README.md.
const AUTO: ObjectiveName = ObjectiveName::Neighbours;

impl ObjectiveName {
    /// Name on the command line and in recipes.
    pub fn name(self) -> &'static str {
        self.definition().name
    }
}

impl FromStr for ObjectiveName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "auto" {
            return Ok(AUTO);
        }
        let all = ObjectiveName::ALL.iter().copied();
        all.clone()
            .find(|objective| objective.name() == text)
            .ok_or_else(|| Error::unknown_name("objective", text, all.map(ObjectiveName::name)))
    }
}

impl TryFrom<String> for ObjectiveName {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        name.parse()
    }
}

impl From<ObjectiveName> for String {
    fn from(objective: ObjectiveName) -> String {
        objective.name().to_owned()
    }
}

/// A training objective: lists the examples of the data, and builds batches that compute their loss.
pub trait Objective: Send + Sync {
    /// Definition of the objective.
    fn definition(&self) -> &'static Definition;

    /// Parameters of the objective's own layers, which are trained together with the encoder.
    fn heads(&self) -> &[Parameter] {
        &[]
    }

    /// Returns true if a batch cannot be split into independent micro-batches.
    fn in_batch(&self) -> bool {
        self.definition().steps().is_some_and(|steps| steps.in_batch)
    }

    /// Lists all examples in the data.
    fn examples(&self, data: &TrainingSet) -> Result<Vec<Location>>;

    /// Builds the input sequences of a batch.
    ///
    /// Random choices for an example depend only on its own random number generator.
    fn prepare(&self, data: &TrainingSet, examples: &mut [(Location, Random)]) -> Result<Box<dyn Prepared>>;
}

/// Location of an example in the training set: a dialogue, and a turn if the example is a single turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Location {
    /// Index of the dialogue in the training set.
    pub dialogue: u32,
    /// Index of the turn in the dialogue.
    pub turn: u32,
}

/// A batch of an objective, tokenized and packed for the encoder.
pub trait Prepared: Send {
    /// The sequences to encode.
    fn packed(&self) -> &Packed;

    /// Number of examples. The loss is the mean over the examples.
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

    /// Returns the loss as a function of the pooled sequence embeddings; `None` if the loss needs other inputs.
    ///
    /// Batches with such a loss can be computed in micro-batches.
    fn pooled_loss(&self) -> Option<&dyn PooledLoss> {
        None
    }
}

/// Loss that needs only the mean-pooled embedding of each sequence.
pub trait PooledLoss {
    /// Computes the mean loss from the embeddings, one row per sequence.
    fn loss_of(&self, means: &Tensor) -> Candle<Tensor>;
}

/// Returns the locations of all turns, including dialogues with a single turn.
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
