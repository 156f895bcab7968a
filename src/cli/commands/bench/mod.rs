//! `turnwise bench`: runs benchmark tasks with rankers, which are ranking methods such as BM25 or a model.

mod ann;
mod build;
mod compare;
mod rankers;
mod recipes;
mod replies;
mod report;
mod searched;
mod smoke;
mod table;
mod throughput;

use std::time::Instant;

use super::convert::each_dialogue;
use crate::cli::{
    args::{BenchCommand, ReadArgs, RunArgs},
    prelude::*,
    progress::StepProgress,
    settings::Origin,
};
use rankers::RankerOptions;
use turnwise_corpus::output::Output;
use turnwise_eval::{
    rank::{Ranker, Step},
    result::{Data, Done, Of},
    tasks::{LoadOptions, Loaded, Outcome, Task, TaskSpec},
    trec::{write_qrels, write_run},
};

#[cfg(feature = "serve")]
pub(super) use report::as_page as report_page;

pub(super) fn run(command: BenchCommand, context: &Context<'_>) -> Result<()> {
    refuse_engine(&command, context)?;
    match command {
        BenchCommand::Task(task) => {
            let (spec, how, read) = task.split();
            let results = run_task(&spec, Path::new(""), &read, &how.run, &how.rankers, context)?;
            let printed = table::Printed::all(&results, context.settings.seed);
            context.printer.results(&printed, |out| table::write(out, &printed, &how.run.results))
        }
        BenchCommand::Respond(args) => replies::run(&args, context),
        BenchCommand::Ann(args) => ann::run(&args, context),
        BenchCommand::Throughput(args) => throughput::run(&args, context),
        BenchCommand::Smoke { folder } => smoke::run(&folder, context),
        BenchCommand::Build(command) => build::run(&command, context),
        BenchCommand::Compare { a, b } => compare::run(&a, &b, context),
        BenchCommand::List(args) => recipes::list(&args, context),
        BenchCommand::Run { names, place, run } => recipes::run(&names, &place, &run, context),
        BenchCommand::Reproduce { recipes, report, run } => {
            recipes::reproduce(&recipes, &report, &run, context)
        }
        BenchCommand::Report { results, output } => report::run(&results, &output, context),
    }
}

/// Returns an error if `--engine` is given for a benchmark that reads files instead of an index.
fn refuse_engine(command: &BenchCommand, context: &Context<'_>) -> Result<()> {
    let Some((address, Origin::Flag(_))) = context.settings.origins.get("engine") else { return Ok(()) };
    match command {
        BenchCommand::Throughput(_) => Ok(()),
        // These report the error themselves: they need the files of a local index.
        BenchCommand::Ann(args) if args.vectors.is_none() => Ok(()),
        BenchCommand::Respond(_) => Ok(()),
        _ => Err(Error::Unsupported {
            message: format!("this task ranks its own files in memory and does not use {address}"),
            hint: Some(
                "`bench throughput --engine` measures the speed of an engine; `search --queries FILE --run NAME` and `eval` measure its quality"
                    .to_owned(),
            ),
        }),
    }
}

/// Loads a benchmark task and its data. The paths in `spec` are relative to `folder`.
pub(super) fn load(
    spec: &TaskSpec,
    folder: &Path,
    read: &ReadArgs,
    seed: u64,
    context: &Context<'_>,
) -> Result<(Box<dyn Task>, Data)> {
    let read_dialogues = |path: &Path| build::all_dialogues(&[path.to_owned()], read, context);
    let progress = StepProgress::new(context.printer);
    let with = LoadOptions { seed, read_dialogues: &read_dialogues, progress: &progress };
    let Loaded { task, data } = spec.settings().load(folder, &with)?;
    Ok((task, data))
}

/// Runs a task with each ranker and each seed. Returns one result per ranker: the mean if there are several seeds. The
/// paths in `spec` are relative to `folder`.
fn run_task(
    spec: &TaskSpec,
    folder: &Path,
    read: &ReadArgs,
    how: &RunArgs,
    rankers: &[String],
    context: &Context<'_>,
) -> Result<Vec<Done>> {
    let first = context.settings.seed;
    let with = |seed: u64| -> Result<Vec<Done>> {
        let (task, data) = load(spec, folder, read, seed, context)?;
        by_rankers(task.as_ref(), &data, how, rankers, seed, context)
    };
    if how.seeds == 1 {
        return with(first);
    }
    let of_seeds = (0..how.seeds).map(|n| with(first + n)).collect::<Result<Vec<Vec<Done>>>>()?;
    let mut results = Vec::new();
    for ranker in 0..rankers.len() {
        let seeds: Vec<Done> = of_seeds.iter().filter_map(|done| done.get(ranker).cloned()).collect();
        if let Some(done) = Done::over(&seeds) {
            done.write(&done.path(&how.results))?;
            results.push(done);
        }
    }
    Ok(results)
}

fn by_rankers(
    task: &dyn Task,
    data: &Data,
    how: &RunArgs,
    rankers: &[String],
    seed: u64,
    context: &Context<'_>,
) -> Result<Vec<Done>> {
    let progress = StepProgress::new(context.printer);
    let options = task.identity();
    let mut results = Vec::new();
    let asked = RankerOptions {
        encoder: &how.encoder,
        tokens: &how.tokens,
        classes: task.classes(),
        memory: task.memory(),
        seed,
    };
    rankers::each(rankers, &asked, context, &mut |ranker| {
        let (name, identity) = (ranker.name(), ranker.identity());
        let of = Of { task: task.into(), options: &options, data, ranker: (&name, &identity), seed };
        let known = if how.rerun || how.export.is_some() { None } else { of.known(&how.results) };
        results.push(match known {
            // A result that does not depend on the seed is saved once. Here it gets the seed of this run.
            Some(done) => {
                context
                    .printer
                    .detail(format!("{name}: already done, result in {}", of.path(&how.results).display()));
                Done { seed, ..done }
            }
            None => rank(task, ranker, of, how, &progress)?,
        });
        Ok(())
    })?;
    Ok(results)
}

fn rank(
    task: &dyn Task,
    ranker: &dyn Ranker,
    of: Of<'_>,
    how: &RunArgs,
    progress: &StepProgress<'_, Step>,
) -> Result<Done> {
    let started = Instant::now();
    let scorer = ranker.prepare(task.pool(), progress)?;
    let outcome = task.run(scorer.as_ref(), how.export.is_some(), progress)?;
    let seconds = started.elapsed().as_secs_f64();
    let path = of.path(&how.results);
    if let Some(folder) = &how.export {
        export(&outcome, &path, folder, &ranker.name())?;
    }
    let done = of.done(outcome, seconds);
    done.write(&path)?;
    Ok(done)
}

/// Writes `NAME.run` and `NAME.qrels` for rankings, and `NAME.*.tsv` for tables of other values. NAME is the name of
/// the result file without its extension.
fn export(outcome: &Outcome, result: &Path, folder: &Path, tag: &str) -> Result<()> {
    let name = folder.join(result.file_name().unwrap_or_default());
    for columns in &outcome.columns {
        let mut out = Output::create(&name.with_extension(format!("{}.tsv", columns.name)))?;
        let lines = std::iter::once(&columns.names).chain(&columns.rows);
        lines.map(|cells| cells.join("\t")).try_for_each(|line| out.with(|out| writeln!(out, "{line}")))?;
        out.finish()?;
    }
    if outcome.rankings.is_empty() {
        return Ok(());
    }
    let mut run = Output::create(&name.with_extension("run"))?;
    let mut qrels = Output::create(&name.with_extension("qrels"))?;
    for ranked in &outcome.rankings {
        let documents = ranked.documents.iter();
        run.with(|out| {
            write_run(out, &ranked.query, documents.clone().map(|(id, score, _)| (id.as_str(), *score)), tag)
        })?;
        let judged = documents.filter_map(|(id, _, grade)| Some((id.as_str(), (*grade)?)));
        qrels.with(|out| write_qrels(out, &ranked.query, judged))?;
    }
    run.finish()?;
    qrels.finish()
}
