//! The base model of a run.

use std::path::Path;

use super::observer::RunObserver;
use crate::recipe::{Recipe, ResolvedRecipe};
use turnwise_core::{
    error::{Error, Result},
    files,
};
use turnwise_encoder::{
    folder::{ModelFolder, Pipeline, PoolingMode, Step, save_divided},
    hub::{Places, resolve},
    statics,
};

/// Subfolder of a run for the base model with an added separator token. It exists only if the base model has no
/// separator and turns need one.
pub(super) const START: &str = "start";

/// A base model that suits the recipe.
pub(super) struct BaseModel {
    pub(super) name: String,
    /// Repository on the hub, if known.
    pub(super) repository: Option<String>,
    pub(super) folder: ModelFolder,
}

impl BaseModel {
    /// Opens the base model and resolves the recipe for it. Returns an error if the model does not exist or cannot be
    /// trained.
    pub(super) fn open(recipe: Recipe, models: &Places) -> Result<(Self, ResolvedRecipe)> {
        let found = resolve(&recipe.model, models).map_err(|e| match Recipe::that_leaves(&recipe.model) {
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
        let recipe = recipe.resolve(folder.config().layers, folder.pipeline().max_tokens)?;
        Ok((BaseModel { name: found.name, repository: found.repository, folder }, recipe))
    }

    /// Reports how the trained model will differ from the base model, such as a different pooling.
    pub(super) fn report(&self, recipe: &ResolvedRecipe, observer: &dyn RunObserver) {
        let name = &recipe.model;
        if recipe.steps().is_none() {
            if has_a_layer(&self.folder) {
                observer.note(&format!("{name} already has a dense layer; the new layer is added after it"));
            }
            return;
        }
        let modes = &self.folder.pipeline().pooling.modes;
        if *modes != [PoolingMode::Mean] {
            let modes: Vec<&str> = modes.iter().map(|mode| mode.name()).collect();
            observer.warn(&format!(
                "{name} uses {} pooling; it is trained and saved with mean pooling",
                modes.join(" and ")
            ));
        }
    }
}

/// Returns the model to start from: the base model, with an added separator token if turns need one and it has none.
pub(super) fn with_separator(
    base: &ModelFolder,
    run_folder: &Path,
    recipe: &ResolvedRecipe,
    observer: &dyn RunObserver,
) -> Result<ModelFolder> {
    if !recipe.divides_turns() {
        return ModelFolder::open(base.path());
    }
    let start = run_folder.join(START);
    files::remove_folder(&start)?;
    let Some((token, is_new)) = save_divided(base, &recipe.model, &start)? else {
        return ModelFolder::open(base.path());
    };
    let new = match (is_new, recipe.steps().map(|steps| steps.frozen_layers)) {
        (false, _) => "",
        (true, Some(0)) => ", a new token",
        (true, _) => ", a new token with a fixed random vector (--frozen-layers 0 trains it)",
    };
    let model = &recipe.model;
    observer.note(&format!("{model} has no turn separator; turns are separated by {token}{new}"));
    ModelFolder::open(&start)
}

/// Returns the pipeline around a network trained by steps.
pub(super) fn trained_pipeline(base: &ModelFolder) -> Result<Pipeline> {
    let mut pipeline = base.pipeline().clone();
    pipeline.pooling.modes = vec![PoolingMode::Mean];
    // Mean pooling was trained over all tokens, including those of a prompt.
    pipeline.pooling.include_prompt |= !pipeline.prompts.text(None)?.is_empty();
    Ok(pipeline)
}

fn has_a_layer(folder: &ModelFolder) -> bool {
    folder.pipeline().steps.iter().any(|step| matches!(step, Step::Dense(_)))
}
