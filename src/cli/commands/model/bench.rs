//! `turnwise model bench`: measures the speed of a model in each precision, and the agreement with f32.

use std::{fs, time::Instant};

use crate::cli::prelude::*;
use crate::{
    cli::{args::ModelBenchArgs, commands, encoders},
    samples,
};
use turnwise_core::vectors::cosine;
use turnwise_encoder::{Encoder, Precision, TextOptions, Vectors, open};

/// Number of texts that are encoded before the measurement, to fill caches and allocate memory.
const WARM_UP: usize = 128;
/// Number of queries for measuring the latency, if no file of queries is given.
const QUERIES: usize = 200;
/// Number of texts per call of the encoder.
const CHUNK: usize = 4096;

#[derive(Serialize)]
struct Run {
    model: String,
    precision: String,
    runs_on: String,
    threads: usize,
    texts: usize,
    tokens: u64,
    seconds: f64,
    /// CPU time of all threads in seconds; `None` if the system does not report it.
    cpu_seconds: Option<f64>,
    latency_ms: Latency,
    #[serde(skip_serializing_if = "Option::is_none")]
    cosine_with_f32: Option<Agreement>,
}

#[derive(Serialize)]
struct Latency {
    queries: usize,
    p50: f64,
    p95: f64,
}

#[derive(Serialize)]
struct Agreement {
    mean: f64,
    min: f32,
}

pub(super) fn run(args: &ModelBenchArgs, context: &Context<'_>) -> Result<()> {
    let read = args.input.iter().chain(&args.latency_input).map(|path| path.to_string_lossy().into_owned());
    let read: Vec<String> = read.collect();
    commands::must_not_overwrite_inputs(args.vectors.as_slice(), read.iter().map(String::as_str))?;
    let texts = match &args.input {
        Some(path) => lines(path)?,
        None => samples::dialogues()?.into_iter().flat_map(|d| d.turns).map(|turn| turn.text).collect(),
    };
    let queries = match &args.latency_input {
        Some(path) => lines(path)?,
        None => texts.iter().take(QUERIES).cloned().collect(),
    };
    let model = args.encoder.model.as_deref().unwrap_or(encoders::DEFAULT_MODEL);
    let wanted = match args.encoder.precision() {
        Some(precision) => vec![Some(precision)],
        None if encoders::is_static(context, model)? => vec![None],
        None => open::precisions(args.encoder.device)?.iter().copied().map(Some).collect(),
    };
    let mut runs = Vec::new();
    let mut reference: Option<Vectors> = None;
    for precision in wanted {
        let encoder = encoders::open(context, model, &args.encoder.settings(precision, args.tokens.given()))?;
        let (mut run, vectors) = measure(encoder.as_ref(), precision, &texts, &queries, context)?;
        run.cosine_with_f32 = reference.as_ref().map(|reference| agreement(reference, &vectors));
        if let Some(path) = &args.vectors {
            encoders::write_npy(path, &vectors)?;
        }
        if precision == Some(Precision::F32) {
            reference = Some(vectors);
        }
        runs.push(run);
    }
    context.printer.results(&runs, |out| write(&runs, out))
}

fn measure(
    encoder: &dyn Encoder,
    precision: Option<Precision>,
    texts: &[String],
    queries: &[String],
    context: &Context<'_>,
) -> Result<(Run, Vectors)> {
    let options = TextOptions::default();
    let all: Vec<&str> = texts.iter().map(String::as_str).collect();
    encoder.encode(&all[..all.len().min(WARM_UP)], &options)?;
    let name = precision.map_or("-", Precision::name);
    let mut progress = ProgressBar::new(context.printer, "measuring", "texts", Some(all.len() as u64));
    let (started, processor) = (Instant::now(), processor_seconds());
    let mut vectors = Vectors::new(encoder.dim());
    let mut tokens = 0;
    for chunk in all.chunks(CHUNK) {
        signals::check()?;
        let encoded = encoder.encode(chunk, &options)?;
        encoded.vectors.rows().for_each(|row| vectors.push(row));
        tokens += encoded.spent.tokens;
        progress.set(vectors.len() as u64, vectors.len() as u64);
    }
    let seconds = started.elapsed().as_secs_f64();
    let cpu_seconds = processor.and_then(|before| Some(processor_seconds()? - before));
    drop(progress);
    let run = Run {
        model: encoder.name().to_owned(),
        precision: name.to_owned(),
        runs_on: encoder.describe(),
        threads: context.settings.threads,
        texts: texts.len(),
        tokens,
        seconds,
        cpu_seconds,
        latency_ms: latency(encoder, queries)?,
        cosine_with_f32: None,
    };
    Ok((run, vectors))
}

/// Measures the time to encode each query alone. To warm up, first encodes five queries without counting their times.
fn latency(encoder: &dyn Encoder, queries: &[String]) -> Result<Latency> {
    let options = TextOptions::default();
    let mut times = Vec::with_capacity(queries.len());
    for query in queries.iter().take(5).chain(queries) {
        signals::check()?;
        let started = Instant::now();
        encoder.encode(&[query.as_str()], &options)?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    let mut times = times.split_off(queries.len().min(5));
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or(0.0);
    Ok(Latency { queries: times.len(), p50: at(0.5), p95: at(0.95) })
}

fn agreement(reference: &Vectors, vectors: &Vectors) -> Agreement {
    // Equal vectors agree, even if both are zero: that of a text without tokens is.
    let agree = |a: &[f32], b: &[f32]| if a == b { 1.0 } else { cosine(a, b) };
    let cosines: Vec<f32> = reference.rows().zip(vectors.rows()).map(|(a, b)| agree(a, b)).collect();
    let mean = cosines.iter().map(|c| f64::from(*c)).sum::<f64>() / cosines.len().max(1) as f64;
    Agreement { mean, min: cosines.into_iter().fold(1.0, f32::min) }
}

fn write(runs: &[Run], out: &mut dyn Write) -> std::io::Result<()> {
    let Some(Run { model, texts, tokens, threads, .. }) = runs.first() else { return Ok(()) };
    let (texts, threads) = (counted(*texts as u64, "text"), counted(*threads as u64, "thread"));
    writeln!(out, "{BOLD}{model}{BOLD:#}  {DIM}{texts}, {} tokens, {threads}{DIM:#}\n", grouped(*tokens))?;
    writeln!(
        out,
        "{DIM}{:<9}  {:>9}  {:>10}  {:>11}  {:>11}  {:>17}  runs on{DIM:#}",
        "precision", "texts/s", "tokens/s", "query p50", "query p95", "cosine with f32"
    )?;
    for run in runs {
        let Run { precision, seconds, latency_ms: Latency { p50, p95, .. }, runs_on, .. } = run;
        let (texts, tokens) = (rate(run.texts as u64, *seconds), rate(run.tokens, *seconds));
        write!(out, "{precision:<9}  {texts:>9}  {tokens:>10}  {p50:>8.2} ms  {p95:>8.2} ms")?;
        let agreement = run.cosine_with_f32.as_ref().map(|a| format!("{:.5} ≥{:.5}", a.mean, a.min));
        writeln!(out, "  {:>17}  {runs_on}", agreement.unwrap_or_default())?;
    }
    Ok(())
}

fn lines(path: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(path).at("read", path)?;
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    match lines.is_empty() {
        false => Ok(lines),
        true => Err(Error::data(format!("{} has no text", path.display()))),
    }
}

/// Returns the CPU time (user and system) of this process in seconds; `None` if the system does not report it. Linux
/// reports it in hundredths of a second.
fn processor_seconds() -> Option<f64> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |n: usize| fields.get(n)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / 100.0)
}
