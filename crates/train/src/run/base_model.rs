//! The base model of a run.

use std::path::Path;

use super::observer::RunObserver;
use crate::{
    objectives::Output,
    recipe::{Recipe, ResolvedRecipe},
};
use turnwise_core::{
    error::{Error, Result},
    files,
};
use turnwise_encoder::{
    Fingerprint, Network,
    folder::{Additions, Architecture, ModelFolder, Pipeline, PoolingMode, Step, save_extended},
    hub::{Places, resolve},
    selector::{EOU, SENTENCE_SEGMENTS, StartSelector},
    statics,
};

/// Subfolder of a run for a copy of the base model with more special tokens. It exists only if the recipe needs tokens
/// that the base model does not have.
pub(super) const START: &str = "start";

/// A base model that suits the recipe.
pub(super) struct BaseModel {
    pub(super) name: String,
    /// Repository of the model on the Hugging Face Hub, if known.
    pub(super) repository: Option<String>,
    pub(super) folder: ModelFolder,
    /// The other parts of the base model if it is a selector, which is trained further.
    pub(super) selector: Option<StartSelector>,
}

impl BaseModel {
    /// Opens the base model of a recipe, and resolves the recipe with it. Returns an error if the model does not exist
    /// or cannot be trained.
    pub(super) fn open(mut recipe: Recipe, models: &Places) -> Result<(Self, ResolvedRecipe)> {
        let model = &recipe.model;
        let found = resolve(model, models).map_err(|e| match Recipe::that_leaves(model) {
            None => e,
            Some(name) => Error::input(format!("base model not found: {model}")).with_hint(format!(
                "create it first, with the same --data: `turnwise train {name} -o runs/{name}`"
            )),
        })?;
        if statics::is_static(&found.path) {
            let name = &found.name;
            return Err(Error::input(format!("{name} is a static encoder, which has no layers to train"))
                .with_hint("use a transformer, such as all-MiniLM-L6-v2"));
        }
        let start = match recipe.objective.definition().output {
            Output::Selector => StartSelector::open(&found.path)?,
            Output::Encoder => None,
        };
        let (folder, mut selector) = match start {
            Some((folder, selector)) => (folder, Some(selector)),
            None => (ModelFolder::open(&found.path)?, None),
        };
        let architecture = folder.config().architecture;
        if !architecture.is_trainable() {
            let trainable = Architecture::ALL.into_iter().filter(|architecture| architecture.is_trainable());
            let trainable: Vec<&str> = trainable.map(Architecture::name).collect();
            return Err(Error::input(format!(
                "{model} has the architecture {}, which cannot be trained; it can only encode",
                architecture.name()
            ))
            .with_hint(format!("use a model with one of these architectures: {}", trainable.join(", "))));
        }
        if let Some(StartSelector { settings, .. }) = &selector {
            recipe.selector = Some(recipe.selector.unwrap_or_default().continuing(settings)?);
            recipe.max_tokens.get_or_insert(settings.max_tokens);
        }
        if recipe.objective.definition().steps.is_some() && has_a_layer(&folder) {
            return Err(Error::input(format!("{model} has a dense layer after pooling, which cannot be trained"))
                .with_hint(
                "use a model with mean pooling and no dense layer, such as all-MiniLM-L6-v2; a `context-cca` layer is \
                 added after training, with --context-layer or a separate run",
            ));
        }
        let steps = recipe.objective.definition().steps.as_ref();
        let max_tokens = match steps.is_some_and(|steps| steps.all_positions) {
            true => folder.config().max_tokens(),
            false => folder.pipeline().max_tokens,
        };
        let recipe = recipe.resolve(folder.config().layers, max_tokens)?;
        // Both networks of a selector have the same shape.
        if let Some(network) = selector.as_mut().and_then(|selector| selector.sentence_network.as_mut())
            && recipe.has_sentence_segment()
        {
            network.add_segments(SENTENCE_SEGMENTS);
        }
        Ok((BaseModel { name: found.name, repository: found.repository, folder, selector }, recipe))
    }

    /// Returns the separate network for sentence vectors of a selector that is trained further; `None` if there is none.
    pub(super) fn sentence_network(&self) -> Option<&Network> {
        self.selector.as_ref()?.sentence_network.as_ref()
    }

    /// Returns the fingerprint of the base model.
    pub(super) fn fingerprint(&self) -> Result<Fingerprint> {
        match &self.selector {
            Some(selector) => Ok(selector.fingerprint),
            None => self.folder.fingerprint(),
        }
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

/// Returns the model that the steps start from: the base model, or a copy with the special tokens and segments that the
/// recipe needs and the base model does not have.
pub(super) fn start_model(
    BaseModel { folder: base, selector, .. }: &BaseModel,
    run_folder: &Path,
    recipe: &ResolvedRecipe,
    observer: &dyn RunObserver,
) -> Result<ModelFolder> {
    let is_selector = selector.is_some();
    let additions = Additions {
        separator: recipe.divides_turns(),
        token: recipe.ends_utterances().then_some(EOU),
        segments: if recipe.has_sentence_segment() { SENTENCE_SEGMENTS } else { 0 },
    };
    let unchanged = || match is_selector {
        true => ModelFolder::open_scorer(base.path()),
        false => ModelFolder::open(base.path()),
    };
    if additions == Additions::default() {
        return unchanged();
    }
    let start = run_folder.join(START);
    files::remove_folder(&start)?;
    let model = &recipe.file.model;
    let Some(added) = save_extended(base, model, additions, &start)? else {
        return unchanged();
    };
    let is_fixed = recipe.steps.as_ref().is_some_and(|steps| steps.frozen_layers > 0);
    let fixed = if is_fixed { " with a fixed random vector (--frozen-layers 0 trains it)" } else { "" };
    if let Some((token, is_new)) = &added.separator {
        let new = if *is_new { format!(", a new token{fixed}") } else { String::new() };
        observer.note(&format!("{model} has no turn separator; turns are separated by {token}{new}"));
    }
    if added.token {
        observer.note(&format!("every turn ends with {EOU}, a new token{fixed}"));
    }
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
