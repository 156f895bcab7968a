//! Picks an encoder: the default model if it is available, else TF-IDF with SVD fitted on the dialogues.

use crate::cli::{commands::model, encoders, prelude::*};
use turnwise_core::error::Class;
use turnwise_encoder::{
    Encoder,
    statics::{self, TfidfSettings},
    transformer::Settings,
};
use turnwise_store::Snapshot;

/// Returns the folder for an encoder that is fitted on the dialogues of an index. This folder is next to the index
/// folder `root`.
fn fitted_folder(root: &Path) -> PathBuf {
    let mut name = root.file_name().unwrap_or_default().to_owned();
    name.push("-tfidf-svd");
    root.with_file_name(name)
}

/// Downloads the default model unless it is installed.
pub(super) fn fetch_default(context: &Context<'_>) -> Result<()> {
    let name = encoders::DEFAULT_MODEL;
    match context.model(name) {
        Ok(_) => Ok(()),
        Err(_) => model::fetch(name, context),
    }
}

/// An open encoder with its name.
pub(super) struct Model {
    pub(super) encoder: Box<dyn Encoder>,
    pub(super) name: String,
    /// Description of the encoder for the user. If the encoder is not the default model, the description gives the
    /// reason.
    pub(super) note: String,
}

impl Model {
    /// Returns the default model if it is installed or can be downloaded. Otherwise fits an encoder on the dialogues
    /// and saves it next to the index.
    pub(super) fn best(root: &Path, snapshot: &Snapshot, context: &Context<'_>) -> Result<Self> {
        let name = encoders::DEFAULT_MODEL;
        match fetch_default(context) {
            Ok(()) => {
                let encoder = encoders::open(context, name, &Settings::default())?;
                let note = format!("Vectors by {name}, the default model ({}).", encoder.describe());
                Ok(Model { encoder, name: name.to_owned(), note })
            }
            Err(e) if e.class() == Class::Interrupted => Err(e),
            Err(why) => {
                let folder = fitted_folder(root);
                let documents = snapshot.dialogues().collect::<Result<Vec<_>>>()?;
                let fitted = statics::fit_tfidf(
                    documents.iter().map(statics::document),
                    &TfidfSettings { seed: context.settings.seed, ..TfidfSettings::default() },
                )?;
                fitted.save(&folder)?;
                let note = format!(
                    "Vectors by TF-IDF and SVD, fitted on these dialogues, because {name} is not available: {why}. \
                     `turnwise model pull` fetches it."
                );
                Ok(Model { encoder: Box::new(fitted), name: folder.display().to_string(), note })
            }
        }
    }
}
