//! Definition of an objective: its name, description, defaults and properties, without its loss.

use std::fmt::{Debug, Formatter};

use super::{Group, HardNegatives, Objective, ObjectiveName, TurnLocation};
use crate::{data::TrainingSet, model::Trainable, recipe::Given, run::evaluations::Selection};
use turnwise_core::error::Result;
use turnwise_encoder::{
    folder::{ModelFolder, Tokenizer},
    selector::StartSelector,
};

/// Properties and defaults of an objective.
///
/// Each objective has a static definition, which sets the fields that differ from [`Definition::DEFAULT`].
#[derive(Debug)]
pub struct Definition {
    /// Name on the command line and in recipes.
    pub name: &'static str,
    /// Name in earlier versions, if it was different. It is still accepted as a name, and recipe files store it.
    pub former_name: Option<&'static str>,
    /// One-line description: which vectors the objective trains, and how it trains them.
    pub about: &'static str,
    /// Recommended benchmark: task and data, as arguments of `turnwise bench`.
    pub benchmark: &'static str,
    /// Kind of items that the label-free evaluation encodes.
    pub sample: Sample,
    /// True if dialogues are held out for the label-free evaluation by default. That evaluation measures topics, so it
    /// does not suit objectives that predict tokens or classes.
    pub held_out: bool,
    /// Default criterion that selects the step of the saved model.
    pub select: Selection,
    /// Kind of model that a run saves.
    pub output: Output,
    /// Whether a run can use the objective as its main objective, as an auxiliary objective, or both.
    pub role: Role,
    /// Default minimum number of turns of a dialogue.
    pub min_turns: usize,
    /// Properties of training with gradient steps; `None` if a linear layer is computed in closed form instead.
    pub steps: Option<StepTraining>,
}

/// Items that the label-free evaluation encodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sample {
    /// Whole dialogues.
    Dialogues,
    /// Utterances without duplicates.
    Utterances,
}

/// Kind of model that a run saves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// An encoder, which computes the vectors of texts and dialogues.
    Encoder,
    /// A selector, which scores a response to a context.
    Selector,
}

/// Roles that an objective can have in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Only the main objective.
    Main,
    /// Only an auxiliary objective.
    Auxiliary,
    /// Main or auxiliary objective.
    Both,
}

/// Properties and defaults of an objective that is trained with gradient steps.
#[derive(Debug)]
pub struct StepTraining {
    /// True if the loss compares the examples of a batch with each other, for example with in-batch negatives. The
    /// batch then cannot be split into independent micro-batches.
    pub in_batch: bool,
    /// True if the loss needs only the mean vector of each sequence. Only then can a batch with `in_batch` be
    /// computed in micro-batches.
    pub pooled_loss: bool,
    /// True if all examples of a batch come from one corpus. Negatives from a different corpus are too easy, because
    /// their topic alone separates them.
    pub one_corpus: bool,
    /// True if a sequence can hold several turns, which need a separator token.
    pub several_turns: bool,
    /// True if the tokenizer needs a token that ends an utterance (`[EOU]`).
    pub end_of_utterance: bool,
    /// True if a sequence can be as long as the network allows, even if the encoder's own limit is lower.
    pub all_positions: bool,
    /// True if consecutive turns of one speaker are merged by default.
    pub merge_turns: bool,
    /// Default number of steps.
    pub steps: u64,
    /// True if the default number of steps is multiplied by the number of corpora.
    pub per_corpus: bool,
    /// Default number of warm-up steps. It applies only if the number of steps is also the default.
    pub warm_up: u64,
    /// Default batch size.
    pub batch: usize,
    /// Default peak learning rate.
    pub learning_rate: f64,
    /// Default maximum number of tokens of a sequence.
    pub max_tokens: usize,
    /// Default temperature; 1 if the loss has no temperature.
    pub temperature: f64,
    /// True if the lower half of the layers is frozen by default, false if no layer is frozen.
    pub freezes_half: bool,
    /// Default auxiliary objectives and their weights.
    pub auxiliary: &'static [(ObjectiveName, f64)],
    /// Default batch size and default maximum number of tokens if the objective is auxiliary. `None` means the same
    /// values as for a main objective: `batch` and `max_tokens`.
    pub as_auxiliary: Option<(usize, usize)>,
    /// Reads the settings of the objective from a recipe.
    pub settings: fn(&mut Given<'_>) -> ObjectiveBuilder,
}

/// Function that creates an objective with the settings of a recipe. The function is called after the data and the
/// model are loaded.
pub struct ObjectiveBuilder(Box<BuildFn>);

type BuildFn = dyn Fn(&Setup<'_>) -> Result<Box<dyn Objective>> + Send + Sync;

impl ObjectiveBuilder {
    /// Wraps the function `build`, which creates an objective. `build` returns an error if the model or the data does
    /// not suit the objective.
    pub fn new<O: Objective + 'static>(
        build: impl Fn(&Setup<'_>) -> Result<O> + Send + Sync + 'static,
    ) -> Self {
        ObjectiveBuilder(Box::new(move |setup: &Setup<'_>| Ok(Box::new(build(setup)?) as Box<dyn Objective>)))
    }

    /// Creates the objective.
    pub fn build(&self, setup: &Setup<'_>) -> Result<Box<dyn Objective>> {
        (self.0)(setup)
    }
}

impl Debug for ObjectiveBuilder {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("ObjectiveBuilder")
    }
}

/// Inputs for the creation of an objective.
pub struct Setup<'a> {
    /// The model, before training.
    pub model: &'a Trainable,
    /// The tokenized dialogues.
    pub data: &'a TrainingSet,
    /// Seed of the run.
    pub seed: u64,
    /// Computes expensive inputs on demand.
    pub sources: &'a dyn Sources,
    /// The base model, with its pre-trained heads.
    pub folder: &'a ModelFolder,
    /// The other parts of the base model if it is a selector, which is trained further.
    pub selector: Option<&'a StartSelector>,
    /// Tokenizer of the model, with all special tokens that the objective needs.
    pub tokenizer: &'a Tokenizer,
}

/// Computes expensive inputs that only some objectives need.
pub trait Sources {
    /// Fits a teacher (a model of dialogue similarity) on each corpus. Returns each teacher with the dialogues that it
    /// was fitted on.
    fn teachers(&self) -> Result<Vec<Group>>;

    /// Mines hard negatives among the turns at these locations. Texts are truncated to `max_tokens` tokens before they
    /// are encoded.
    fn hard_negatives(&self, among: Vec<TurnLocation>, max_tokens: usize) -> Result<HardNegatives>;
}

impl Definition {
    /// Default values. Each definition sets at least the name and the description.
    pub const DEFAULT: Definition = Definition {
        name: "",
        former_name: None,
        about: "",
        benchmark: "sr select.txt",
        sample: Sample::Utterances,
        held_out: true,
        select: Selection::LabelFree,
        output: Output::Encoder,
        role: Role::Both,
        min_turns: 2,
        steps: None,
    };
}

impl StepTraining {
    /// Returns the most common properties and defaults. The function `settings` reads the settings of the objective.
    pub const fn new(settings: fn(&mut Given<'_>) -> ObjectiveBuilder) -> Self {
        StepTraining {
            in_batch: false,
            pooled_loss: false,
            one_corpus: false,
            several_turns: false,
            end_of_utterance: false,
            all_positions: false,
            merge_turns: false,
            steps: 300,
            per_corpus: false,
            warm_up: 0,
            batch: 32,
            learning_rate: 2e-5,
            max_tokens: 64,
            temperature: 1.0,
            freezes_half: true,
            auxiliary: &[],
            as_auxiliary: None,
            settings,
        }
    }
}
