//! Creates the training objective of a recipe.

use super::{
    corpus::Corpora,
    observer::{self, Progress, RunObserver, Stage},
    teacher,
};
use crate::{
    data::TrainingSet,
    model::Trainable,
    objectives::{Group, HardNegatives, MiningSettings, Objective, Setup, Sources, turns_of},
    recipe::{ResolvedRecipe, StepSettings},
};
use turnwise_core::{error::Result, numbers::counted, random::Random};
use turnwise_encoder::{DeviceChoice, hub::Places};

/// Largest number of utterances that are searched for hard negatives. Other utterances get random negatives.
const MOST: usize = 65_536;

/// Creates the main objective, combined with its auxiliary objectives.
pub(super) fn of(
    (recipe, steps): (&ResolvedRecipe, &StepSettings),
    data: &TrainingSet,
    corpora: &Corpora,
    model: &Trainable,
    (device, models): (DeviceChoice, &Places),
    observer: &dyn RunObserver,
) -> Result<Box<dyn Objective>> {
    let sources = RunSources { recipe, data, corpora, model, device, models, observer };
    steps.create(&Setup { model, data, seed: recipe.seed, sources: &sources })
}

/// Computes the teachers and hard negatives that some objectives need, and reports the progress.
struct RunSources<'a> {
    recipe: &'a ResolvedRecipe,
    data: &'a TrainingSet,
    corpora: &'a Corpora,
    model: &'a Trainable,
    device: DeviceChoice,
    models: &'a Places,
    observer: &'a dyn RunObserver,
}

impl Sources for RunSources<'_> {
    fn teachers(&self) -> Result<Vec<Group>> {
        teacher::groups(self.recipe, self.data, self.corpora, (self.device, self.models), self.observer)
    }

    /// Candidates are the nearest neighbors by the vectors of the base model and by BM25.
    fn hard_negatives(&self, max_tokens: usize) -> Result<HardNegatives> {
        let RunSources { recipe, data, model, observer, .. } = *self;
        let mut chosen = turns_of(data, 2);
        Random::new(recipe.seed, 5).shuffle(&mut chosen);
        chosen.truncate(MOST);
        observer.progress(&Progress::of(Stage::Mining, 0, chosen.len()));
        let settings = MiningSettings::default();
        let hard = HardNegatives::mine(model, data, &chosen, max_tokens, settings, &mut |done| {
            observer.progress(&Progress::of(Stage::Mining, done, chosen.len()));
            observer::check(observer, Some("nothing was trained yet"))
        })?;
        observer.note(&format!(
            "hard negatives for {} of {}",
            counted(hard.len() as u64, "text"),
            counted(chosen.len() as u64, "utterance")
        ));
        Ok(hard)
    }
}
