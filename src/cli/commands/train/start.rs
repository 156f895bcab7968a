//! The base model of a run.

use crate::cli::Context;
use turnwise_core::error::{Error, Result};
use turnwise_encoder::{
    folder::{ModelFolder, PoolingMode, Step},
    statics,
};
use turnwise_train::recipe::{Recipe, ResolvedRecipe};

/// A base model that is checked for a recipe.
pub(super) struct Start {
    pub(super) name: String,
    /// Repository on the hub, if known.
    pub(super) repository: Option<String>,
    pub(super) folder: ModelFolder,
}

impl Start {
    /// Opens the base model, and resolves the recipe with defaults that suit it. Returns an error if the model cannot be
    /// trained.
    pub(super) fn of(recipe: Recipe, context: &Context<'_>) -> Result<(Self, ResolvedRecipe)> {
        let found = context.model(&recipe.model).map_err(|e| match Recipe::that_leaves(&recipe.model) {
            None => e,
            Some(name) => Error::input(format!("base model not found: {}", recipe.model))
                .with_hint(format!("create it first: `turnwise train {name} -o runs/{name}`")),
        })?;
        if statics::is_static(&found.path) {
            return Err(Error::input(format!(
                "{} is a static encoder, which has no layers to train",
                found.name
            ))
            .with_hint("use a transformer, such as all-MiniLM-L6-v2"));
        }
        let folder = ModelFolder::open(&found.path)?;
        if recipe.objective.definition().steps().is_some() && has_a_layer(&folder) {
            return Err(Error::input(format!(
                "{} has a dense layer after pooling, which cannot be trained",
                recipe.model
            ))
            .with_hint(
                "use a model with mean pooling and no dense layer, such as all-MiniLM-L6-v2; a `surroundings` layer is \
                 added after training, with --layer or a separate run",
            ));
        }
        let recipe = recipe.resolve(folder.config().layers, folder.max_tokens())?;
        Ok((Start { name: found.name, repository: found.repository, folder }, recipe))
    }

    /// Reports differences between the base model and what is trained.
    pub(super) fn report(&self, recipe: &ResolvedRecipe, context: &Context<'_>) {
        let name = &recipe.model;
        if recipe.steps().is_none() {
            if has_a_layer(&self.folder) {
                context
                    .printer
                    .say(format!("{name} already has a dense layer; the new layer is added after it"));
            }
            return;
        }
        let modes = &self.folder.pipeline().pooling.modes;
        if *modes != [PoolingMode::Mean] {
            let modes: Vec<&str> = modes.iter().map(|mode| mode.name()).collect();
            context.printer.warn(format!(
                "{name} uses {} pooling; it is trained and saved with mean pooling",
                modes.join(" and ")
            ));
        }
    }
}

fn has_a_layer(folder: &ModelFolder) -> bool {
    folder.pipeline().steps.iter().any(|step| matches!(step, Step::Dense(_)))
}
