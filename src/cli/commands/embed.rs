//! `turnwise embed`: writes the vectors of texts, utterances or dialogues in files, without an index.

mod summary;
#[cfg(test)]
mod tests;

use crate::cli::{
    args::EmbedArgs,
    commands::{self, embed::summary::Summary},
    encoders::{self, Open},
    prelude::*,
    watching::TaskProgress,
};
use turnwise_index::vectors::Kind;
use turnwise_shards::{
    embed::{EmbedInputs, EmbedSettings},
    vector_files::{self, VectorFileFormat},
};

pub(super) use summary::report_usage;

pub(super) fn run(args: &EmbedArgs, context: &Context<'_>) -> Result<()> {
    let summary = embed(args, &|model, settings| encoders::open(context, model, settings), context)?;
    summary.report(args.output == Path::new("-"), context)?;
    match summary.damaged_files {
        0 => Ok(()),
        _ => Err(Error::data(
            "an input could not be read to its end; the output has everything before that point",
        )
        .with_hint("see the warning above for the reason")),
    }
}

fn embed(args: &EmbedArgs, open: Open<'_>, context: &Context<'_>) -> Result<Summary> {
    let format = args.to.map_or_else(|| VectorFileFormat::of(&args.output), Ok)?;
    let kind = Kind::from(args.of);
    let progress = TaskProgress::new(context.printer);
    // Check the inputs before loading the model, because loading is slow.
    let read = commands::read_options(&args.read, context);
    let inputs = EmbedInputs::plan(&args.inputs, kind, args.read.from.as_deref(), read, &progress)?;
    let ids = (format == VectorFileFormat::Npy).then(|| vector_files::ids_path(&args.output));
    let mut written = vec![args.output.clone()];
    written.extend(ids.iter().chain(&args.rejects.file).cloned());
    commands::must_differ(&written)?;
    commands::must_not_overwrite_inputs(&written, inputs.names())?;
    let model = args.encoder.model.as_deref().unwrap_or(encoders::DEFAULT_MODEL);
    let encoder = open(model, &args.encoder.settings(args.encoder.precision(), args.tokens.given()))?;
    let settings = EmbedSettings {
        model,
        options: args.encoder.given().into_options(),
        output: &args.output,
        format,
        dim: args.dim.map(|dim| dim as usize),
        normalize: args.normalize,
        batch: context.settings.encode_batch,
        rejects: args.rejects.file.clone(),
        max_errors: args.rejects.max_errors.unwrap_or(context.settings.max_errors),
    };
    let done = turnwise_shards::embed::embed(inputs, encoder.as_ref(), &settings, &progress)?;
    Ok(Summary {
        schema: "turnwise/embed/1",
        model: model.to_owned(),
        encoder: encoder.name().to_owned(),
        fingerprint: encoder.fingerprint().to_string(),
        runs: encoder.describe(),
        output: match args.output == Path::new("-") {
            true => "standard output".to_owned(),
            false => args.output.display().to_string(),
        },
        ids: ids.map(|ids| ids.display().to_string()),
        format: format.name(),
        read_as: done.read_as,
        unit: if kind == Kind::Utterances { "texts" } else { "dialogues" },
        vectors: done.vectors,
        dim: done.dim,
        max_tokens: encoder.max_tokens(),
        spent: done.spent,
        rejected: done.rejected,
        rejects: args.rejects.file.as_ref().map(|path| path.display().to_string()),
        damaged_files: done.damaged_files,
        seconds: done.seconds,
    })
}
