//! The default model where it can be had, else an encoder that is fitted on the dialogues themselves.

use std::path::{Path, PathBuf};

use crate::cli::{Context, commands::model, encoders};
use turnwise_core::error::{Class, Result};
use turnwise_encoder::{
    Encoder,
    statics::{self, TfidfSettings},
    transformer::Settings,
};
use turnwise_store::Snapshot;

/// Where an encoder is kept that was fitted on the dialogues of an index.
fn beside(root: &Path) -> PathBuf {
    let mut name = root.file_name().unwrap_or_default().to_owned();
    name.push("-tfidf-svd");
    root.with_file_name(name)
}

/// Fetches the default model unless it is here.
pub(super) fn fetched(context: &Context<'_>) -> Result<()> {
    let name = encoders::DEFAULT_MODEL;
    match context.model(name) {
        Ok(_) => Ok(()),
        Err(_) => model::fetch(name, context),
    }
}

/// An encoder for whoever asked for none.
pub(super) struct Model {
    pub(super) encoder: Box<dyn Encoder>,
    pub(super) name: String,
    /// Which it is, and why.
    pub(super) said: String,
}

impl Model {
    /// The default model if it is here or can be fetched, else one that is fitted on the dialogues themselves.
    pub(super) fn best(root: &Path, snapshot: &Snapshot, context: &Context<'_>) -> Result<Self> {
        let name = encoders::DEFAULT_MODEL;
        match fetched(context) {
            Ok(()) => {
                let encoder = encoders::open(context, name, &Settings::default())?;
                let said = format!("Vectors by {name}, the default model ({}).", encoder.describe());
                Ok(Model { encoder, name: name.to_owned(), said })
            }
            Err(e) if e.class() == Class::Interrupted => Err(e),
            Err(why) => {
                let folder = beside(root);
                let documents = snapshot.dialogues().collect::<Result<Vec<_>>>()?;
                let fitted = statics::fit_tfidf(
                    documents.iter().map(statics::document),
                    &TfidfSettings { seed: context.settings.seed, ..TfidfSettings::default() },
                )?;
                fitted.save(&folder)?;
                let said = format!(
                    "Vectors by TF-IDF and SVD, fitted on these dialogues, because {name} cannot be had: {why}. \
                     `turnwise model pull` fetches it."
                );
                Ok(Model { encoder: Box::new(fitted), name: folder.display().to_string(), said })
            }
        }
    }
}
