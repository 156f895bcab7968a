//! Training objectives: each selects examples from dialogues and computes their loss.

mod compared;
pub mod definition;
mod dial2vec;
mod dialoguecse;
mod frozen_sentences;
mod hard_negatives;
mod losses;
mod mlm;
mod multi_task;
mod neighbors;
mod pairs;
mod post_training;
mod relevance;
mod responses;
mod role_position;
mod selector;
mod self_distillation;
mod simcse;
#[cfg(test)]
pub(crate) mod tests;

pub use definition::{Definition, ObjectiveBuilder, Output, Sample, Setup, Sources};
pub use dial2vec::{Dial2vec, Profile};
pub use dialoguecse::{Aggregation, DialogueCse};
pub use frozen_sentences::FrozenSentences;
pub use hard_negatives::{HardNegatives, MiningSettings};
pub(super) use losses::means;
pub use mlm::Mlm;
pub use multi_task::{Auxiliary, MultiTask};
pub use neighbors::{Group, Neighbors};
pub use post_training::PostTraining;
pub use relevance::Relevance;
pub use responses::{Matching, ResponseSelection};
pub use role_position::RolePosition;
pub use selector::Selector;
pub use self_distillation::SelfDistillation;
pub use simcse::SimCse;

use std::str::FromStr;

use candle_core::{Result as Candle, Tensor};
use serde::{Deserialize, Serialize};

use crate::{
    context_cca,
    data::TrainingSet,
    model::{Packed, Parameter, Replaced},
    ops::pool,
};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_encoder::{
    Part, Sequence,
    selector::{Head, SelectorSettings},
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

// The order of this list is the order of the auxiliary objectives in a run. Their random choices depend on it, so new
// objectives are appended.
objectives! {
    Dialoguecse: dialoguecse::DIALOGUECSE,
    Dial2vec: dial2vec::DIAL2VEC,
    Simcse: simcse::SIMCSE,
    Neighbors: neighbors::NEIGHBORS,
    ContextCca: context_cca::CONTEXT_CCA,
    Responses: responses::RESPONSES,
    RolePosition: role_position::ROLE_POSITION,
    SiameseS: responses::SIAMESE_S,
    SiameseM: responses::SIAMESE_M,
    Mlm: mlm::MLM,
    Relevance: relevance::RELEVANCE,
    Joint: dialoguecse::JOINT,
    SelfDistillation: self_distillation::SELF_DISTILLATION,
    Selector: selector::SELECTOR,
    PostTraining: post_training::POST_TRAINING,
}

/// Objective that the name `auto` selects: the best objective for dialogues, see "What training gains" in
/// benchmarks/README.md.
const AUTO: ObjectiveName = ObjectiveName::Neighbors;

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
        let has_name = |objective: &ObjectiveName| {
            let Definition { name, former_name, .. } = objective.definition();
            *name == text || *former_name == Some(text)
        };
        all.clone()
            .find(has_name)
            .ok_or_else(|| Error::unknown_name("objective", text, all.map(ObjectiveName::name)))
    }
}

impl TryFrom<String> for ObjectiveName {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        name.parse()
    }
}

/// Returns the name in stored recipes. This name never changes, because checkpoints contain a hash of the recipe.
impl From<ObjectiveName> for String {
    fn from(objective: ObjectiveName) -> String {
        let Definition { name, former_name, .. } = objective.definition();
        former_name.unwrap_or(name).to_owned()
    }
}

/// Training objective: lists the examples in the data, and builds the batches with their loss.
pub trait Objective: Send + Sync {
    /// Definition of the objective.
    fn definition(&self) -> &'static Definition;

    /// Parameters of the objective's own layers, which are trained together with the encoder.
    fn heads(&self) -> &[Parameter] {
        &[]
    }

    /// Returns the settings and the head of the selector that is trained; `None` if an encoder is trained.
    fn selector(&self) -> Result<Option<(SelectorSettings, Head)>> {
        Ok(None)
    }

    /// Returns the weight and the bias of the trained pooling layer, which is saved with the encoder; `None` if the
    /// objective trains none.
    fn pooler(&self) -> Result<Option<[Vec<f32>; 2]>> {
        Ok(None)
    }

    /// Returns true if a batch cannot be split into independent micro-batches.
    fn in_batch(&self) -> bool {
        self.definition().steps.as_ref().is_some_and(|steps| steps.in_batch)
    }

    /// Returns the locations of all examples in the data.
    fn examples(&self, data: &TrainingSet) -> Result<Vec<TurnLocation>>;

    /// Builds a batch from examples, each with its own random number generator.
    ///
    /// All random choices come from these generators, so that a batch can be reproduced.
    fn prepare(&self, data: &TrainingSet, examples: &mut [(TurnLocation, Random)]) -> Result<Prepared>;
}

/// Location of an example in the training set. If the examples of an objective are not turns, `dialogue` is an index
/// into a list that the objective keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TurnLocation {
    /// Index of the dialogue in the training set.
    pub dialogue: u32,
    /// Index of the turn in the dialogue.
    pub turn: u32,
}

/// A batch of an objective, tokenized and packed for the encoder.
pub struct Prepared {
    /// The sequences to encode.
    pub packed: Packed,
    /// Number of examples. The loss is the mean over the examples.
    pub count: usize,
    /// True if the loss needs only the mean vector of each sequence, not the hidden states of the tokens.
    pub is_pooled: bool,
    /// Utterances that are encoded before: their vectors are inputs of `packed`, in place of word embeddings, or inputs
    /// of the loss.
    pub utterances: Option<Utterances>,
    /// Input vectors of `packed` that are not trained, in place of word embeddings.
    pub fixed: Option<Replaced>,
    loss: Box<dyn Loss>,
}

/// Utterances that are encoded before a batch.
pub struct Utterances {
    /// The utterances, one sequence each.
    pub packed: Packed,
    /// Terms of the weighted sum that is the vector of each utterance: rows of its states after the first layer, and
    /// rows of its states after the last layer.
    pub terms: [Vec<Vec<Part>>; 2],
    /// Rows of tokens whose states after the last layer are needed, too.
    pub tokens: Vec<u32>,
    /// Rows of the batch with the index of the utterance whose vector is the input of the row, in ascending order.
    pub places: Vec<(u32, u32)>,
}

impl Utterances {
    /// Returns true if the vectors depend on the states after the first layer.
    pub fn need_first_layer(&self) -> bool {
        self.terms[0].iter().any(|terms| !terms.is_empty())
    }

    /// Computes the vectors of the utterances from their hidden states after the last layer, and after the first layer
    /// if they depend on it. The states of `tokens` follow.
    pub fn vectors(&self, first: Option<&Tensor>, last: &Tensor) -> Candle<Tensor> {
        let [of_first, of_last] = &self.terms;
        let in_batch = |terms: &[Vec<Part>]| self.packed.in_batch(terms.iter().map(Vec::as_slice));
        let of_last = pool(last, in_batch(of_last))?;
        let vectors = match first {
            Some(first) => (of_last + pool(first, in_batch(of_first))?)?,
            None => of_last,
        };
        if self.tokens.is_empty() {
            return Ok(vectors);
        }
        let tokens = last.index_select(&losses::indices(&self.tokens, last)?, 0)?;
        Tensor::cat(&[vectors, tokens], 0)
    }
}

/// Loss of a batch, with the data that it needs in addition to the output of the encoder.
trait Loss: Send {
    /// Computes the mean loss over the examples.
    ///
    /// If the loss is pooled, `input` has one row per sequence: the mean of the hidden states of its tokens. Otherwise,
    /// `input` has one row per token: the hidden state of the token.
    fn compute(&self, packed: &Packed, input: &Tensor) -> Candle<Tensor>;

    /// Computes the mean loss of a batch with utterances, from the hidden states of the tokens and from the vectors of
    /// the utterances.
    fn compute_with_vectors(&self, packed: &Packed, states: &Tensor, _vectors: &Tensor) -> Candle<Tensor> {
        self.compute(packed, states)
    }

    /// Returns the structure of the sequences of a batch with `count` examples; see [`Prepared::shape`].
    fn shape(&self, count: usize) -> serde_json::Value {
        serde_json::json!({ "count": count })
    }
}

impl Prepared {
    /// Creates a batch of `count` examples of an objective with this definition.
    fn new(
        definition: &Definition,
        sequences: Vec<Sequence>,
        count: usize,
        loss: impl Loss + 'static,
    ) -> Self {
        let is_pooled = definition.steps.as_ref().is_some_and(|steps| steps.pooled_loss);
        let packed = Packed::new(sequences);
        Prepared { packed, count, is_pooled, utterances: None, fixed: None, loss: Box::new(loss) }
    }

    /// Returns the structure of the sequences as JSON, so that other programs can compute the loss of the batch.
    pub fn shape(&self) -> serde_json::Value {
        self.loss.shape(self.count)
    }

    /// Computes the mean loss from the hidden states of the tokens and from the vectors of the utterances.
    pub fn loss(&self, states: &Tensor, vectors: Option<&Tensor>) -> Candle<Tensor> {
        match (self.is_pooled, vectors) {
            (true, _) => self.pooled_loss(&means(states, &self.packed)?),
            (false, None) => self.loss.compute(&self.packed, states),
            (false, Some(vectors)) => self.loss.compute_with_vectors(&self.packed, states, vectors),
        }
    }

    /// Computes the mean loss from the mean vector of each sequence. Valid only if `is_pooled` is true.
    pub fn pooled_loss(&self, means: &Tensor) -> Candle<Tensor> {
        self.loss.compute(&self.packed, means)
    }
}

/// Returns the locations of all turns in dialogues with at least `min_turns` turns.
pub(crate) fn turns_of(data: &TrainingSet, min_turns: u32) -> Vec<TurnLocation> {
    let long = (0..).zip(data.turn_counts()).filter(|(_, turns)| **turns >= min_turns);
    long.flat_map(|(dialogue, turns)| (0..*turns).map(move |turn| TurnLocation { dialogue, turn })).collect()
}

/// Returns an error if the data has no second dialogue from which negatives can be drawn.
fn check_several_dialogues(data: &TrainingSet) -> Result<()> {
    match data.len() < 2 {
        true => Err(Error::data("negative responses need at least two dialogues, but the data has only one")),
        false => Ok(()),
    }
}

/// Draws a dialogue other than `own`. The data must have at least two dialogues.
fn other_dialogue(data: &TrainingSet, own: u32, random: &mut Random) -> u32 {
    let drawn = random.below(data.len() - 1) as u32;
    drawn + u32::from(drawn >= own)
}
