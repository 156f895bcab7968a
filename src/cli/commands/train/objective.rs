//! Creates the training objective of a recipe.

use super::{corpus::Read, mined, teacher};
use crate::cli::Context;
use turnwise_core::error::Result;
use turnwise_encoder::DeviceChoice;
use turnwise_train::{
    data::TrainingSet,
    model::Trainable,
    objectives::{Group, HardNegatives, Objective, Setup, Sources},
    recipe::{ResolvedRecipe, StepSettings},
};

/// Creates the main objective and its auxiliary ones.
pub(super) fn of(
    (recipe, steps): (&ResolvedRecipe, &StepSettings),
    data: &TrainingSet,
    read: &Read,
    model: &Trainable,
    device: DeviceChoice,
    context: &Context<'_>,
) -> Result<Box<dyn Objective>> {
    let sources = RunSources { recipe, data, read, model, device, context };
    steps.create(&Setup { model, data, seed: recipe.seed, sources: &sources })
}

/// Computes inputs of objectives, with progress bars.
struct RunSources<'a> {
    recipe: &'a ResolvedRecipe,
    data: &'a TrainingSet,
    read: &'a Read,
    model: &'a Trainable,
    device: DeviceChoice,
    context: &'a Context<'a>,
}

impl Sources for RunSources<'_> {
    fn teachers(&self) -> Result<Vec<Group>> {
        teacher::groups(self.recipe, self.data, self.read, self.device, self.context)
    }

    fn hard_negatives(&self, max_tokens: usize) -> Result<HardNegatives> {
        mined::hard(self.recipe.seed, max_tokens, self.data, self.model, self.context)
    }
}
