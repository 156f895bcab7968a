//! `turnwise ingest --engine ADDRESS`: dialogues into a Milvus, searchable as soon as they are acknowledged.

use crate::{
    cli::{Context, commands::summary::Files},
    corpus::walk::Plan,
    error::Result,
    store::ingest::IngestOptions,
};

#[cfg(feature = "milvus")]
use crate::index::milvus::MilvusHome;

#[cfg(feature = "milvus")]
pub(super) fn ingest(
    model: Option<&str>,
    encode: bool,
    (plan, files): (Plan, Files),
    options: &IngestOptions,
    context: &Context<'_>,
) -> Result<()> {
    use super::super::summary::Summary;
    use crate::cli::printer::counted;

    let target = context.far()?;
    let mut home = filling::open(&target, model, encode, context)?;
    let (outcome, seconds) = super::read_into(&mut home, plan, options, context);
    let ingested = outcome?;
    settle(&mut home, context);
    super::tell_rejects(&ingested, options, context);
    if home.cut() > 0 {
        context.printer.warn(format!(
            "{} longer than a column of Milvus: what comes behind 65,535 bytes of words is not found by words",
            match home.cut() {
                1 => "1 text is".to_owned(),
                n => format!("{} are", counted(n, "text")),
            }
        ));
    }
    let summary = Summary::new(target.to_string(), files, &ingested, home.totals()?, seconds);
    context.printer.result(&summary, |out| summary.write(out))?;
    super::verdict(&ingested)
}

/// Everything is there already, and found: that the server did not put it away is no failure.
#[cfg(feature = "milvus")]
fn settle(home: &mut MilvusHome, context: &Context<'_>) {
    if let Err(e) = home.settle() {
        context.printer.warn(format!("searches are slower until Milvus has put away what came: {e}"));
    }
}

#[cfg(not(feature = "milvus"))]
pub(super) fn ingest(
    _: Option<&str>,
    _: bool,
    _: (Plan, Files),
    _: &IngestOptions,
    context: &Context<'_>,
) -> Result<()> {
    match context.far()? {}
}

#[cfg(feature = "milvus")]
mod filling {
    use std::sync::Arc;

    use crate::{
        cli::{
            Context,
            commands::search::encoder_of,
            encoders::{self, DEFAULT_MODEL, lasting_name},
        },
        encoder::{
            ahead::Options,
            transformer::{Settings, Tokens},
        },
        error::{Error, Result},
        index::{
            milvus::{MilvusHome, Target},
            vectors::Recipe,
        },
    };

    /// Opens what is there, with the encoder that made its vectors; else makes it, with the encoder that is asked for or the
    /// default one.
    pub(super) fn open(
        target: &Target,
        model: Option<&str>,
        encode: bool,
        context: &Context<'_>,
    ) -> Result<MilvusHome> {
        if let Some(there) = MilvusHome::manifest(target)? {
            let encoder = match (&there.recipe, model) {
                (None, _) => None,
                (Some(_), Some(model)) => {
                    Some(Arc::from(encoders::open(context, model, &Settings::default())?))
                }
                (Some(recipe), None) => Some(encoder_of(recipe, &target.to_string(), context)?),
            };
            return MilvusHome::open_or_create(target, Default::default(), None, encoder);
        }
        if !encode {
            return MilvusHome::open_or_create(target, Default::default(), None, None);
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
        let recipe = Recipe::of(
            encoder.as_ref(),
            &lasting_name(model),
            "auto",
            &Tokens::default(),
            &Options::default(),
        );
        MilvusHome::open_or_create(target, Default::default(), Some(recipe), Some(Arc::from(encoder)))
    }
}
