//! Opens encoders by the name or folder of a model, such as the value of `--model`.

use std::collections::BTreeMap;

use crate::cli::prelude::*;
use turnwise_encoder::{
    DialogueMode, DialogueOptions, DialoguePooling, Encoder, TextOptions, Vectors, ahead::Options,
    hub::known::DEFAULT, open, statics, transformer::Settings,
};
use turnwise_shards::vector_files::{self, VectorFileFormat};

/// Name of the model to use if none is given.
pub(crate) const DEFAULT_MODEL: &str = DEFAULT;

/// Function that opens an encoder by the name of its model, with the given settings.
pub(crate) type Open<'a> = &'a dyn Fn(&str, &Settings) -> Result<Box<dyn Encoder>>;

/// Opens an encoder by the name or folder of its model. Never uses the network.
pub(crate) fn open(context: &Context<'_>, model: &str, settings: &Settings) -> Result<Box<dyn Encoder>> {
    let found = context.model(model)?;
    let encoder = open::open(&found.name, &found.path, settings)?;
    encoder.notices().iter().for_each(|notice| context.printer.warn(format!("{}: {notice}", found.name)));
    context.printer.detail(format!("{} from {}: {}", found.name, found.path.display(), encoder.describe()));
    Ok(encoder)
}

/// Whether a model is static: without a neural network. Static models have no choice of precision.
pub(crate) fn is_static(context: &Context<'_>, model: &str) -> Result<bool> {
    Ok(statics::is_static(&context.model(model)?.path))
}

/// Writes vectors to a NumPy file, and the row numbers, from 1, to its file of ids.
pub(crate) fn write_npy(path: &Path, vectors: &Vectors) -> Result<()> {
    let mut sink = vector_files::create(path, VectorFileFormat::Npy, vectors.dim(), &BTreeMap::new())?;
    let ids: Vec<String> = (1..=vectors.len()).map(|n| n.to_string()).collect();
    sink.write(&ids, vectors)?;
    sink.finish()
}

/// Encoding options given by the user. Missing options come from the existing vectors or the defaults.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given {
    pub(crate) prompt: Option<String>,
    pub(crate) mode: Option<DialogueMode>,
    pub(crate) pooling: Option<DialoguePooling>,
}

impl Given {
    pub(crate) fn into_options(self) -> Options {
        Options {
            texts: TextOptions { prompt: self.prompt.clone() },
            dialogues: DialogueOptions {
                mode: self.mode.unwrap_or_default(),
                pooling: self.pooling.unwrap_or_default(),
                prompt: self.prompt,
            },
        }
    }
}

/// Name of a model that stays valid if the working folder changes: the absolute path of a folder, or the name as
/// given.
pub(crate) fn absolute_name(model: &str) -> String {
    match std::fs::canonicalize(model) {
        Ok(path) if Path::new(model).is_dir() => path.display().to_string(),
        _ => model.to_owned(),
    }
}
