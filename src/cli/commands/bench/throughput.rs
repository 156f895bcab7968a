//! `turnwise bench throughput`: measures the speed of ingesting, indexing, encoding and searching.

use std::{sync::Arc, time::Instant};

use rayon::prelude::*;

use super::table;
use crate::cli::{
    args::ThroughputArgs,
    commands::{self, best_model::Model, encode, index, ingest::ingest_silently},
    encoders,
    prelude::*,
};
use turnwise_core::{files, random::Random};
use turnwise_corpus::walk::Plan;
use turnwise_encoder::{Encoder, ahead::Options};
use turnwise_eval::throughput::{Latency, Pace, Searches, Throughput, a_second};
use turnwise_index::{
    engine::{Bookmark, Engine},
    location::{Location, WriteMode, WriterOptions},
    vectors::Recipe,
};
use turnwise_search::{Mode, SearchRequest, Searcher};
use turnwise_store::{Snapshot, Store, ingest::IngestOptions};

pub(super) fn run(args: &ThroughputArgs, context: &Context<'_>) -> Result<()> {
    let (plan, read) = commands::plan(&args.input, context)?;
    let bytes = plan.sources.iter().map(|source| source.bytes().unwrap_or(0)).sum();
    let paths = args.input.paths.iter().map(|path| path.display().to_string()).collect();
    let options = IngestOptions { read, ..IngestOptions::default() };
    let throughput = Throughput::new(paths, bytes);
    std::fs::create_dir_all(&args.results).at("create", &args.results)?;
    let throughput = match &context.settings.engine {
        Some(_) => {
            let location = context.location()?;
            measured_with_vectors(throughput, location.as_ref(), plan, &options, args, context)?
        }
        None => {
            let root = files::temporary_path(&args.results.join("throughput-index"));
            files::remove_folder(&root)?;
            let _removed = OnDrop(|| drop(files::remove_folder(&root)));
            let model = |_: &Path, _: &Snapshot| model(args, context);
            measured(throughput, &root, plan, &options, &model, args.queries, context)?
        }
    };
    throughput.write(&args.results)?;
    context.printer.result(&throughput, |out| write(&throughput, out))
}

/// Measures the speed of ingesting and searching in a remote engine. The collection must not exist yet; it is removed
/// at the end.
fn measured_with_vectors(
    mut throughput: Throughput,
    location: &dyn Location,
    plan: Plan,
    options: &IngestOptions,
    args: &ThroughputArgs,
    context: &Context<'_>,
) -> Result<Throughput> {
    let place = location.place();
    if location.contents()?.is_some() {
        let message = "already has dialogues, but this benchmark creates its own name and removes it";
        return Err(
            Error::input(format!("{place} {message}")).with_hint("use a name that does not exist yet")
        );
    }
    throughput.engine = Some(place);
    let model = model(args, context)?;
    throughput.encoder = format!("{}, {}", model.name, model.encoder.describe());
    let recipe = Recipe::of(
        model.encoder.as_ref(),
        &encoders::absolute_name(&model.name),
        "auto",
        &args.tokens.given(),
        &Options::default(),
    );
    let encoder: Arc<dyn Encoder> = Arc::from(model.encoder);
    let _removed = OnDrop(|| drop(location.remove()));
    let mut writer = location.open_writer(WriterOptions {
        mode: WriteMode::CreateOrAppend(Some(recipe)),
        encoder: Some(encoder.clone()),
        holder: context.command_line,
        segment_bytes: None,
    })?;
    throughput.steps.push(Pace::of("ingest", "turns", || {
        ingest_silently(writer.as_mut(), plan, options)?;
        // `turnwise ingest` also flushes, because searches are slow until the engine has indexed the new rows.
        writer.flush()?;
        Ok(writer.totals()?.turns)
    })?);
    let totals = writer.totals()?;
    (throughput.dialogues, throughput.turns) = (totals.dialogues, totals.turns);
    writer.close(true)?;
    let searcher = Searcher::at(location)?.with_encoder(encoder)?;
    throughput.searches = searches(&searcher, args.queries, context.settings.seed)?;
    Ok(throughput)
}

/// Guard that calls a function when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0();
    }
}

/// Opens the model given by `--model`, or else the default model.
fn model(args: &ThroughputArgs, context: &Context<'_>) -> Result<Model> {
    let name = args.encoder.model.as_deref().unwrap_or(encoders::DEFAULT_MODEL);
    let precision = if encoders::is_static(context, name)? { None } else { args.encoder.precision() };
    let encoder = encoders::open(context, name, &args.encoder.settings(precision, args.tokens.given()))?;
    Ok(Model { note: encoder.describe(), name: name.to_owned(), encoder })
}

/// Function that opens the model for the vectors of an index folder.
pub(super) type OpenModel<'a> = &'a dyn Fn(&Path, &Snapshot) -> Result<Model>;

/// Builds an index in `root` and measures each step and the searches.
pub(super) fn measured(
    mut throughput: Throughput,
    root: &Path,
    plan: Plan,
    options: &IngestOptions,
    model: OpenModel<'_>,
    queries: usize,
    context: &Context<'_>,
) -> Result<Throughput> {
    let mut store = Store::open_or_create(root, context.command_line)?;
    throughput.steps.push(Pace::of("ingest", "turns", || {
        ingest_silently(&mut store, plan, options)?;
        Ok(store.view().totals().turns)
    })?);
    let totals = store.view().totals();
    (throughput.dialogues, throughput.turns) = (totals.dialogues, totals.turns);
    store.close()?;
    let snapshot = Snapshot::open(root)?;
    throughput.steps.push(Pace::of("lexical index", "turns", || {
        index::update(root, &snapshot, context)?;
        Ok(totals.turns)
    })?);
    let model = model(root, &snapshot)?;
    throughput.encoder = format!("{}, {}", model.name, model.encoder.describe());
    let mut tokens = 0;
    let encoding = Pace::of("encode", "texts", || {
        let encoded = encode::everything(model.encoder.as_ref(), &model.name, root, context)?;
        tokens = encoded.filled.spent.tokens;
        Ok(encoded.filled.utterances + encoded.filled.dialogues)
    })?;
    let of_tokens = Pace { count: tokens, unit: "tokens".to_owned(), ..encoding.clone() };
    throughput.steps.extend([encoding, of_tokens]);
    throughput.steps.push(Pace::of("graphs", "vectors", || {
        let built = index::graphs(root, &snapshot, context)?;
        Ok(built.map_or(0, |built| built.manifest.utterances.vectors + built.manifest.dialogues.vectors))
    })?);
    let encoder: Arc<dyn Encoder> = Arc::from(model.encoder);
    let searcher = Searcher::over(root, snapshot)?.with_encoder(encoder)?;
    throughput.searches = searches(&searcher, queries, context.settings.seed)?;
    Ok(throughput)
}

/// Measures the speed of searches in each mode, with random turns as queries.
fn searches(searcher: &Searcher, queries: usize, seed: u64) -> Result<Vec<Searches>> {
    let queries = random_queries(searcher.engine(), queries, seed)?;
    let modes = [("lexical", Mode::Bm25), ("dense", Mode::Dense), ("hybrid", Mode::Hybrid)];
    modes.into_iter().map(|(name, mode)| searched(searcher, name, mode, &queries)).collect()
}

/// Draws random turns as queries. The result does not depend on the order in which the engine lists the dialogues.
fn random_queries(engine: &dyn Engine, queries: usize, seed: u64) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    let mut bookmark = Some(Bookmark::Beginning);
    while let Some(from) = bookmark {
        let (dialogues, next) = engine.view().list_dialogues(from, None, 1_000)?;
        let turns = dialogues.into_iter().flat_map(|dialogue| dialogue.turns).map(|turn| turn.text);
        // A query needs a word that lexical search can find.
        texts.extend(turns.filter(|text| text.chars().any(char::is_alphanumeric)));
        bookmark = next;
    }
    texts.sort_unstable();
    Random::new(seed, 0).shuffle(&mut texts);
    texts.truncate(queries);
    Ok(texts)
}

/// Measures the speed of all queries, first on one thread, then on all threads.
fn searched(searcher: &Searcher, name: &str, mode: Mode, queries: &[String]) -> Result<Searches> {
    let search = |text: &String| {
        let request = SearchRequest { query: text.clone(), mode: Some(mode), ..SearchRequest::default() };
        searcher.search(&request).map(drop)
    };
    // The first searches open files, so their time is not measured.
    queries.iter().take(3).try_for_each(search)?;
    let mut times = Vec::new();
    for text in queries {
        signals::check()?;
        let started = Instant::now();
        search(text)?;
        times.push(started.elapsed());
    }
    let started = Instant::now();
    queries.par_iter().try_for_each(search)?;
    let together = started.elapsed();
    Ok(Searches {
        mode: name.to_owned(),
        queries: queries.len(),
        qps: a_second(queries.len(), times.iter().sum()),
        latency: Latency::of(times),
        qps_all: a_second(queries.len(), together),
    })
}

pub(super) fn write(throughput: &Throughput, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{BOLD}throughput{BOLD:#} {}", throughput.subject())?;
    let (dialogues, turns) = (counted(throughput.dialogues, "dialogue"), counted(throughput.turns, "turn"));
    let Throughput { encoder, threads, .. } = throughput;
    let size = table::megabytes(throughput.bytes);
    writeln!(out, "{DIM}{dialogues}, {turns}, {size}; {encoder}; {threads} threads{DIM:#}\n")?;
    for pace in &throughput.steps {
        let Pace { step, unit, seconds, .. } = pace;
        let (count, rate) = (grouped(pace.count), grouped(pace.a_second() as u64));
        writeln!(out, "{step:<14}  {count:>9} {unit:<7}  {seconds:>8.2} s  {rate:>9}/s")?;
    }
    writeln!(out, "\n{BOLD}{:<14}  {}{BOLD:#}", "searches", table::row(table::NAMES))?;
    for Searches { mode, qps, qps_all, latency, .. } in &throughput.searches {
        writeln!(out, "{mode:<14}  {}", table::row(table::cells(*qps, *qps_all, latency)))?;
    }
    Ok(())
}
