//! Runs all benchmark tasks on the sample dialogues and checks the results.

use super::{Smoke, sets::Sets};
use crate::cli::{
    args::{EncoderArgs, ReadArgs, RunArgs, TokenArgs},
    commands::bench::run_task,
    prelude::*,
};
use turnwise_eval::{
    result::Done,
    significance::compare,
    tasks::{AdHoc, DialogueRetrieval, Profile, ResponseSelection, SemanticRetrieval, Similarity, TaskSpec},
    trec::{Options, evaluate, parse_measures, read_qrels, read_run},
};

const RELEASED: &str = "as released";

/// Runs all tasks. Checks that every ranker beats the random baseline, except on the test set built as in a paper's
/// released code. Also checks that seeds change the results of LDA, and that `turnwise eval` computes the same scores.
pub(super) fn tasks(smoke: &mut Smoke, set: &Sets, model: bool, context: &Context<'_>) -> Result<()> {
    let with = |words: &[&str], dense: &[&str]| -> Vec<String> {
        let dense = if model { dense } else { &[] };
        words.iter().chain(dense).map(|name| (*name).to_owned()).collect()
    };
    let dialogues =
        |profile| TaskSpec::Dialogues(DialogueRetrieval { data: set.path("dial.jsonl"), profile });
    let specs = [
        (
            "semantic retrieval",
            TaskSpec::Sr(SemanticRetrieval { data: set.path("select.txt"), build: None }),
            with(&["bm25", "tfidf"], &["model", "hybrid", "maxsim"]),
        ),
        (
            RELEASED,
            TaskSpec::Sr(SemanticRetrieval { data: set.path("released.txt"), build: None }),
            with(&["tfidf-svd:32"], &["model+center"]),
        ),
        (
            "similarity",
            TaskSpec::Dsts(Similarity { data: set.path("pairs.tsv"), background: None }),
            with(&["tfidf:letters"], &["model"]),
        ),
        ("dialogues", dialogues(Profile::Paper), with(&["bm25", "tfidf-svd:64", "lda"], &["model"])),
        ("dialogues, as coded", dialogues(Profile::Code), with(&["tfidf-svd:64"], &[])),
        (
            "response selection",
            TaskSpec::Response(ResponseSelection { data: set.path("samples.jsonl"), ..Default::default() }),
            with(&["bm25"], &["model"]),
        ),
        (
            "ad-hoc retrieval",
            TaskSpec::Adhoc(AdHoc { data: set.path("beir"), qrels: None }),
            with(&["bm25", "tfidf-svd:64"], &[]),
        ),
    ];
    for (name, spec, rankers) in specs {
        smoke.step(name, |wrong| {
            let how = how(set, Some(set.path("runs")), 1);
            let results = run_task(&spec, Path::new(""), &ReadArgs::default(), &how, &rankers, context)?;
            // The test set built as in the paper's released code chooses negatives by BM25 and positives at random.
            // Lexical rankers therefore rank the negatives first and are below the baseline.
            if name != RELEASED {
                results.iter().for_each(|done| check_above_baseline(done, wrong));
            }
            Ok(describe(&results))
        })?;
    }
    smoke.step("seeds", |wrong| {
        let (spec, how, rankers) = (dialogues(Profile::Paper), how(set, None, 3), ["lda".to_owned()]);
        let results = run_task(&spec, Path::new(""), &ReadArgs::default(), &how, &rankers, context)?;
        if results.iter().flat_map(|done| &done.values).all(|value| value.deviation == Some(0.0)) {
            wrong.push("three seeds of LDA are the same".to_owned());
        }
        Ok(describe(&results))
    })?;
    smoke.step("judged by eval", |wrong| check_eval_agrees(set, wrong))?;
    smoke.step("compared", |wrong| {
        let results = saved(set)?;
        let of_sr = |done: &&Done| done.task == "sr" && done.data.paths[0].ends_with("select.txt");
        let two: Vec<&Done> = results.iter().filter(of_sr).take(2).collect();
        let [a, b] = two[..] else {
            return Err(Error::Internal("two results were made and are not there".to_owned()));
        };
        let differences = compare(a, b, context.settings.seed);
        if !differences.iter().all(|d| d.interval.0 <= d.interval.1 && (0.0..=1.0).contains(&d.p)) {
            wrong.push(format!("{} against {}: invalid interval or p-value", a.ranker, b.ranker));
        }
        Ok(format!("{} and {} in {} measures", a.ranker, b.ranker, differences.len()))
    })
}

fn how(set: &Sets, export: Option<PathBuf>, seeds: u64) -> RunArgs {
    let (encoder, tokens) = (EncoderArgs::default(), TokenArgs::default());
    RunArgs { results: set.path("results"), rerun: false, seeds, export, encoder, tokens }
}

/// Formats the first measure of each result, such as `MAP 61.2 by BM25, …`.
fn describe(results: &[Done]) -> String {
    let of = |done: &Done| {
        let value = done.values.first()?;
        Some(format!("{} {:.1} by {}", value.measure, 100.0 * value.value, done.ranker))
    };
    results.iter().filter_map(of).collect::<Vec<_>>().join(", ")
}

fn check_above_baseline(done: &Done, wrong: &mut Vec<String>) {
    for value in &done.values {
        if value.floor.is_some_and(|floor| value.value <= floor) {
            let Done { ranker, task, .. } = done;
            wrong.push(format!("{ranker}: {} is not above the random baseline in {task}", value.measure));
        }
    }
}

/// Reads all saved results, in the order of their file names.
fn saved(set: &Sets) -> Result<Vec<Done>> {
    let files = files_in(&set.path("results"))?;
    Ok(files.iter().filter_map(|path| Done::read(path).ok()).collect())
}

/// Returns the sorted paths of the files in a folder.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder);
    let files = entries.and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect());
    let mut files: Vec<PathBuf> = files.at("read", folder)?;
    files.sort();
    Ok(files)
}

/// Checks that `turnwise eval`, given the exported runs, computes the same MAP and MRR as the tasks.
fn check_eval_agrees(set: &Sets, wrong: &mut Vec<String>) -> Result<String> {
    let mut runs = files_in(&set.path("runs"))?;
    runs.retain(|path| path.extension().is_some_and(|ending| ending == "run"));
    let measures = parse_measures(&["map".to_owned(), "recip_rank".to_owned()])?;
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
            // The order of a sum changes its last digits.
            if done.value(measure).is_some_and(|value| (value.value - judged).abs() > 1e-9) {
                wrong.push(format!("`eval` computes a different {measure} for {}", run.display()));
            }
        }
    }
    Ok(format!("{} exported runs", runs.len()))
}
