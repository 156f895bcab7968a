//! Resolution of a recipe: fills in the defaults, and groups the settings into structs for the parts of a run.

use super::{Aggregation, HeadKind, History, ObjectiveName, Profile, Recipe, SelectorRecipe, check};
use crate::{
    objectives::{Auxiliary, MultiTask, Objective, ObjectiveBuilder, Setup, definition::StepTraining},
    optimizer,
    optimizer::Schedule,
    run::evaluations::Selection,
    trainer::Plan,
};
use turnwise_core::error::{Error, Result};
use turnwise_encoder::selector::SelectorSettings;

/// Default maximum number of inputs of a selector that also compares vectors, or that reads sentence vectors.
const SHORT_INPUTS: usize = 128;
/// Default maximum number of held-out dialogues.
const HELD_OUT: usize = 400;

/// A valid recipe, in which the defaults of the objective replace missing settings.
#[derive(Debug)]
pub struct ResolvedRecipe {
    /// The recipe with all defaults, which is saved in the folder of the run.
    pub file: Recipe,
    /// Minimum number of turns of a dialogue.
    pub min_turns: usize,
    /// Maximum number of held-out dialogues.
    pub held_out: usize,
    /// True if the run evaluates the model.
    pub evaluates: bool,
    /// Criterion that selects the step of the saved model.
    pub select: Selection,
    /// Settings of the training steps; `None` if the run only learns a linear layer in closed form.
    pub steps: Option<StepSettings>,
    /// Settings of the linear layer that is learned in closed form; `None` if no layer is learned.
    pub layer: Option<LayerSettings>,
}

/// Settings of a linear layer that is learned in closed form (`context-cca`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerSettings {
    /// Number of context turns on each side of an utterance.
    pub context: usize,
    /// Weight of the context prediction, from 0 to 1.
    pub strength: f64,
}

/// Settings of training with gradient steps.
#[derive(Debug)]
pub struct StepSettings {
    /// Builder of the main objective.
    pub main: ObjectiveBuilder,
    /// Settings of the auxiliary objectives.
    pub auxiliary: Vec<AuxiliarySettings>,
    /// Settings of the training loop.
    pub plan: Plan,
    /// Number of frozen layers, counted from the embeddings.
    pub frozen_layers: usize,
    /// True if consecutive turns of one speaker are merged.
    pub merge_turns: bool,
    /// Number of steps between evaluations; 0 disables them.
    pub evaluate_every: u64,
}

/// Settings of an auxiliary objective.
#[derive(Debug)]
pub struct AuxiliarySettings {
    /// Name of the objective.
    pub objective: ObjectiveName,
    /// Builder of the objective.
    pub builder: ObjectiveBuilder,
    /// Weight of the auxiliary loss in the sum of the losses.
    pub weight: f64,
    /// Number of examples of the auxiliary objective per step.
    pub batch: usize,
}

impl ResolvedRecipe {
    /// Returns true if an input sequence can contain several turns. The turns then need a separator token.
    pub fn divides_turns(&self) -> bool {
        self.any(|steps| steps.several_turns)
    }

    /// Returns true if the tokenizer needs a token that ends an utterance (`[EOU]`).
    pub fn ends_utterances(&self) -> bool {
        let selector = self.file.selector.unwrap_or_default();
        self.any(|steps| steps.end_of_utterance) && selector.settings(SHORT_INPUTS).uses_eou()
    }

    /// Returns true if the main objective or an auxiliary objective has a property.
    fn any(&self, has: impl Fn(&StepTraining) -> bool) -> bool {
        let auxiliary = self.steps.iter().flat_map(|steps| &steps.auxiliary);
        let mut all = auxiliary.map(|auxiliary| auxiliary.objective).chain([self.file.objective]);
        all.any(|objective| objective.definition().steps.as_ref().is_some_and(&has))
    }

    /// Returns true if sentence vectors have a segment of their own.
    pub fn has_sentence_segment(&self) -> bool {
        self.file.selector.is_some_and(|selector| selector.own_segment == Some(true))
    }

    /// Returns true if the gradient must flow through the frozen layers to the input vectors.
    pub fn trains_through_inputs(&self) -> bool {
        self.file.selector.is_some_and(|selector| selector.history == Some(History::Sentences))
    }
}

impl StepSettings {
    /// Creates the main objective, combined with its auxiliary objectives. Returns an error if the data or the model
    /// does not suit one of the objectives.
    pub fn create(&self, setup: &Setup<'_>) -> Result<Box<dyn Objective>> {
        let main = self.main.build(setup)?;
        let build = |auxiliary: &AuxiliarySettings| -> Result<Auxiliary> {
            let AuxiliarySettings { builder, weight, batch, .. } = auxiliary;
            Ok(Auxiliary { objective: builder.build(setup)?, weight: *weight, batch: *batch })
        };
        let auxiliary = self.auxiliary.iter().map(build).collect::<Result<Vec<Auxiliary>>>()?;
        match auxiliary.is_empty() {
            true => Ok(main),
            false => Ok(Box::new(MultiTask::new(main, auxiliary, setup.data)?)),
        }
    }
}

/// Interface through which an objective reads its settings from a recipe.
///
/// Reading a missing setting writes its default to the recipe. [`Recipe::resolve`] rejects given settings that the
/// objective does not read.
#[derive(Debug)]
pub struct Given<'r> {
    recipe: &'r mut Recipe,
    is_auxiliary: bool,
    temperature: f64,
    max_tokens: usize,
    /// True if the recipe sets the maximum number of tokens.
    has_max_tokens: bool,
    read: Vec<&'static str>,
}

impl Given<'_> {
    /// Returns true if the objective is used as an auxiliary objective.
    pub fn is_auxiliary(&self) -> bool {
        self.is_auxiliary
    }

    /// Returns the temperature of the softmax.
    pub fn temperature(&self) -> f64 {
        self.temperature
    }

    /// Returns the maximum number of tokens of a sequence.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Returns the settings of a selector. If the recipe does not set the maximum number of tokens, a selector gets a lower
    /// default if it also compares vectors.
    pub fn selector(&mut self) -> SelectorSettings {
        let given = self.recipe.selector.unwrap_or_default();
        self.selector_with(given.head.unwrap_or_default() == HeadKind::Matching)
    }

    /// Returns the settings of a selector. `is_short` is true if the default maximum number of tokens is low. It is also
    /// low for sentence vectors, because one input can hold a whole turn.
    fn selector_with(&mut self, is_short: bool) -> SelectorSettings {
        self.read.push("selector");
        let given = self.recipe.selector.unwrap_or_default();
        if (is_short || given.history == Some(History::Sentences)) && !self.has_max_tokens {
            self.max_tokens = self.max_tokens.min(SHORT_INPUTS);
            self.recipe.max_tokens = Some(self.max_tokens);
        }
        let settings = given.settings(self.max_tokens);
        self.recipe.selector = Some(SelectorRecipe::complete(&settings));
        settings
    }

    /// Returns the settings of pairs of a context and a response. They are those of a selector, without the head.
    pub fn pairs(&mut self) -> SelectorSettings {
        let settings = self.selector_with(false);
        let given = SelectorRecipe { head: None, ..SelectorRecipe::complete(&settings) };
        // The defaults are not stored: recipes from before these settings existed have none.
        self.recipe.selector =
            (settings != SelectorRecipe::default().settings(self.max_tokens)).then_some(given);
        settings
    }

    /// Returns the number of context turns; `default` if the recipe does not set it.
    pub fn context(&mut self, default: usize) -> usize {
        self.read.push("context");
        *self.recipe.context.get_or_insert(default)
    }

    /// Returns the number of negatives per positive; `default` if the recipe does not set it.
    pub fn negatives(&mut self, default: usize) -> usize {
        self.read.push("negatives");
        *self.recipe.negatives.get_or_insert(default)
    }

    /// Returns the number of hard negatives among the negatives; `default` if the recipe does not set it. A default of
    /// 0 is not written to the recipe.
    pub fn hard_negatives(&mut self, default: usize) -> usize {
        self.read.push("hard_negatives");
        if default > 0 {
            self.recipe.hard_negatives.get_or_insert(default);
        }
        self.recipe.hard_negatives.unwrap_or(default)
    }

    /// Returns the aggregation of the context turns.
    pub fn aggregation(&mut self) -> Aggregation {
        self.read.push("aggregation");
        *self.recipe.aggregation.get_or_insert_default()
    }

    /// Returns the maximum distance between matched turns, in turns (`dial2vec`); `default` if the recipe does not set
    /// it.
    pub fn window(&mut self, default: usize) -> usize {
        self.read.push("window");
        *self.recipe.window.get_or_insert(default)
    }

    /// Returns the variant of dial2vec: as in the paper, or as in its released code.
    pub fn profile(&mut self) -> Profile {
        self.read.push("profile");
        *self.recipe.profile.get_or_insert_default()
    }
}

impl Recipe {
    /// Sets all missing settings to the defaults of the objective, and validates the recipe.
    ///
    /// `layers` and `max_tokens` are the number of layers and the maximum sequence length of the base model.
    pub fn resolve(mut self, layers: usize, max_tokens: usize) -> Result<ResolvedRecipe> {
        let definition = self.objective.definition();
        check::role(&self)?;
        let evaluates = self.evaluate_every != Some(0);
        // With labeled dev tasks, no dialogues are held out by default.
        let by_default = if definition.held_out && self.dev.is_empty() && evaluates { HELD_OUT } else { 0 };
        let held_out = *self.held_out.get_or_insert(by_default);
        let min_turns = *self.min_turns.get_or_insert(definition.min_turns);
        let select = match &definition.steps {
            Some(_) => *self.select.get_or_insert(definition.select),
            None => definition.select,
        };
        let (steps, layer) = match &definition.steps {
            Some(training) => {
                let steps = self.resolve_steps(training, layers, max_tokens)?;
                let strength = self.layer.then(|| *self.strength.get_or_insert(0.5));
                (Some(steps), strength.map(|strength| LayerSettings { context: 1, strength }))
            }
            None => {
                check::closed_form(&self)?;
                let context = *self.context.get_or_insert(1);
                (None, Some(LayerSettings { context, strength: *self.strength.get_or_insert(0.5) }))
            }
        };
        Ok(ResolvedRecipe { file: self, min_turns, held_out, evaluates, select, steps, layer })
    }

    fn resolve_steps(
        &mut self,
        training: &StepTraining,
        layers: usize,
        max_tokens: usize,
    ) -> Result<StepSettings> {
        check::auxiliary(self)?;
        check::strength(self)?;
        let given = check::of_objectives(self)?;
        check::selector(self)?;
        let (main, read) = self.read_settings(training, max_tokens, false);
        check::none_foreign(self.objective.name(), given, &read)?;
        if self.steps.is_none() {
            self.warm_up.get_or_insert(training.warm_up);
        }
        let corpora = if training.per_corpus { self.corpus.len().max(1) as u64 } else { 1 };
        let steps = *self.steps.get_or_insert(corpora * training.steps);
        if self.auxiliary.is_none() && !training.auxiliary.is_empty() {
            self.auxiliary = Some(training.auxiliary.iter().copied().collect());
        }
        let auxiliary = self.auxiliary.iter().flatten().filter(|(_, weight)| **weight > 0.0);
        let auxiliary = auxiliary
            .map(|(objective, weight)| self.auxiliary_settings(*objective, *weight, max_tokens))
            .collect::<Result<Vec<AuxiliarySettings>>>()?;
        let plan = Plan {
            batch: *self.batch.get_or_insert(training.batch),
            parts: self.parts,
            rate: *self.learning_rate.get_or_insert(training.learning_rate),
            schedule: Schedule { shape: self.schedule, warm_up: *self.warm_up.get_or_insert(0), steps },
            optimizer: optimizer::Settings {
                decay: self.weight_decay as f32,
                ..optimizer::Settings::default()
            },
            clip: (self.clip > 0.0).then_some(self.clip),
            dropout: self.dropout as f32,
            seed: self.seed,
        };
        let frozen_layers = if training.freezes_half { layers / 2 } else { 0 };
        let settings = StepSettings {
            main,
            auxiliary,
            plan,
            frozen_layers: *self.frozen_layers.get_or_insert(frozen_layers),
            merge_turns: *self.merge_turns.get_or_insert(training.merge_turns),
            evaluate_every: *self.evaluate_every.get_or_insert(steps.div_ceil(5)),
        };
        check::steps(self, training, &settings)?;
        if let Some(selector) = &self.selector {
            selector.settings(self.max_tokens.unwrap_or(max_tokens)).check(max_tokens)?;
        }
        Ok(settings)
    }

    /// Reads the settings of an objective. Returns the builder of the objective, and the names of the settings that the
    /// objective read through [`Given`].
    fn read_settings(
        &mut self,
        training: &StepTraining,
        max_tokens: usize,
        is_auxiliary: bool,
    ) -> (ObjectiveBuilder, Vec<&'static str>) {
        let tokens = match training.as_auxiliary {
            Some((_, tokens)) if is_auxiliary => tokens,
            _ => training.max_tokens,
        };
        let has_max_tokens = self.max_tokens.is_some();
        let max_tokens = self.max_tokens.unwrap_or(tokens).min(max_tokens);
        self.max_tokens = Some(max_tokens);
        let temperature = *self.temperature.get_or_insert(training.temperature);
        let mut given =
            Given { recipe: self, is_auxiliary, temperature, max_tokens, has_max_tokens, read: Vec::new() };
        let settings = (training.settings)(&mut given);
        (settings, given.read)
    }

    /// Returns the settings of an auxiliary objective: the given weight, and defaults for all other settings.
    fn auxiliary_settings(
        &self,
        objective: ObjectiveName,
        weight: f64,
        max_tokens: usize,
    ) -> Result<AuxiliarySettings> {
        let Some(training) = &objective.definition().steps else {
            return Err(Error::Internal(format!("{} has no steps", objective.name())));
        };
        let mut own = Recipe::new(objective, self.model.clone(), self.corpus.clone());
        let (builder, _) = own.read_settings(training, max_tokens, true);
        let batch = training.as_auxiliary.map_or(training.batch, |(batch, _)| batch);
        Ok(AuxiliarySettings { objective, builder, weight, batch })
    }
}
