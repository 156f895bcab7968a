//! `turnwise ingest`: reads dialogues from files into an index or an engine.

use std::sync::{Arc, atomic::Ordering};

use crate::cli::{
    args::IngestArgs,
    commands::{
        self,
        encode::{self, Encoded},
        index,
        search::encoder_of,
        summary::{Files, Summary},
        vectors,
    },
    encoders::{self, DEFAULT_MODEL, absolute_name},
    prelude::*,
};
use turnwise_corpus::walk::Plan;
use turnwise_encoder::{
    Encoder,
    ahead::Options,
    transformer::{Settings, Tokens},
};
use turnwise_index::{
    dense,
    location::{EngineWriter, Location, WriteMode, WriterOptions},
    vectors::Recipe,
};
use turnwise_store::{
    Snapshot,
    ingest::{DialogueSink, IngestControl, IngestOptions, Ingested, ingest},
};

pub(super) fn run(args: IngestArgs, context: &Context<'_>) -> Result<()> {
    check_flags(&args, context)?;
    let location = context.location()?;
    let (plan, read) = commands::plan(&args.input, context)?;
    commands::must_not_overwrite_inputs(
        args.rejects.file.as_slice(),
        plan.sources.iter().map(|s| s.name.as_str()),
    )?;
    let options = IngestOptions {
        read,
        cleaning: commands::cleaning(&args.clean),
        only: None,
        id_prefix: args.id_prefix,
        source: args.source,
        language: args.language,
        thread: args.thread.map(|key| key.strip_prefix("meta.").map_or(key.clone(), str::to_owned)),
        rejects: args.rejects.file,
        max_errors: args.rejects.max_errors.unwrap_or(context.settings.max_errors),
        batch: context.settings.batch,
    };
    let files = Files::of(&plan);
    let encode = context.settings.ingest_encode && !args.no_encode;
    let wanted = Wanted { model: args.model.as_deref(), encode, replace: args.replace };
    let writer = open_writer(location.as_ref(), &wanted, context)?;
    let index = context.settings.ingest_index && !args.no_index;
    let derive = |root: &Path| {
        let snapshot = Snapshot::open(root)?;
        if index {
            self::index::update(root, &snapshot, context)?;
        }
        let derived = match index && encode {
            true => derive(root, &snapshot, context),
            false => Ok(Derived::default()),
        };
        vectors::notice(root, &snapshot, context)?;
        Ok(derived)
    };
    fill(writer, location.as_ref(), (plan, files), &options, &derive, context)
}

/// Ingests into a writer, closes it and prints the result. For an index folder, calls `derive` with the folder to
/// update the lexical index, the vectors and the graphs.
///
/// If `derive` returns `Err`, the result is not printed. If it returns `Ok(Err(e))`, the result is printed before `e`
/// is returned.
pub(super) fn fill(
    mut writer: Box<dyn EngineWriter>,
    location: &dyn Location,
    (plan, files): (Plan, Files),
    options: &IngestOptions,
    derive: &dyn Fn(&Path) -> Result<Result<Derived>>,
    context: &Context<'_>,
) -> Result<()> {
    let printer = context.printer;
    writer.take_warnings().iter().for_each(|warning| printer.warn(warning));
    let (outcome, seconds) = read_into(writer.as_mut(), plan, "ingesting", options, context);
    if outcome.is_ok()
        && let Err(e) = writer.flush()
    {
        let engine = writer.engine();
        printer.warn(format!("searches are slow until {engine} has indexed the new dialogues: {e}"));
    }
    writer.take_warnings().iter().for_each(|warning| printer.warn(warning));
    // After an error, a new collection does not replace the old one, so its dialogues are not counted.
    let totals = (outcome.is_ok() || location.folder().is_some()).then(|| writer.totals());
    // The writer is also closed after an error, to flush the acknowledged records.
    let closed = writer.close(outcome.is_ok());
    if let (Err(Error::TooManyRejects { .. }), Some(Ok(totals))) = (&outcome, &totals) {
        let (place, totals) = (location.place(), self::totals(totals.dialogues, totals.turns));
        printer.say(format!("stopped; everything before that point is saved: {place} now holds {totals}"));
    }
    let ingested = outcome?;
    closed?;
    report_rejects(&ingested, options, context);
    report_missing_threads(&ingested, options, context);
    let derived = location.folder().map_or(Ok(Ok(Derived::default())), derive)?;
    let totals = totals.transpose()?.unwrap_or_default();
    let summary = Summary::new(location.place(), files, &ingested, totals, seconds);
    let (derived, failed) = match derived {
        Ok(derived) => (derived, None),
        Err(e) => (Derived::default(), Some(e)),
    };
    let done = Done { summary: &summary, derived };
    printer.result(&done, |out| done.write(out))?;
    if let Some(e) = failed {
        return Err(e);
    }
    verdict(&ingested)
}

/// Ingests the inputs of `plan` into `sink` and shows progress. Returns the outcome and the duration in seconds.
pub(super) fn read_into(
    sink: &mut dyn DialogueSink,
    plan: Plan,
    what: &'static str,
    options: &IngestOptions,
    context: &Context<'_>,
) -> (Result<Ingested>, f64) {
    let total = plan.sources.iter().map(|s| s.bytes()).sum::<Option<u64>>().filter(|n| *n > 0);
    let mut progress = ProgressBar::new(context.printer, what, "dialogues", total);
    let bytes_read = options.read.bytes_read.clone();
    let progress_cell = std::cell::RefCell::new(&mut progress);
    let outcome = ingest(
        sink,
        plan,
        options,
        IngestControl {
            stop: signals::stop(),
            progress: &mut |tally| {
                progress_cell.borrow_mut().set(bytes_read.load(Ordering::Relaxed), tally.records);
            },
            acknowledged: &mut |tally| {
                context.printer.detail(format!("acknowledged: {} records", tally.records));
            },
            resumed: &mut |records| {
                let text = format!("resuming after record {}, where the last run stopped", grouped(records));
                progress_cell.borrow().say(&text);
            },
        },
    );
    (outcome, progress.seconds())
}

/// Ingests the inputs of `plan` into `sink` without showing progress. Stops early if the user requests it.
pub(super) fn ingest_silently(
    sink: &mut dyn DialogueSink,
    plan: Plan,
    options: &IngestOptions,
) -> Result<Ingested> {
    let (progress, acknowledged, resumed) = (&mut |_: &_| {}, &mut |_: &_| {}, &mut |_| {});
    ingest(sink, plan, options, IngestControl { stop: signals::stop(), progress, acknowledged, resumed })
}

/// Returns an error if every record was rejected or a file could not be read to its end.
fn verdict(ingested: &Ingested) -> Result<()> {
    let tally = &ingested.tally;
    match tally.damaged_files {
        0 if tally.records > 0 && tally.rejected == tally.records => {
            Err(Error::data("every record was rejected; nothing was ingested"))
        }
        0 => Ok(()),
        n => Err(Error::data(format!("{} could not be read to the end; everything before that point is ingested", counted(n, "file"))).with_hint("see the warning above; fix the cause and run the same command again: records that are already ingested are skipped")),
    }
}

/// Vectors and graphs created from the new dialogues. A field is `None` if nothing was created.
#[derive(Default, Serialize)]
pub(super) struct Derived {
    #[serde(skip_serializing_if = "Option::is_none")]
    encoded: Option<Encoded>,
    #[serde(skip_serializing_if = "Option::is_none")]
    graphs: Option<dense::Built>,
}

/// Result of `turnwise ingest`, printed as text or JSON.
#[derive(Serialize)]
struct Done<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    #[serde(flatten)]
    derived: Derived,
}

impl Done<'_> {
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        self.summary.write(out)?;
        if let Some(encoded) = self.derived.encoded.as_ref().filter(|encoded| encoded.is_new()) {
            encoded.write(out)?;
        }
        match &self.derived.graphs {
            Some(graphs) => index::write_graphs(&self.summary.index, graphs, out),
            None => Ok(()),
        }
    }
}

/// Updates the lexical index, the vectors and the graphs of an index, if the settings `ingest.index` and
/// `ingest.encode` allow it.
#[cfg(feature = "serve")]
pub(super) fn derive_all(root: &Path, context: &Context<'_>) -> Result<()> {
    let snapshot = Snapshot::open(root)?;
    if context.settings.ingest_index {
        index::update(root, &snapshot, context)?;
        if context.settings.ingest_encode {
            derive(root, &snapshot, context)?;
        }
    }
    Ok(())
}

/// Encodes new dialogues. Builds the vector graphs if there are none or if many dialogues are not in them yet.
fn derive(root: &Path, snapshot: &Snapshot, context: &Context<'_>) -> Result<Derived> {
    let encoded = encode::encode_new(root, context)?;
    let graphs = match encoded.is_some() && dense::is_worth_building(root, snapshot)? {
        true => index::graphs(root, snapshot, context)?.filter(|graphs| graphs.new),
        false => None,
    };
    Ok(Derived { encoded, graphs })
}

fn report_rejects(ingested: &Ingested, options: &IngestOptions, context: &Context<'_>) {
    let rejected = ingested.tally.rejected;
    if rejected == 0 {
        return;
    }
    for reject in &ingested.first_rejects {
        context.printer.warn(format!("rejected: {reject}"));
    }
    let file = options.rejects.as_ref().map(|path| path.display().to_string());
    commands::report_rejects_file(
        rejected,
        ingested.first_rejects.len() as u64,
        file.as_deref(),
        context.printer,
    );
}

/// Warns if dialogues lack the metadata key of the thread.
fn report_missing_threads(ingested: &Ingested, options: &IngestOptions, context: &Context<'_>) {
    let (Some(key), without @ 1..) = (&options.thread, ingested.tally.without_thread) else { return };
    let keys: Vec<&str> = ingested.other_keys.iter().map(String::as_str).collect();
    let keys = if keys.is_empty() { "none".to_owned() } else { keys.join(", ") };
    let lack = counted_with(without, "dialogue", ["lacks", "lack"]);
    context.printer.warn(format!(
        "{lack} a single value of `{key}`, so --thread did not set a thread (metadata keys there: {keys})"
    ));
}

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

/// Opens a writer for an index folder or for a collection of an engine. The writer for a collection also encodes: with
/// `wanted.model`, else the model of the collection, else the default model.
fn open_writer(
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

/// Opens an encoder and creates the recipe that describes its vectors. Returns `None` if `encode` is false.
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
