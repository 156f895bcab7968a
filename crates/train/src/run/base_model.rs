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

/// Subfolder of a run for a copy of the base model with a turn separator. It exists only if turns need a separator and
/// the base model has none.
pub(super) const START: &str = "start";

/// A base model that suits the recipe.
pub(super) struct BaseModel {
    pub(super) name: String,
    /// Repository of the model on the Hugging Face Hub, if known.
    pub(super) repository: Option<String>,
    pub(super) folder: ModelFolder,
}

impl BaseModel {
    /// Opens the base model of a recipe, and resolves the recipe with it. Returns an error if the model does not exist
    /// or cannot be trained.
    pub(super) fn open(recipe: Recipe, models: &Places) -> Result<(Self, ResolvedRecipe)> {
        let model = &recipe.model;
        let found = resolve(model, models).map_err(|e| match Recipe::that_leaves(model) {
            None => e,
            Some(name) => Error::input(format!("base model not found: {model}"))
                .with_hint(format!("create it first: `turnwise train {name} -o runs/{name}`")),
        })?;
        if statics::is_static(&found.path) {
            let name = &found.name;
            return Err(Error::input(format!("{name} is a static encoder, which has no layers to train"))
                .with_hint("use a transformer, such as all-MiniLM-L6-v2"));
        }
        let folder = ModelFolder::open(&found.path)?;
        if recipe.objective.definition().steps.is_some() && has_a_layer(&folder) {
            return Err(Error::input(format!("{model} has a dense layer after pooling, which cannot be trained"))
                .with_hint(
                "use a model with mean pooling and no dense layer, such as all-MiniLM-L6-v2; a `context-cca` layer is \
                 added after training, with --context-layer or a separate run",
            ));
        }
        let recipe = recipe.resolve(folder.config().layers, folder.pipeline().max_tokens)?;
        Ok((BaseModel { name: found.name, repository: found.repository, folder }, recipe))
    }

    /// Notifies the observer if the base model already has a dense layer, or if mean pooling replaces its pooling.
    pub(super) fn report(&self, recipe: &ResolvedRecipe, observer: &dyn RunObserver) {
        let name = &recipe.file.model;
        if recipe.steps.is_none() {
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

/// Returns the model that the steps start from: the base model, or a copy with a turn separator if the recipe needs a
/// separator and the base model has none.
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
    let Some((token, is_new)) = save_divided(base, &recipe.file.model, &start)? else {
        return ModelFolder::open(base.path());
    };
    let new = match (is_new, recipe.steps.as_ref().map(|steps| steps.frozen_layers)) {
        (false, _) => "",
        (true, Some(0)) => ", a new token",
        (true, _) => ", a new token with a fixed random vector (--frozen-layers 0 trains it)",
    };
    let model = &recipe.file.model;
    observer.note(&format!("{model} has no turn separator; turns are separated by {token}{new}"));
    ModelFolder::open(&start)
}

/// Returns the pipeline of a model that is trained by steps: the pipeline of the base model, but with mean pooling.
pub(super) fn trained_pipeline(base: &ModelFolder) -> Result<Pipeline> {
    let mut pipeline = base.pipeline().clone();
    pipeline.pooling.modes = vec![PoolingMode::Mean];
    // Mean pooling during training includes the tokens of the prompt.
    pipeline.pooling.include_prompt |= !pipeline.prompts.text(None)?.is_empty();
    Ok(pipeline)
}

fn has_a_layer(folder: &ModelFolder) -> bool {
    folder.pipeline().steps.iter().any(|step| matches!(step, Step::Dense(_)))
}
