//! `turnwise bench throughput`: from files to answers, step by step, as `ingest`, `encode`, `index build` and `search` do it.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use rayon::prelude::*;

use super::speeds;
use crate::{
    cli::{
        Context,
        args::ThroughputArgs,
        commands::{self, best_model::Model, encode, index},
        encoders,
        printer::{BOLD, DIM, counted, grouped},
        signals,
    },
    corpus::walk::Plan,
    encoder::Encoder,
    error::{Error, IoContext, Result},
    eval::throughput::{Latency, Pace, Searches, Throughput, a_second},
    random::Random,
    search::{Mode, SearchRequest, Searcher},
    store::{
        Snapshot, Store, files,
        ingest::{Control, IngestOptions, ingest},
    },
};

pub(super) fn run(args: &ThroughputArgs, context: &Context<'_>) -> Result<()> {
    let (plan, read) = commands::plan(&args.paths, &args.read, context)?;
    let bytes = plan.sources.iter().map(|source| source.bytes().unwrap_or(0)).sum();
    let paths = args.paths.iter().map(|path| path.display().to_string()).collect();
    let options = IngestOptions { read, ..IngestOptions::default() };
    let model = |_: &Path, _: &Snapshot| -> Result<Model> {
        let name = args.encoder.model.as_deref().unwrap_or(encoders::DEFAULT_MODEL);
        let precision = if encoders::is_static(context, name)? { None } else { args.encoder.precision() };
        let encoder = encoders::open(context, name, &args.encoder.settings(precision, args.tokens.given()))?;
        Ok(Model { said: encoder.describe(), name: name.to_owned(), encoder })
    };
    std::fs::create_dir_all(&args.results).at("create", &args.results)?;
    let root = Removed(files::beside(&args.results.join("throughput-index")));
    files::remove_folder(&root.0)?;
    let throughput = Throughput::new(paths, bytes);
    let throughput = measured(throughput, &root.0, plan, &options, &model, args.queries, context)?;
    drop(root);
    throughput.write(&args.results)?;
    context.printer.result(&throughput, |out| write(&throughput, out))
}

/// Where the vectors come from, once there is an index.
pub(super) type OpenModel<'a> = &'a dyn Fn(&Path, &Snapshot) -> Result<Model>;

/// Measures with an index that is made where there is none yet.
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
    let stop: &AtomicBool = signals::stop();
    let control = Control { stop, progress: &mut |_| {}, acknowledged: &mut |_| {}, resumed: &mut |_| {} };
    throughput.steps.push(Pace::of("ingest", "turns", || {
        ingest(&mut store, plan, options, control)?;
        Ok(store.view().totals().turns)
    })?);
    let totals = store.view().totals();
    (throughput.dialogues, throughput.turns) = (totals.dialogues, totals.turns);
    store.close()?;
    let snapshot = Snapshot::open(root)?;
    throughput.steps.push(Pace::of("index of words", "turns", || {
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
    let asked = drawn(&snapshot, queries, context.settings.seed)?;
    let encoder: Arc<dyn Encoder> = Arc::from(model.encoder);
    let searcher = Searcher::over(root, snapshot)?.with_encoder(encoder)?;
    for (name, mode) in [("by words", Mode::Bm25), ("by meaning", Mode::Dense), ("by both", Mode::Hybrid)] {
        throughput.searches.push(searched(&searcher, name, mode, &asked)?);
    }
    Ok(throughput)
}

/// What is asked: turns that were said, drawn by chance.
fn drawn(snapshot: &Snapshot, queries: usize, seed: u64) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for dialogue in snapshot.dialogues() {
        texts
            .extend(dialogue?.turns.into_iter().map(|turn| turn.text).filter(|text| !text.trim().is_empty()));
    }
    Random::new(seed, 0).shuffle(&mut texts);
    texts.truncate(queries);
    Ok(texts)
}

/// Asks all, one after the other and then on all threads.
fn searched(searcher: &Searcher, name: &str, mode: Mode, asked: &[String]) -> Result<Searches> {
    let search = |text: &String| {
        let request = SearchRequest { query: text.clone(), mode: Some(mode), ..SearchRequest::default() };
        searcher.search(&request).map(drop)
    };
    // What is opened with the first search is not the search.
    asked.iter().take(3).try_for_each(search)?;
    let mut times = Vec::new();
    for text in asked {
        if signals::stopped() {
            return Err(Error::Interrupted { hint: None });
        }
        let started = Instant::now();
        search(text)?;
        times.push(started.elapsed());
    }
    let started = Instant::now();
    asked.par_iter().try_for_each(search)?;
    let together = started.elapsed();
    Ok(Searches {
        mode: name.to_owned(),
        queries: asked.len(),
        qps: a_second(asked.len(), times.iter().sum()),
        latency: Latency::of(times),
        qps_all: a_second(asked.len(), together),
    })
}

/// A folder that goes when it is no longer needed, whatever happened.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = files::remove_folder(&self.0);
    }
}

pub(super) fn write(throughput: &Throughput, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{BOLD}throughput{BOLD:#} {}", throughput.paths.join(", "))?;
    writeln!(
        out,
        "{DIM}{}, {}, {}; {}; {} threads{DIM:#}\n",
        counted(throughput.dialogues, "dialogue"),
        counted(throughput.turns, "turn"),
        speeds::megabytes(throughput.bytes),
        throughput.encoder,
        throughput.threads
    )?;
    for pace in &throughput.steps {
        writeln!(
            out,
            "{:<14}  {:>9} {:<7}  {:>8.2} s  {:>9}/s",
            pace.step,
            grouped(pace.count),
            pace.unit,
            pace.seconds,
            grouped(pace.a_second() as u64)
        )?;
    }
    writeln!(out, "\n{BOLD}{:<14}  {}{BOLD:#}", "searches", speeds::beside(speeds::NAMES))?;
    for Searches { mode, qps, qps_all, latency, .. } in &throughput.searches {
        writeln!(out, "{mode:<14}  {}", speeds::beside(speeds::cells(*qps, *qps_all, latency)))?;
    }
    Ok(())
}
