//! `turnwise ingest --engine ADDRESS`: writes dialogues to Milvus. They are searchable once acknowledged.

use crate::cli::{Context, args::IngestArgs, commands::summary::Files};
use turnwise_core::error::{Error, Result};
use turnwise_corpus::walk::Plan;
use turnwise_store::ingest::IngestOptions;

#[cfg(feature = "milvus")]
use turnwise_milvus::{MilvusWriter, Target};

/// Options of an ingest into an engine.
#[cfg_attr(not(feature = "milvus"), allow(dead_code))]
pub(super) struct Remote<'a> {
    /// Model for a name that does not exist there yet.
    pub(super) model: Option<&'a str>,
    /// Whether to store vectors.
    pub(super) encode: bool,
    /// Whether to replace everything that is stored under the name.
    pub(super) replace: bool,
}

/// Refuses options that need `--engine` if there is none.
pub(super) fn check_flags(args: &IngestArgs, context: &Context<'_>) -> Result<()> {
    let refused = |what: &str, hint: &str| {
        Err(Error::Input { message: format!("{what} needs --engine"), hint: Some(hint.to_owned()) })
    };
    match (&context.settings.engine, &args.model) {
        (None, Some(_)) => {
            refused("--model", "`turnwise encode -i INDEX --model MODEL` changes the model of an index")
        }
        (None, None) if args.replace => refused("--replace", "ingest into a different index instead"),
        _ => Ok(()),
    }
}

#[cfg(feature = "milvus")]
pub(super) fn ingest(
    into: &Remote<'_>,
    read: (Plan, Files),
    options: &IngestOptions,
    context: &Context<'_>,
) -> Result<()> {
    let target = context.milvus_target()?;
    fill(filling::open(&target, into, context)?, &target, read, options, context)
}

/// Ingests into an opened writer.
#[cfg(feature = "milvus")]
pub(in crate::cli::commands) fn fill(
    mut sink: MilvusWriter,
    target: &Target,
    (plan, files): (Plan, Files),
    options: &IngestOptions,
    context: &Context<'_>,
) -> Result<()> {
    use super::super::summary::Summary;

    let (outcome, seconds) = super::read_into(&mut sink, plan, "ingesting", options, context);
    let ingested = outcome?;
    settle(&mut sink, context);
    super::report_rejects(&ingested, options, context);
    context.warn_truncated(&sink);
    sink.finish()?;
    let summary = Summary::new(target.to_string(), files, &ingested, sink.totals()?, seconds);
    context.printer.result(&summary, |out| summary.write(out))?;
    super::verdict(&ingested)
}

/// Waits until Milvus has indexed the new rows. A failure is only a warning: the rows are stored and
/// searchable.
#[cfg(feature = "milvus")]
fn settle(sink: &mut MilvusWriter, context: &Context<'_>) {
    if let Err(e) = sink.flush() {
        context.printer.warn(format!("searches are slow until Milvus has indexed the new dialogues: {e}"));
    }
}

#[cfg(not(feature = "milvus"))]
pub(super) fn ingest(
    _: &Remote<'_>,
    _: (Plan, Files),
    _: &IngestOptions,
    context: &Context<'_>,
) -> Result<()> {
    match context.milvus_target()? {}
}

#[cfg(feature = "milvus")]
mod filling {
    use std::sync::Arc;

    use super::Remote;
    use crate::cli::{
        Context,
        commands::search::encoder_of,
        encoders::{self, DEFAULT_MODEL, absolute_name},
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

    /// Opens an existing name with the encoder of its vectors. A new name is created with the named model
    /// or the default model.
    pub(super) fn open(target: &Target, into: &Remote<'_>, context: &Context<'_>) -> Result<MilvusWriter> {
        let there = MilvusWriter::read_manifest(target)?;
        if into.replace {
            let before = there.and_then(|there| there.recipe).map(|recipe| recipe.model);
            let encoder_and_recipe =
                encoder_and_recipe(into.model.or(before.as_deref()), into.encode, context)?;
            let (recipe, encoder) = encoder_and_recipe.unzip();
            let source = encoder
                .zip(recipe.as_ref())
                .map(|(encoder, recipe)| Box::new(Encoding::new(encoder, recipe)) as Box<dyn VectorSource>);
            return MilvusWriter::new_generation(target, Analyzer::default(), recipe, source, Unfinished::Discard);
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
        let (recipe, encoder) = encoder_and_recipe(into.model, into.encode, context)?.unzip();
        MilvusWriter::open_or_create(target, Analyzer::default(), recipe, encoder)
    }

    /// Opens the encoder and builds its recipe; `None` without vectors.
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
                let hint = e
                    .hint()
                    .unwrap_or_else(|| "`turnwise model pull` downloads the default model".to_owned());
                e.with_hint(format!("{hint}; or ingest without vectors: --no-encode"))
            }
            other => other,
        })?;
        let (tokens, options) = (Tokens::default(), Options::default());
        let recipe = Recipe::of(encoder.as_ref(), &absolute_name(model), "auto", &tokens, &options);
        Ok(Some((recipe, Arc::from(encoder))))
    }
}
