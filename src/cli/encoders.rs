//! From `--model` to an encoder.

use std::path::Path;

use crate::{
    cli::Context,
    encoder::{
        DialogueMode, DialogueOptions, DialoguePooling, Encoder, Precision, TextOptions, ahead::Options,
    },
    error::{Error, Result},
};

/// The model that is used where none is named.
pub(crate) const DEFAULT_MODEL: &str = "all-MiniLM-L6-v2";

/// Opens an encoder by the model's name and the precision that is asked for.
pub(crate) type Open<'a> = &'a dyn Fn(&str, Option<Precision>) -> Result<Box<dyn Encoder>>;

/// Opens an encoder: a folder, or a name. Without a precision, the encoder's own choice.
pub(crate) fn open(
    context: &Context<'_>,
    model: &str,
    precision: Option<Precision>,
) -> Result<Box<dyn Encoder>> {
    let precision = precision.map_or("auto", Precision::name);
    context.printer.detail(format!("opening {model} ({precision})"));
    Err(Error::unknown_name("model", model, []))
}

/// The options that were given; what was not is the encoder's own, or what an index has.
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

/// How a model is named for later, when another folder may be the working one.
pub(crate) fn lasting_name(model: &str) -> String {
    match std::fs::canonicalize(model) {
        Ok(path) if Path::new(model).is_dir() => path.display().to_string(),
        _ => model.to_owned(),
    }
}
