//! Definition of an objective: its name, description, defaults and properties, without its loss.

use std::fmt::Debug;

use super::{Group, HardNegatives, Objective, ObjectiveName};
use crate::{data::TrainingSet, model::Trainable, recipe::Given, run::evaluations::Selection};
use turnwise_core::error::Result;

/// Properties and defaults of an objective. Each objective defines them in its own file.
#[derive(Debug)]
pub struct Definition {
    /// Name on the command line and in recipes.
    pub name: &'static str,
    /// One-line description: the vectors that it trains, and how.
    pub about: &'static str,
    /// Recommended benchmark: task and data, as an argument of `turnwise bench`.
    pub benchmark: &'static str,
    /// Kind of items that the label-free evaluation encodes.
    pub sample: Sample,
    /// True if the objective is evaluated on the halves of held-out dialogues by default. This evaluation measures
    /// topics, so it does not suit objectives that predict tokens or classes.
    pub held_out: bool,
    /// Default criterion that selects the step whose model is kept.
    pub select: Selection,
    /// Whether the objective can be the main one, an auxiliary one, or both.
    pub role: Role,
    /// Default minimum number of turns of a dialogue.
    pub min_turns: usize,
    /// Training method of the objective.
    pub training: Training,
}

/// Items that the label-free evaluation encodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sample {
    /// Whole dialogues.
    Dialogues,
    /// Utterances without duplicates.
    Utterances,
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

/// Training method of an objective.
#[derive(Debug)]
pub enum Training {
    /// The encoder is trained with gradient steps.
    Steps(StepTraining),
    /// A linear layer is computed in closed form, without gradient steps.
    ClosedForm,
}

/// Properties and defaults of an objective that is trained with gradient steps.
#[derive(Debug)]
pub struct StepTraining {
    /// True if the loss compares the examples of a batch with each other, for example with in-batch negatives.
    ///
    /// Such a batch cannot be split into independent micro-batches.
    pub in_batch: bool,
    /// True if the pooled embeddings of the sequences are the only input of the loss.
    ///
    /// The batches of such objectives can be combined and computed in micro-batches.
    pub pooled_loss: bool,
    /// True if all examples of a batch should come from one corpus.
    ///
    /// Negatives from a different corpus are too easy: their topic alone separates them.
    pub one_corpus: bool,
    /// True if a sequence can hold several turns, which need a separator token.
    pub several_turns: bool,
    /// True if consecutive turns of one speaker are merged by default.
    pub merge_turns: bool,
    /// Default number of steps.
    pub steps: Steps,
    /// Default number of warm-up steps. It applies only if the number of steps is also the default.
    pub warm_up: u64,
    /// Default batch size.
    pub batch: usize,
    /// Default peak learning rate.
    pub learning_rate: f64,
    /// Default maximum number of tokens of a sequence.
    pub max_tokens: usize,
    /// Default temperature; 1 if the loss has none.
    pub temperature: f64,
    /// Layers that are frozen by default.
    pub frozen: Frozen,
    /// Default auxiliary objectives and their weights.
    pub auxiliary: &'static [(ObjectiveName, f64)],
    /// Default batch size and maximum number of tokens as an auxiliary objective; `None` if they equal those above.
    pub as_auxiliary: Option<(usize, usize)>,
    /// Reads the settings of the objective from a recipe.
    pub settings: fn(&mut Given<'_>) -> Box<dyn Settings>,
}

/// Default number of steps.
#[derive(Debug, Clone, Copy)]
pub enum Steps {
    /// One number, for corpora of any number and size.
    Total(u64),
    /// A number that is multiplied by the number of corpora.
    PerCorpus(u64),
}

/// Layers that are frozen by default.
#[derive(Debug, Clone, Copy)]
pub enum Frozen {
    /// No layer is frozen.
    Nothing,
    /// The lower half of the layers is frozen.
    Half,
}

/// Settings of an objective. They create the objective once the data and the model are loaded.
pub trait Settings: Debug + Send + Sync {
    /// Creates the objective. Returns an error if the model or the data does not suit it.
    fn create(&self, setup: &Setup<'_>) -> Result<Box<dyn Objective>>;
}

/// Data from which an objective is created.
pub struct Setup<'a> {
    /// The model, before training.
    pub model: &'a Trainable,
    /// The tokenized dialogues.
    pub data: &'a TrainingSet,
    /// Seed of the run.
    pub seed: u64,
    /// Inputs that take long to compute. They are computed only for objectives that need them.
    pub sources: &'a dyn Sources,
}

/// Computes inputs that only some objectives need and that take long to compute.
pub trait Sources {
    /// Fits a teacher on each corpus.
    fn teachers(&self) -> Result<Vec<Group>>;

    /// Mines hard negatives with texts of at most `max_tokens` tokens.
    fn hard_negatives(&self, max_tokens: usize) -> Result<HardNegatives>;
}

impl Definition {
    /// Properties of the training steps; `None` if the objective has no steps.
    pub fn steps(&self) -> Option<&StepTraining> {
        match &self.training {
            Training::Steps(steps) => Some(steps),
            Training::ClosedForm => None,
        }
    }
}
