//! `turnwise bench smoke`: runs every benchmark once on the sample dialogues.

mod sets;
mod tasks;

use std::time::Instant;

use super::{ann, report, throughput};
use crate::cli::prelude::*;
use crate::{
    cli::{
        args::AnnArgs,
        commands::{
            best_model::{self, Model},
            demo::samples_plan,
        },
    },
    samples,
};
use sets::Sets;
use turnwise_core::{error::Class, files};
use turnwise_eval::throughput::{Pace, Throughput};
use turnwise_index::dense::Builder;
use turnwise_search::HitKind;
use turnwise_store::ingest::IngestOptions;

/// Result of `turnwise bench smoke`, printed as text or JSON.
#[derive(Serialize)]
struct Smoke {
    schema: &'static str,
    steps: Vec<Step>,
    seconds: f64,
    /// Descriptions of the failed checks.
    wrong: Vec<String>,
}

#[derive(Serialize)]
struct Step {
    step: String,
    seconds: f64,
    /// One-line report of the results of the step.
    came: String,
}

impl Smoke {
    /// Runs the step `f`, and records its report and its duration. `f` adds failed checks to the list that it receives.
    fn step(&mut self, step: &str, f: impl FnOnce(&mut Vec<String>) -> Result<String>) -> Result<()> {
        let started = Instant::now();
        let came = f(&mut self.wrong)?;
        self.steps.push(Step { step: step.to_owned(), seconds: started.elapsed().as_secs_f64(), came });
        Ok(())
    }
}

pub(super) fn run(folder: &Path, context: &Context<'_>) -> Result<()> {
    let started = Instant::now();
    files::remove_folder(folder)?;
    let set = Sets::of(folder);
    let mut smoke =
        Smoke { schema: "turnwise/bench-smoke/1", steps: Vec::new(), seconds: 0.0, wrong: Vec::new() };
    let model = match best_model::fetch_default(context) {
        Ok(()) => true,
        Err(e) if e.class() == Class::Interrupted => return Err(e),
        Err(why) => {
            context.printer.warn(format!("without the default model, using lexical rankers only: {why}"));
            false
        }
    };
    smoke.step("sets", |wrong| set.make(wrong, context))?;
    tasks::tasks(&mut smoke, &set, model, context)?;
    measured(&mut smoke, &set, context)?;
    smoke.step("report", |_| {
        let files = [folder.join("report.html"), folder.join("report.md")];
        report::run(&set.path("results"), &files, context)?;
        Ok(files.map(|file| file.display().to_string()).join(", "))
    })?;
    smoke.seconds = started.elapsed().as_secs_f64();
    context.printer.result(&smoke, |out| write(&smoke, out))?;
    match smoke.wrong.len() {
        0 => Ok(()),
        _ => Err(Error::Assertion(format!("checks failed: {}", smoke.wrong.join("; ")))),
    }
}

fn write(smoke: &Smoke, out: &mut dyn Write) -> io::Result<()> {
    for Step { step, seconds, came } in &smoke.steps {
        writeln!(out, "{BOLD}{step:<22}{BOLD:#} {seconds:>5.1} s  {DIM}{came}{DIM:#}")?;
    }
    let end = if smoke.wrong.is_empty() { "all checks passed" } else { "checks FAILED" };
    writeln!(out, "{end}, {:.1} s", smoke.seconds)
}

/// Measures throughput and graph recall on an index of the samples.
fn measured(smoke: &mut Smoke, set: &Sets, context: &Context<'_>) -> Result<()> {
    let index = set.path("index");
    smoke.step("throughput", |_| {
        let plan = samples_plan()?;
        let bytes = samples::SUPPORT.iter().map(|(_, text)| text.len() as u64).sum();
        let throughput = Throughput::new(vec!["the samples".to_owned()], bytes);
        let options = IngestOptions::default();
        let model = |root: &Path, snapshot: &_| Model::best(root, snapshot, context);
        let throughput = throughput::measured(throughput, &index, plan, &options, &model, 200, context)?;
        throughput.write(&set.path("results"))?;
        let pace = |pace: &Pace| format!("{} {:.0} {}/s", pace.step, pace.a_second(), pace.unit);
        Ok(throughput.steps.iter().map(pace).collect::<Vec<_>>().join(", "))
    })?;
    smoke.step("recall and speed", |wrong| {
        let args = AnnArgs {
            vectors: None,
            query_vectors: None,
            queries: 200,
            of: HitKind::Utterances,
            k: 10,
            ef: vec![10, 32, 128],
            graphs: vec![Builder::Native, Builder::HnswRs],
            m: vec![16],
            ef_construction: 128,
            half: false,
            results: set.path("results"),
        };
        let measured = ann::measured(&args, &index, context)?;
        let recalls: Vec<f64> =
            measured.graphs.iter().filter_map(|g| g.settings.last().map(|s| s.recall)).collect();
        if recalls.iter().any(|recall| *recall < 0.95) {
            wrong.push(format!("graphs have a recall of only {recalls:?}"));
        }
        let graphs = measured.graphs.iter().zip(&recalls);
        let graphs: Vec<_> = graphs.map(|(graph, recall)| format!("{} {recall:.3}", graph.builder)).collect();
        Ok(format!("{} vectors, recall {}", measured.vectors, graphs.join(", ")))
    })
}
