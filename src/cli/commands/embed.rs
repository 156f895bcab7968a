//! `turnwise embed`: writes the vectors of texts, utterances or dialogues in files, without an index.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::cli::{
    args::EmbedArgs,
    commands::{self, report_rejects_file},
    encoders::{self, Open},
    prelude::*,
    printer::Printer,
    progress::TaskProgress,
};
use turnwise_encoder::EncodeStats;
use turnwise_index::vectors::Kind;
use turnwise_shards::{
    embed::{EmbedInputs, EmbedSettings, MAX_WARNINGS},
    vector_files::{self, VectorFileFormat},
};

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

/// Result of `turnwise embed`, printed as text or JSON.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) schema: &'static str,
    pub(super) model: String,
    pub(super) encoder: String,
    pub(super) fingerprint: String,
    pub(super) runs: String,
    pub(super) output: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ids: Option<String>,
    pub(super) format: &'static str,
    /// Number of inputs in each format.
    pub(super) read_as: BTreeMap<&'static str, u64>,
    pub(super) unit: &'static str,
    pub(super) vectors: u64,
    pub(super) dim: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_tokens: Option<usize>,
    #[serde(flatten)]
    pub(super) spent: EncodeStats,
    pub(super) rejected: u64,
    /// File that lists the rejected records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rejects: Option<String>,
    pub(super) damaged_files: u64,
    pub(super) seconds: f64,
}

impl Summary {
    /// Prints the result of the run. Prints it to standard error if the vectors were written to standard output.
    pub(super) fn report(&self, vectors_on_standard_output: bool, context: &Context<'_>) -> Result<()> {
        report_usage(&self.spent, self.max_tokens, self.unit, context.printer);
        report_rejects_file(self.rejected, MAX_WARNINGS, self.rejects.as_deref(), context.printer);
        if !vectors_on_standard_output {
            return context.printer.result(self, |out| self.write(out));
        }
        let mut text = Vec::new();
        // Writing to memory does not fail.
        let _ = self.write(&mut text);
        String::from_utf8_lossy(&text).lines().for_each(|line| context.printer.say(line));
        Ok(())
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let read_as: Vec<String> = self.read_as.iter().map(|(name, n)| format!("{name}: {n}")).collect();
        let Summary { seconds, output, dim, encoder, runs, .. } = self;
        let rates =
            format!("{}/s, {} tokens/s", rate(self.vectors, *seconds), rate(self.spent.tokens, *seconds));
        let (vectors, inputs) = (counted(self.vectors, self.unit.trim_end_matches('s')), read_as.join(", "));
        let inputs = format!("{} ({inputs})", counted(self.read_as.values().sum(), "input"));
        writeln!(out, "{BOLD}{vectors}{BOLD:#} from {inputs} in {seconds:.1} s {DIM}({rates}){DIM:#}")?;
        writeln!(out, "  {:>12}  tokens", grouped(self.spent.tokens))?;
        if self.rejected > 0 {
            writeln!(out, "  {:>12}  rejected", grouped(self.rejected))?;
        }
        let with_ids = self.ids.as_ref().map(|ids| format!(", ids in {ids}")).unwrap_or_default();
        write!(out, "{BOLD}{output}{BOLD:#} has vectors with {dim} dimensions, by {encoder} ")?;
        writeln!(out, "{DIM}({runs}){DIM:#}{with_ids}")
    }
}

/// Warns about texts that were truncated or have no known token, and reports dialogues that were split into windows.
/// `max_tokens` is the encoder's limit; `unit` is the plural noun of the encoded items.
pub(in crate::cli::commands) fn report_usage(
    spent: &EncodeStats,
    max_tokens: Option<usize>,
    unit: &str,
    printer: &Printer,
) {
    let limit = max_tokens.map_or("the model's limit".to_owned(), |n| format!("the limit of {n} tokens"));
    let (verbs, one) = (["was", "were"], unit.trim_end_matches('s'));
    if spent.cut_texts > 0 {
        let (texts, dropped) =
            (counted_with(spent.cut_texts, one, verbs), counted(spent.cut_tokens, "token"));
        let verb = verbs[usize::from(spent.cut_texts != 1)];
        printer.warn(format!("{texts} longer than {limit} and {verb} truncated: {dropped} dropped"));
    }
    if spent.unknown > 0 {
        let texts = counted_with(spent.unknown, one, ["has", "have"]);
        printer.warn(format!("{texts} no token that the model knows; the vectors are all zeros"));
    }
    if spent.windowed > 0 {
        let dialogues = counted_with(spent.windowed, "dialogue", verbs);
        printer.say(format!("{dialogues} longer than {limit} and encoded in windows; nothing was truncated"));
    }
}
