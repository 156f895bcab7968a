//! All tasks on the samples, and whether what comes of them is as it must be.

use std::path::{Path, PathBuf};

use super::{Smoke, sets::Sets};
use crate::cli::{
    Context,
    args::{EncoderArgs, ReadArgs, RunArgs, TokenArgs},
    commands::bench::on,
};
use turnwise_core::error::{Error, IoContext, Result};
use turnwise_eval::{
    compare::compare,
    recipe::TaskSpec,
    result::Done,
    tasks::Profile,
    trec::{Options, asked, evaluate, read_qrels, read_run},
};

const RELEASED: &str = "as released";

/// All tasks. Whoever ranks must be better than any order, and what is exported must be judged alike by `eval`.
pub(super) fn tasks(smoke: &mut Smoke, set: &Sets, model: bool, context: &Context<'_>) -> Result<()> {
    let with = |words: &[&str], dense: &[&str]| -> Vec<String> {
        let dense = if model { dense } else { &[] };
        words.iter().chain(dense).map(|name| (*name).to_owned()).collect()
    };
    let specs = [
        (
            "semantic retrieval",
            TaskSpec::Sr { data: set.path("select.txt"), build: None },
            with(&["bm25", "tfidf"], &["model", "hybrid", "maxsim"]),
        ),
        (
            RELEASED,
            TaskSpec::Sr { data: set.path("released.txt"), build: None },
            with(&["tfidf-svd:32"], &["model+centre"]),
        ),
        (
            "similarity",
            TaskSpec::Dsts { data: set.path("pairs.tsv"), background: None },
            with(&["tfidf:letters"], &["model"]),
        ),
        (
            "dialogues",
            TaskSpec::Dialogues { data: set.path("dial.jsonl"), profile: Profile::Paper },
            with(&["bm25", "tfidf-svd:64", "lda"], &["model"]),
        ),
        (
            "dialogues, as coded",
            TaskSpec::Dialogues { data: set.path("dial.jsonl"), profile: Profile::Code },
            with(&["tfidf-svd:64"], &[]),
        ),
        (
            "response selection",
            TaskSpec::Response { data: set.path("samples.jsonl") },
            with(&["bm25"], &["model"]),
        ),
        (
            "ad-hoc retrieval",
            TaskSpec::Adhoc { data: set.path("beir"), qrels: None },
            with(&["bm25", "tfidf-svd:64"], &[]),
        ),
    ];
    for (name, spec, rankers) in specs {
        smoke.step(name, |wrong| {
            let how = how(set, Some(set.path("runs")), 1);
            let results = on(&spec, Path::new(""), &ReadArgs::default(), &how, &rankers, context)?;
            // As released, those of another intent are chosen by their words and those of the same are not: words, and
            // what goes by them, put the wrong ones first.
            if name != RELEASED {
                results.iter().for_each(|done| better_than_any_order(done, wrong));
            }
            Ok(told(&results))
        })?;
    }
    smoke.step("seeds", |wrong| {
        let spec = TaskSpec::Dialogues { data: set.path("dial.jsonl"), profile: Profile::Paper };
        let results =
            on(&spec, Path::new(""), &ReadArgs::default(), &how(set, None, 3), &["lda".to_owned()], context)?;
        if results.iter().flat_map(|done| &done.values).all(|value| value.deviation == Some(0.0)) {
            wrong.push("three seeds of LDA are the same".to_owned());
        }
        Ok(told(&results))
    })?;
    smoke.step("judged by eval", |wrong| judged_alike(set, wrong))?;
    smoke.step("compared", |wrong| {
        let results = kept(set)?;
        let two: Vec<&Done> = results
            .iter()
            .filter(|done| done.task == "sr" && done.data.paths[0].ends_with("select.txt"))
            .take(2)
            .collect();
        let [a, b] = two[..] else {
            return Err(Error::Internal("two results were made and are not there".to_owned()));
        };
        let differences = compare(a, b, context.settings.seed);
        if !differences.iter().all(|d| d.interval.0 <= d.interval.1 && (0.0..=1.0).contains(&d.p)) {
            wrong.push(format!("{} against {}: an interval or a probability is none", a.ranker, b.ranker));
        }
        Ok(format!("{} and {} in {} measures", a.ranker, b.ranker, differences.len()))
    })
}

fn how(set: &Sets, export: Option<PathBuf>, seeds: u64) -> RunArgs {
    let (encoder, tokens) = (EncoderArgs::default(), TokenArgs::default());
    RunArgs { results: set.path("results"), rerun: false, seeds, export, encoder, tokens }
}

/// The first measure of each ranker: `MAP 61.2 by BM25, …`.
fn told(results: &[Done]) -> String {
    let of = |done: &Done| {
        let value = done.values.first()?;
        Some(format!("{} {:.1} by {}", value.measure, 100.0 * value.value, done.ranker))
    };
    results.iter().filter_map(of).collect::<Vec<_>>().join(", ")
}

fn better_than_any_order(done: &Done, wrong: &mut Vec<String>) {
    for value in &done.values {
        if value.floor.is_some_and(|floor| value.value <= floor) {
            wrong.push(format!(
                "{} has no more {} than any order in {}",
                done.ranker, value.measure, done.task
            ));
        }
    }
}

/// All results that were kept.
fn kept(set: &Sets) -> Result<Vec<Done>> {
    let folder = set.path("results");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .at("read", &folder)?;
    files.sort();
    Ok(files.iter().filter_map(|path| Done::read(path).ok()).collect())
}

/// What was exported, judged as `turnwise eval` does it, has the MAP that the task had.
fn judged_alike(set: &Sets, wrong: &mut Vec<String>) -> Result<String> {
    let folder = set.path("runs");
    let mut runs: Vec<PathBuf> = std::fs::read_dir(&folder)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .at("read", &folder)?;
    runs.retain(|path| path.extension().is_some_and(|ending| ending == "run"));
    let measures = asked(&["map".to_owned(), "recip_rank".to_owned()])?;
    for run in &runs {
        let evaluation = evaluate(
            &read_qrels(&run.with_extension("qrels"))?,
            &read_run(run)?,
            &measures,
            Options { level: 1, complete: false },
        );
        let name = run.file_name().unwrap_or_default();
        let done = Done::read(&set.path("results").join(name).with_extension("json"))?;
        for (n, measure) in ["MAP", "MRR"].iter().enumerate() {
            let judged = evaluation.queries.values().map(|values| values[n]).sum::<f64>()
                / evaluation.queries.len() as f64;
            // Sums in another order differ in the last digits.
            if done.value(measure).is_some_and(|value| (value.value - judged).abs() > 1e-9) {
                wrong.push(format!("`eval` has another {measure} of {}", run.display()));
            }
        }
    }
    Ok(format!("{} exported runs", runs.len()))
}
