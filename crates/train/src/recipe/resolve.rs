//! Resolution of a recipe: typed settings with all defaults.

use std::path::PathBuf;

use super::{Aggregation, DevTask, ObjectiveName, Profile, Recipe, check};
use crate::{
    data::Preprocessing,
    objectives::{
        Auxiliary, MultiTask, Objective, ObjectiveBuilder, Setup,
        definition::{Frozen, StepTraining, Steps, Training},
    },
    optimizer,
    run::evaluations::Selection,
    schedule::{Schedule, Shape},
    trainer::Plan,
};
use turnwise_core::error::{Error, Result};

/// Default number of held-out dialogues.
const HELD_OUT: usize = 400;

/// A valid recipe, in which every setting has a value.
#[derive(Debug)]
pub struct ResolvedRecipe {
    /// These settings as a [`Recipe`], which is saved in the folder of the run.
    pub file: Recipe,
    /// Main objective.
    pub objective: ObjectiveName,
    /// Base model: a folder or a name.
    pub model: String,
    /// Training dialogues: indexes, files and folders.
    pub corpus: Vec<PathBuf>,
    /// Random seed of the run.
    pub seed: u64,
    /// Removes the nickname of the addressee at the start of utterances (IRC).
    pub strip_nicks: bool,
    /// Minimum number of turns of a dialogue.
    pub min_turns: usize,
    /// Number of dialogues to use; `None` for all.
    pub dialogues: Option<usize>,
    /// Labeled tasks that evaluate the model.
    pub dev: Vec<DevTask>,
    /// Maximum number of held-out dialogues.
    pub held_out: usize,
    /// True if the model is evaluated during training.
    pub evaluates: bool,
    /// Criterion that selects the step whose model is kept.
    pub select: Selection,
    /// Training method, with its settings.
    pub method: Method,
}

/// Training method.
#[derive(Debug)]
pub enum Method {
    /// The encoder is trained with gradient steps.
    Steps(StepSettings),
    /// A linear layer is computed in closed form and appended to the encoder.
    Layer(LayerSettings),
}

/// Settings of a layer in closed form.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerSettings {
    /// Number of context turns on each side of an utterance.
    pub context: usize,
    /// Weight of the context, from 0 to 1.
    pub strength: f64,
}

/// Settings of training with gradient steps. See [`Recipe`] for the fields.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct StepSettings {
    /// Settings of the main objective.
    pub main: ObjectiveBuilder,
    /// Settings of the auxiliary objectives.
    pub auxiliary: Vec<AuxiliarySettings>,
    pub steps: u64,
    pub batch: usize,
    pub parts: usize,
    pub learning_rate: f64,
    pub schedule: Shape,
    pub warm_up: u64,
    pub weight_decay: f64,
    pub clip: f64,
    pub dropout: f64,
    pub frozen_layers: usize,
    pub merge_turns: bool,
    pub checkpoint_every: u64,
    /// Number of steps between evaluations; 0 disables them.
    pub evaluate_every: u64,
    pub patience: usize,
    /// The layer that is appended to the trained encoder.
    pub layer: Option<LayerSettings>,
}

/// Settings of an auxiliary objective.
#[derive(Debug)]
pub struct AuxiliarySettings {
    /// Name of the objective.
    pub objective: ObjectiveName,
    /// Settings of the auxiliary objective.
    pub settings: ObjectiveBuilder,
    /// Weight of its loss in the sum of the losses.
    pub weight: f64,
    /// Number of examples of this objective per step.
    pub batch: usize,
}

impl ResolvedRecipe {
    /// Settings of the layer in closed form; `None` if no layer is learned.
    pub fn layer(&self) -> Option<LayerSettings> {
        match &self.method {
            Method::Steps(steps) => steps.layer,
            Method::Layer(layer) => Some(*layer),
        }
    }

    /// Settings of the training steps; `None` if the run only learns a layer in closed form.
    pub fn steps(&self) -> Option<&StepSettings> {
        match &self.method {
            Method::Steps(steps) => Some(steps),
            Method::Layer(_) => None,
        }
    }

    /// Returns true if an input sequence can contain several turns. The turns then need a separator token.
    pub fn divides_turns(&self) -> bool {
        let auxiliary = self.steps().into_iter().flat_map(|steps| &steps.auxiliary);
        let mut all = auxiliary.map(|auxiliary| auxiliary.objective).chain([self.objective]);
        all.any(|objective| objective.definition().steps().is_some_and(|steps| steps.several_turns))
    }
}

impl StepSettings {
    /// Creates the main objective, combined with its auxiliary objectives. Returns an error if the data or the model
    /// does not suit one of them.
    pub fn create(&self, setup: &Setup<'_>) -> Result<Box<dyn Objective>> {
        let main = self.main.build(setup)?;
        let of = |auxiliary: &AuxiliarySettings| -> Result<Auxiliary> {
            let AuxiliarySettings { settings, weight, batch, .. } = auxiliary;
            Ok(Auxiliary { objective: settings.build(setup)?, weight: *weight, batch: *batch })
        };
        let auxiliary = self.auxiliary.iter().map(of).collect::<Result<Vec<Auxiliary>>>()?;
        match auxiliary.is_empty() {
            true => Ok(main),
            false => Ok(Box::new(MultiTask::new(main, auxiliary, setup.data)?)),
        }
    }

    /// Preprocessing of the dialogues, which must have at least `min_turns` turns.
    pub fn preprocessing(&self, min_turns: usize) -> Preprocessing {
        Preprocessing { merged: self.merge_turns, turns: min_turns }
    }

    /// Returns the settings of the training loop, for this seed.
    pub fn plan(&self, seed: u64) -> Plan {
        Plan {
            batch: self.batch,
            parts: self.parts,
            rate: self.learning_rate,
            schedule: Schedule { shape: self.schedule, warm_up: self.warm_up, steps: self.steps },
            optimizer: optimizer::Settings {
                decay: self.weight_decay as f32,
                ..optimizer::Settings::default()
            },
            clip: (self.clip > 0.0).then_some(self.clip),
            dropout: self.dropout as f32,
            seed,
        }
    }
}

/// View of a recipe through which an objective reads its settings.
///
/// Reading a missing setting writes its default to the recipe. Settings that are given but never read are rejected.
#[derive(Debug)]
pub struct Given<'r> {
    recipe: &'r mut Recipe,
    is_auxiliary: bool,
    temperature: f64,
    max_tokens: usize,
    read: Vec<&'static str>,
}

impl Given<'_> {
    /// Returns true if the objective is an auxiliary one.
    pub fn is_auxiliary(&self) -> bool {
        self.is_auxiliary
    }

    /// Temperature of the softmax.
    pub fn temperature(&self) -> f64 {
        self.temperature
    }

    /// Maximum number of tokens of a sequence.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Number of context turns.
    pub fn context(&mut self, default: usize) -> usize {
        self.read.push("context");
        *self.recipe.context.get_or_insert(default)
    }

    /// Number of negatives per positive.
    pub fn negatives(&mut self, default: usize) -> usize {
        self.read.push("negatives");
        *self.recipe.negatives.get_or_insert(default)
    }

    /// Number of hard negatives among the negatives.
    pub fn hard_negatives(&mut self, default: usize) -> usize {
        self.read.push("hard_negatives");
        if default > 0 {
            self.recipe.hard_negatives.get_or_insert(default);
        }
        self.recipe.hard_negatives.unwrap_or(default)
    }

    /// Aggregation of the context turns.
    pub fn aggregation(&mut self) -> Aggregation {
        self.read.push("aggregation");
        *self.recipe.aggregation.get_or_insert_default()
    }

    /// dial2vec: maximum distance between matched turns, in turns.
    pub fn window(&mut self, default: usize) -> usize {
        self.read.push("window");
        *self.recipe.window.get_or_insert(default)
    }

    /// dial2vec: whether to follow the paper or its released code.
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
        // Labeled dev tasks replace the label-free evaluation.
        let by_default = if definition.held_out && self.dev.is_empty() && evaluates { HELD_OUT } else { 0 };
        let held_out = *self.held_out.get_or_insert(by_default);
        let min_turns = *self.min_turns.get_or_insert(definition.min_turns);
        let (method, select) = match &definition.training {
            Training::Steps(training) => {
                let select = *self.select.get_or_insert(definition.select);
                (Method::Steps(self.resolve_steps(training, layers, max_tokens)?), select)
            }
            Training::ClosedForm => (Method::Layer(self.resolve_closed_form()?), definition.select),
        };
        Ok(ResolvedRecipe {
            objective: self.objective,
            model: self.model.clone(),
            corpus: self.corpus.clone(),
            seed: self.seed,
            strip_nicks: self.strip_nicks,
            min_turns,
            dialogues: self.dialogues,
            dev: self.dev.clone(),
            held_out,
            evaluates,
            select,
            method,
            file: self,
        })
    }

    fn resolve_closed_form(&mut self) -> Result<LayerSettings> {
        check::closed_form(self)?;
        let context = *self.context.get_or_insert(1);
        Ok(LayerSettings { context, strength: *self.strength.get_or_insert(0.5) })
    }

    fn resolve_steps(
        &mut self,
        training: &StepTraining,
        layers: usize,
        max_tokens: usize,
    ) -> Result<StepSettings> {
        check::auxiliary(self)?;
        check::strength(self)?;
        let given = self.given_by_objective();
        let (main, read) = self.read_settings(training, max_tokens, false);
        check::none_foreign(self.objective.name(), &given, &read)?;
        if self.steps.is_none() {
            self.warm_up.get_or_insert(training.warm_up);
        }
        let steps = *self.steps.get_or_insert(match training.steps {
            Steps::Total(steps) => steps,
            Steps::PerCorpus(steps) => steps * self.corpus.len().max(1) as u64,
        });
        if self.auxiliary.is_none() && !training.auxiliary.is_empty() {
            self.auxiliary = Some(training.auxiliary.iter().copied().collect());
        }
        let auxiliary = self.auxiliary.iter().flatten().filter(|(_, weight)| **weight > 0.0);
        let auxiliary = auxiliary
            .map(|(objective, weight)| self.auxiliary_settings(*objective, *weight, max_tokens))
            .collect::<Result<Vec<AuxiliarySettings>>>()?;
        let layer =
            self.layer.then(|| LayerSettings { context: 1, strength: *self.strength.get_or_insert(0.5) });
        let settings = StepSettings {
            main,
            auxiliary,
            steps,
            batch: *self.batch.get_or_insert(training.batch),
            parts: self.parts,
            learning_rate: *self.learning_rate.get_or_insert(training.learning_rate),
            schedule: self.schedule,
            warm_up: *self.warm_up.get_or_insert(0),
            weight_decay: self.weight_decay,
            clip: self.clip,
            dropout: self.dropout,
            frozen_layers: *self.frozen_layers.get_or_insert(match training.frozen {
                Frozen::Nothing => 0,
                Frozen::Half => layers / 2,
            }),
            merge_turns: *self.merge_turns.get_or_insert(training.merge_turns),
            checkpoint_every: self.checkpoint_every,
            evaluate_every: *self.evaluate_every.get_or_insert(steps.div_ceil(5)),
            patience: self.patience,
            layer,
        };
        check::steps(self, training, &settings)?;
        Ok(settings)
    }

    /// Settings that only some objectives use, and whether the recipe sets them.
    fn given_by_objective(&self) -> [(&'static str, bool); 6] {
        [
            ("context", self.context.is_some()),
            ("aggregation", self.aggregation.is_some()),
            ("hard_negatives", self.hard_negatives.is_some()),
            ("window", self.window.is_some()),
            ("profile", self.profile.is_some()),
            ("negatives", self.negatives.is_some()),
        ]
    }

    /// Reads the settings of the objective. Also returns the names of the settings that the objective uses.
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
        let max_tokens = self.max_tokens.unwrap_or(tokens).min(max_tokens);
        self.max_tokens = Some(max_tokens);
        let temperature = *self.temperature.get_or_insert(training.temperature);
        let mut given = Given { recipe: self, is_auxiliary, temperature, max_tokens, read: Vec::new() };
        let settings = (training.settings)(&mut given);
        (settings, given.read)
    }

    /// Resolves an auxiliary objective. Apart from its weight, it uses the default settings.
    fn auxiliary_settings(
        &self,
        objective: ObjectiveName,
        weight: f64,
        max_tokens: usize,
    ) -> Result<AuxiliarySettings> {
        let Training::Steps(training) = &objective.definition().training else {
            return Err(Error::Internal(format!("{} has no steps", objective.name())));
        };
        let mut own = Recipe::new(objective, self.model.clone(), self.corpus.clone());
        let (settings, _) = own.read_settings(training, max_tokens, true);
        let batch = training.as_auxiliary.map_or(training.batch, |(batch, _)| batch);
        Ok(AuxiliarySettings { objective, settings, weight, batch })
    }
}
