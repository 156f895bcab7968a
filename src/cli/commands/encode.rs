//! `turnwise encode`: computes the vectors of an index.

#[cfg(feature = "milvus")]
mod remote;
mod shards;
#[cfg(test)]
mod tests;

use crate::cli::{
    args::{EncodeArgs, UnitsArg},
    commands::embed,
    encoders::{self, Given, Open},
    prelude::*,
};
use turnwise_encoder::{
    Encoder, Precision,
    ahead::Options,
    transformer::{Settings, Tokens},
};
use turnwise_index::vectors::{
    EncodeProgress, EncodeTargets, Kind, Mode, Recipe, VectorReader, VectorWriter, fill, pending_dialogues,
};
use turnwise_store::Snapshot;

/// Result of `turnwise encode`, printed as text or JSON.
#[derive(Serialize)]
pub(super) struct Encoded {
    schema: &'static str,
    index: String,
    model: String,
    encoder: String,
    fingerprint: String,
    runs: String,
    dim: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<usize>,
    #[serde(flatten)]
    pub(super) filled: EncodeProgress,
    /// Number of utterance vectors in the index after the run.
    utterance_vectors: u64,
    /// Number of dialogue vectors in the index after the run.
    dialogue_vectors: u64,
    seconds: f64,
}

pub(super) fn run(args: &EncodeArgs, context: &Context<'_>) -> Result<()> {
    let open: Open<'_> = &|model, settings| encoders::open(context, model, settings);
    if let Some(folder) = &args.shards.assemble {
        return shards::assemble(folder, args, context);
    }
    if let (Some(shards), Some(folder)) = (&args.shards.shard, &args.shards.out) {
        return shards::encode(shards, folder, args, open, context);
    }
    if let [first, ..] = args.inputs.as_slice() {
        let message = "would only be read with --shard, or with --assemble and --engine";
        return Err(Error::input(format!("{} {message}", first.display()))
            .with_hint("name an index with -i; to encode files, use --shard I/N or `turnwise embed`"));
    }
    if context.settings.engine.is_some() {
        #[cfg(feature = "milvus")]
        return remote::run(args, context);
        #[cfg(not(feature = "milvus"))]
        match context.milvus_target()? {}
    }
    if let Some(option) = args.read.given() {
        return Err(Error::input(format!(
            "{option} is an option for reading files, but encode reads an index"
        ))
        .with_hint("to encode files, use --shard I/N or `turnwise embed`"));
    }
    let encoded = encode(args, open, context)?;
    embed::report_usage(&encoded.filled.spent, encoded.max_tokens, "texts", context.printer);
    context.printer.result(&encoded, |out| encoded.write(out))
}

fn encode(args: &EncodeArgs, open: Open<'_>, context: &Context<'_>) -> Result<Encoded> {
    let root = context.existing_index()?;
    let before = match VectorReader::open(&root) {
        // With --replace, damaged vectors are not an error, because they are rebuilt.
        Err(Error::Corrupt { .. }) if args.replace => None,
        before => before?,
    };
    let choice = Choice::of(args, before.as_ref().map(Before::of));
    drop(before);
    let encoder = open(&choice.model, &args.encoder.settings(choice.precision, choice.tokens.clone()))?;
    encode_with(encoder.as_ref(), &choice, args.replace, &root, context)
}

/// Encodes new dialogues after an ingest, with the model and options of the existing vectors. For an index without
/// vectors, uses the default model.
///
/// Prints a message and returns `None` if the default model is needed but not installed, if the vectors are damaged, or
/// if the model cannot be opened.
pub(super) fn encode_new(root: &Path, context: &Context<'_>) -> Result<Option<Encoded>> {
    let printer = context.printer;
    let later = format!("`turnwise encode -i {}` creates the vectors later", root.display());
    let before = match VectorReader::open(root) {
        Err(e @ Error::Corrupt { .. }) => {
            printer.warn(format!("the new dialogues have no vectors yet: {e}"));
            printer.hint(e.hint().unwrap_or(later));
            return Ok(None);
        }
        before => before?,
    };
    let choice = Choice::resolve(Requested::default(), before.as_ref().map(Before::of));
    if before.is_none() && context.model(&choice.model).is_err() {
        printer.say(format!(
            "only lexical search is available; for dense search, run `turnwise model pull` and then \
             `turnwise encode -i {}`",
            root.display()
        ));
        return Ok(None);
    }
    drop(before);
    let settings =
        Settings { precision: choice.precision, tokens: choice.tokens.clone(), ..Settings::default() };
    match encoders::open(context, &choice.model, &settings) {
        Ok(encoder) => encode_with(encoder.as_ref(), &choice, false, root, context).map(Some),
        Err(e) => {
            printer.warn(format!("the new dialogues have no vectors yet: {e}"));
            printer.hint(e.hint().unwrap_or(later));
            Ok(None)
        }
    }
}

/// Encodes every utterance and dialogue of the index that has no vector from this encoder. If the existing vectors are
/// damaged or from a different encoder, replaces all of them.
pub(super) fn everything(
    encoder: &dyn Encoder,
    model: &str,
    root: &Path,
    context: &Context<'_>,
) -> Result<Encoded> {
    let replace = match VectorReader::open(root) {
        Ok(reader) => reader.is_some_and(|r| r.recipe().fingerprint != encoder.fingerprint()),
        Err(Error::Corrupt { .. }) => true,
        Err(e) => return Err(e),
    };
    let requested =
        Requested { model: Some(model.to_owned()), units: Some(UnitsArg::Both), ..Requested::default() };
    let choice = Choice::resolve(requested, None);
    encode_with(encoder, &choice, replace, root, context)
}

/// Encoding options from the command line. [`Choice::resolve`] sets the options that are `None`.
#[derive(Default)]
struct Requested {
    model: Option<String>,
    precision: Option<Precision>,
    tokens: Tokens,
    options: Given,
    units: Option<UnitsArg>,
    replace: bool,
}

/// Description of the existing vectors: the recipe (model and options), whether utterances have vectors, and whether
/// dialogues have vectors.
#[derive(Clone, Copy)]
struct Before<'a> {
    recipe: &'a Recipe,
    units: (bool, bool),
}

impl<'a> Before<'a> {
    fn of(vectors: &'a VectorReader) -> Self {
        let has = |kind: Kind| vectors.manifest().extent(kind).reached.is_some();
        Before { recipe: vectors.recipe(), units: (has(Kind::Utterances), has(Kind::Dialogues)) }
    }
}

/// Resolved encoding options. Each comes from the command line, else from the existing vectors, else from the defaults.
struct Choice {
    model: String,
    precision: Option<Precision>,
    tokens: Tokens,
    options: Options,
    utterances: bool,
    dialogues: bool,
}

impl Choice {
    fn of(args: &EncodeArgs, before: Option<Before<'_>>) -> Self {
        let requested = Requested {
            model: args.encoder.model.clone(),
            precision: args.encoder.precision(),
            tokens: args.tokens.given(),
            options: args.encoder.given(),
            units: args.of,
            replace: args.replace,
        };
        Choice::resolve(requested, before)
    }

    fn resolve(requested: Requested, before: Option<Before<'_>>) -> Self {
        let Requested { mut model, mut precision, mut tokens, mut options, units, replace } = requested;
        if let Some(Before { recipe, .. }) = before {
            // The prompt and the token options depend on the model. The options for dialogues below do not.
            if model.as_ref().is_none_or(|m| encoders::absolute_name(m) == recipe.model) {
                options.prompt = options.prompt.or_else(|| recipe.prompt.clone());
                tokens = tokens.or(&recipe.tokens);
                if precision.is_none() && !replace {
                    precision = recipe.precision.parse().ok();
                }
            }
            model = model.or_else(|| Some(recipe.model.clone()));
            options.mode = options.mode.or(Some(recipe.dialogue_mode));
            options.pooling = options.pooling.or(Some(recipe.pooling));
        }
        let (utterances, dialogues) = match (units, before.map(|before| before.units)) {
            (Some(UnitsArg::Utterances), _) => (true, false),
            (Some(UnitsArg::Dialogues), _) => (false, true),
            (None, Some(units @ ((true, _) | (_, true)))) => units,
            (Some(UnitsArg::Both) | None, _) => (true, true),
        };
        Choice {
            model: model.unwrap_or_else(|| encoders::DEFAULT_MODEL.to_owned()),
            precision,
            tokens,
            options: options.into_options(),
            utterances,
            dialogues,
        }
    }

    /// Returns the recipe (model and options) of the vectors that `encoder` will make.
    fn recipe(&self, encoder: &dyn Encoder) -> Recipe {
        let precision = self.precision.map_or("auto", |p| p.name());
        Recipe::of(encoder, &encoders::absolute_name(&self.model), precision, &self.tokens, &self.options)
    }
}

fn encode_with(
    encoder: &dyn Encoder,
    choice: &Choice,
    replace: bool,
    root: &Path,
    context: &Context<'_>,
) -> Result<Encoded> {
    let recipe = choice.recipe(encoder);
    let mode = if replace { Mode::Replace } else { Mode::Continue };
    let snapshot = Snapshot::open(root)?;
    let mut writer = VectorWriter::open(root, &recipe, mode, context.command_line)?;
    let wanted = EncodeTargets {
        utterances: choice.utterances,
        dialogues: choice.dialogues,
        chunk: context.settings.encode_batch,
    };
    let total = pending_dialogues(&snapshot, &writer, &wanted)?;
    let mut progress = ProgressBar::new(context.printer, "encoding", "dialogues", Some(total));
    let filled =
        fill(&snapshot, &mut writer, encoder, &wanted, &choice.options, &signals::stopped, &mut |filled| {
            let rate = |n: u64| rate(n, progress.seconds());
            let texts = filled.utterances + filled.dialogues;
            let rates = format!("{} texts/s, {} tokens/s", rate(texts), rate(filled.spent.tokens));
            progress.set_suffix(rates);
            progress.set(filled.seen, filled.seen);
            context.printer.detail(format!("done: {texts} texts"));
        });
    let seconds = progress.seconds();
    drop(progress);
    let filled = filled?;
    if !filled.complete {
        writer.close()?;
        let saved = counted_with(filled.utterances + filled.dialogues, "vector", ["is", "are"]);
        let hint = format!("{saved} saved; run the same command again to continue");
        return Err(Error::Interrupted { hint: Some(hint) });
    }
    let rows = Kind::ALL.map(|kind| writer.rows(kind));
    writer.finish()?;
    Ok(Encoded {
        schema: "turnwise/encode/1",
        index: root.display().to_string(),
        model: recipe.model,
        encoder: encoder.name().to_owned(),
        fingerprint: encoder.fingerprint().to_string(),
        runs: encoder.describe(),
        dim: encoder.dim(),
        max_tokens: encoder.max_tokens(),
        filled,
        utterance_vectors: rows[0],
        dialogue_vectors: rows[1],
        seconds,
    })
}

impl Encoded {
    /// Returns whether the run found dialogues that no earlier run had processed.
    pub(super) fn is_new(&self) -> bool {
        self.filled.seen > 0
    }

    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let Encoded { filled: f, index, dim, encoder, seconds, .. } = self;
        let texts = f.utterances + f.dialogues;
        if f.seen == 0 {
            writeln!(out, "{index} is up to date")?;
        } else {
            let rates =
                format!("{} texts/s, {} tokens/s", rate(texts, *seconds), rate(f.spent.tokens, *seconds));
            let seen = counted(f.seen, "dialogue");
            writeln!(out, "{BOLD}{seen}{BOLD:#} checked in {seconds:.1} s {DIM}({rates}){DIM:#}")?;
            let mut row = |n: u64, what: &str| match n {
                0 => Ok(()),
                _ => writeln!(out, "  {:>12}  {what}", grouped(n)),
            };
            row(f.utterances, "utterances encoded")?;
            row(f.dialogues, "dialogues encoded")?;
            row(f.known, "already known: the same text was encoded before")?;
            row(f.spent.tokens, "tokens")?;
        }
        let utterances = counted(self.utterance_vectors, "utterance vector");
        let dialogues = counted(self.dialogue_vectors, "dialogue vector");
        let vectors = format!("{utterances} and {dialogues} with {dim} dimensions, by {encoder}");
        write!(out, "{BOLD}{index}{BOLD:#} now has {vectors}")?;
        // Without new vectors, the precision of this run says nothing about the existing vectors.
        match texts {
            0 => writeln!(out),
            _ => writeln!(out, " {DIM}({}){DIM:#}", self.runs),
        }
    }
}
