//! The model that training begins with.

use crate::cli::Context;
use turnwise_core::error::{Error, Result};
use turnwise_encoder::{
    folder::{ModelFolder, PoolingMode, Step},
    statics,
};
use turnwise_train::recipe::{ObjectiveName, Recipe};

/// A model that can be trained as a recipe has it.
pub(super) struct Start {
    pub(super) name: String,
    /// Its repository on the hub, if it has one.
    pub(super) repository: Option<String>,
    pub(super) folder: ModelFolder,
}

impl Start {
    /// The model of a recipe, to which it adds what was not given; refuses what cannot be trained so.
    pub(super) fn of(recipe: &mut Recipe, context: &Context<'_>) -> Result<Self> {
        let found = context.model(&recipe.model).map_err(|e| match Recipe::that_leaves(&recipe.model) {
            None => e,
            Some(name) => {
                Error::input(format!("the model that this begins with is not there: {}", recipe.model))
                    .with_hint(format!("make it first: `turnwise train {name} -o runs/{name}`"))
            }
        })?;
        if statics::is_static(&found.path) {
            return Err(Error::input(format!(
                "{} is a static encoder, which has no layers to train",
                found.name
            ))
            .with_hint("begin with a transformer, such as all-MiniLM-L6-v2"));
        }
        let folder = ModelFolder::open(&found.path)?;
        if by_steps(recipe) && has_a_layer(&folder) {
            return Err(Error::input(format!(
                "{} has a dense layer behind its tokens, which is not trained here",
                recipe.model
            ))
            .with_hint(
                "begin with a model whose vectors are the mean of its tokens, such as all-MiniLM-L6-v2; a layer of \
                 surroundings is put behind what was trained, by --layer or a run of its own",
            ));
        }
        recipe.complete(folder.config().layers, folder.max_tokens())?;
        Ok(Start { name: found.name, repository: found.repository, folder })
    }

    /// Tells what is trained where it is not what the model does.
    pub(super) fn tell(&self, recipe: &Recipe, context: &Context<'_>) {
        let name = &recipe.model;
        if !by_steps(recipe) {
            if has_a_layer(&self.folder) {
                context.printer.say(format!(
                    "{name} has a layer behind its tokens already; this one stands behind that"
                ));
            }
            return;
        }
        let modes = &self.folder.pipeline().pooling.modes;
        if *modes != [PoolingMode::Mean] {
            let modes: Vec<&str> = modes.iter().map(|mode| mode.name()).collect();
            context.printer.warn(format!(
                "{name} pools its tokens by {}; it is trained, and saved, to pool by their mean",
                modes.join(" and ")
            ));
        }
    }
}

fn by_steps(recipe: &Recipe) -> bool {
    recipe.objective != ObjectiveName::Surroundings
}

fn has_a_layer(folder: &ModelFolder) -> bool {
    folder.pipeline().steps.iter().any(|step| matches!(step, Step::Dense(_)))
}
