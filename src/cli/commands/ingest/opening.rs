//! Opens the writer of an ingest, with an encoder if the engine stores vectors together with the dialogues.

use std::sync::Arc;

use crate::cli::{
    args::IngestArgs,
    commands::search::encoder_of,
    encoders::{self, DEFAULT_MODEL, absolute_name},
    prelude::*,
};
use turnwise_encoder::{
    Encoder,
    ahead::Options,
    transformer::{Settings, Tokens},
};
use turnwise_index::{
    location::{EngineWriter, Location, WriteMode, WriterOptions},
    vectors::Recipe,
};

/// Options for opening the writer of an ingest.
pub(super) struct Wanted<'a> {
    /// Model given by `--model`. If `None`, the model of the collection or the default model is used.
    pub(super) model: Option<&'a str>,
    /// Whether to compute vectors.
    pub(super) encode: bool,
    /// Whether to replace an existing collection.
    pub(super) replace: bool,
}

/// Returns an error if an option is given that needs an engine, but no engine is set.
pub(super) fn check_flags(args: &IngestArgs, context: &Context<'_>) -> Result<()> {
    let refused = |what: &str, hint: &str| {
        Err(Error::input(format!("{what} needs --engine")).with_hint(hint.to_owned()))
    };
    match (&context.settings.engine, &args.model) {
        (None, Some(_)) => {
            refused("--model", "`turnwise encode -i INDEX --model MODEL` changes the model of an index")
        }
        (None, None) if args.replace => refused("--replace", "ingest into a different index instead"),
        _ => Ok(()),
    }
}

/// Opens the writer of an index folder or a collection. The writer of a collection also encodes: with the model of the
/// collection or, for a new one, with `model` or the default model.
pub(super) fn open(
    location: &dyn Location,
    wanted: &Wanted<'_>,
    context: &Context<'_>,
) -> Result<Box<dyn EngineWriter>> {
    let (mode, encoder) = match location.folder() {
        // An index folder gets its vectors after the ingest.
        Some(_) => (WriteMode::CreateOrAppend(None), None),
        None => mode_and_encoder(location, wanted, context)?,
    };
    let segment_bytes = Some(context.settings.segment_bytes);
    location.open_writer(WriterOptions { mode, encoder, holder: context.command_line, segment_bytes })
}

fn mode_and_encoder(
    location: &dyn Location,
    wanted: &Wanted<'_>,
    context: &Context<'_>,
) -> Result<(WriteMode, Option<Arc<dyn Encoder>>)> {
    let contents = location.contents()?;
    if wanted.replace {
        let before = contents.and_then(|contents| contents.recipe).map(|recipe| recipe.model);
        let model = wanted.model.or(before.as_deref());
        let (recipe, encoder) = encoder_and_recipe(model, wanted.encode, context)?.unzip();
        return Ok((WriteMode::Replace(recipe), encoder));
    }
    let Some(contents) = contents else {
        let (recipe, encoder) = encoder_and_recipe(wanted.model, wanted.encode, context)?.unzip();
        return Ok((WriteMode::CreateOrAppend(recipe), encoder));
    };
    let encoder = match (&contents.recipe, wanted.model) {
        (None, _) => None,
        (Some(_), Some(model)) => Some(Arc::from(encoders::open(context, model, &Settings::default())?)),
        (Some(recipe), None) => Some(encoder_of(recipe, &location.place(), context)?),
    };
    Ok((WriteMode::CreateOrAppend(None), encoder))
}

/// Opens an encoder and makes the recipe, which describes its vectors. Returns `None` if `encode` is false.
fn encoder_and_recipe(
    model: Option<&str>,
    encode: bool,
    context: &Context<'_>,
) -> Result<Option<(Recipe, Arc<dyn Encoder>)>> {
    if !encode {
        return Ok(None);
    }
    let model = model.unwrap_or(DEFAULT_MODEL);
    let encoder = encoders::open(context, model, &Settings::default()).map_err(|e| match e {
        Error::Unavailable { .. } | Error::Input { .. } => {
            let hint =
                e.hint().unwrap_or_else(|| "`turnwise model pull` downloads the default model".to_owned());
            e.with_hint(format!("{hint}; or ingest without vectors: --no-encode"))
        }
        other => other,
    })?;
    let (tokens, options) = (Tokens::default(), Options::default());
    let recipe = Recipe::of(encoder.as_ref(), &absolute_name(model), "auto", &tokens, &options);
    Ok(Some((recipe, Arc::from(encoder))))
}
