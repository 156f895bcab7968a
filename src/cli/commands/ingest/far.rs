//! `turnwise ingest --engine ADDRESS`: dialogues into a Milvus, searchable as soon as they are acknowledged.

use crate::cli::{Context, args::IngestArgs, commands::summary::Files};
use turnwise_core::error::{Error, Result};
use turnwise_corpus::walk::Plan;
use turnwise_store::ingest::IngestOptions;

#[cfg(feature = "milvus")]
use turnwise_milvus::{MilvusWriter, Target};

/// How dialogues are brought there.
#[cfg_attr(not(feature = "milvus"), allow(dead_code))]
pub(super) struct Into<'a> {
    /// The model of a name that is new there.
    pub(super) model: Option<&'a str>,
    /// Whether they get vectors.
    pub(super) encode: bool,
    /// Whether they take the place of all that is there.
    pub(super) replace: bool,
}

/// Refuses, without `--engine`, what is for it alone.
pub(super) fn only_there(args: &IngestArgs, context: &Context<'_>) -> Result<()> {
    let refused = |what: &str, hint: &str| {
        Err(Error::Input { message: format!("{what} is for --engine"), hint: Some(hint.to_owned()) })
    };
    match (&context.settings.engine, &args.model) {
        (None, Some(_)) => {
            refused("--model", "`turnwise encode -i INDEX --model MODEL` gives an index another")
        }
        (None, None) if args.replace => refused("--replace", "ingest into another index, and search that"),
        _ => Ok(()),
    }
}

#[cfg(feature = "milvus")]
pub(super) fn ingest(
    into: &Into<'_>,
    read: (Plan, Files),
    options: &IngestOptions,
    context: &Context<'_>,
) -> Result<()> {
    let target = context.far()?;
    fill(filling::open(&target, into, context)?, &target, read, options, context)
}

/// Fills what was opened there, whoever gives it its vectors.
#[cfg(feature = "milvus")]
pub(in crate::cli::commands) fn fill(
    mut home: MilvusWriter,
    target: &Target,
    (plan, files): (Plan, Files),
    options: &IngestOptions,
    context: &Context<'_>,
) -> Result<()> {
    use super::super::summary::Summary;

    let (outcome, seconds) = super::read_into(&mut home, plan, "ingesting", options, context);
    let ingested = outcome?;
    settle(&mut home, context);
    super::tell_rejects(&ingested, options, context);
    context.tell_cut(&home);
    home.finish()?;
    let summary = Summary::new(target.to_string(), files, &ingested, home.totals()?, seconds);
    context.printer.result(&summary, |out| summary.write(out))?;
    super::verdict(&ingested)
}

/// Everything is there already, and found: that the server did not put it away is no failure.
#[cfg(feature = "milvus")]
fn settle(home: &mut MilvusWriter, context: &Context<'_>) {
    if let Err(e) = home.settle() {
        context.printer.warn(format!("searches are slower until Milvus has put away what came: {e}"));
    }
}

#[cfg(not(feature = "milvus"))]
pub(super) fn ingest(_: &Into<'_>, _: (Plan, Files), _: &IngestOptions, context: &Context<'_>) -> Result<()> {
    match context.far()? {}
}

#[cfg(feature = "milvus")]
mod filling {
    use std::sync::Arc;

    use super::Into;
    use crate::cli::{
        Context,
        commands::search::encoder_of,
        encoders::{self, DEFAULT_MODEL, lasting_name},
    };
    use turnwise_core::error::{Error, Result};
    use turnwise_encoder::{
        Encoder,
        ahead::Options,
        transformer::{Settings, Tokens},
    };
    use turnwise_index::vectors::Recipe;
    use turnwise_milvus::{Encoding, MilvusWriter, Target, Unfinished, VectorSource};
    use turnwise_text::Analyzer;

    /// Opens what is there, with the encoder that made its vectors; else makes it, with the encoder that is asked for or the
    /// default one.
    pub(super) fn open(target: &Target, into: &Into<'_>, context: &Context<'_>) -> Result<MilvusWriter> {
        let there = MilvusWriter::manifest(target)?;
        if into.replace {
            let before = there.and_then(|there| there.recipe).map(|recipe| recipe.model);
            let made = made(into.model.or(before.as_deref()), into.encode, context)?;
            let (recipe, encoder) = made.unzip();
            let giver = encoder
                .zip(recipe.as_ref())
                .map(|(encoder, recipe)| Box::new(Encoding::new(encoder, recipe)) as Box<dyn VectorSource>);
            return MilvusWriter::anew(target, Analyzer::default(), recipe, giver, Unfinished::ThrowAway);
        }
        if let Some(there) = there {
            let encoder = match (&there.recipe, into.model) {
                (None, _) => None,
                (Some(_), Some(model)) => {
                    Some(Arc::from(encoders::open(context, model, &Settings::default())?))
                }
                (Some(recipe), None) => Some(encoder_of(recipe, &target.to_string(), context)?),
            };
            return MilvusWriter::open_or_create(target, Analyzer::default(), None, encoder);
        }
        let (recipe, encoder) = made(into.model, into.encode, context)?.unzip();
        MilvusWriter::open_or_create(target, Analyzer::default(), recipe, encoder)
    }

    /// An encoder, and what its vectors will be; `None` if there are to be none.
    fn made(
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
                    e.hint().unwrap_or_else(|| "`turnwise model pull` gets the default model".to_owned());
                e.with_hint(format!("{hint}; or leave out the vectors with --no-encode"))
            }
            other => other,
        })?;
        let (tokens, options) = (Tokens::default(), Options::default());
        let recipe = Recipe::of(encoder.as_ref(), &lasting_name(model), "auto", &tokens, &options);
        Ok(Some((recipe, Arc::from(encoder))))
    }
}
