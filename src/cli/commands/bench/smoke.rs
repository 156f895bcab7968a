//! `turnwise bench smoke`: everything once, on the sample dialogues.

use std::{
    io::{self, Cursor, Write},
    path::{Path, PathBuf},
    time::Instant,
};

use serde::Serialize;

use super::{ann, build, on, report, throughput};
use crate::{
    cli::{
        Context,
        args::{
            AnnArgs, BuildCommand, EncoderArgs, GraphBuilder, ReadArgs, RecipeArg, RunArgs, SearchOf,
            SentencesArgs, TokenArgs,
        },
        commands::best_model::{self, Model},
        printer::{BOLD, DIM},
    },
    corpus::{
        Dialogue, formats,
        input::Input,
        walk::{Plan, Source},
    },
    error::{Class, Error, IoContext, Result},
    eval::{
        compare::compare,
        rank::Terms,
        recipe::TaskSpec,
        result::Done,
        tasks::Profile,
        throughput::Throughput,
        trec::{Options, asked, evaluate, read_qrels, read_run},
    },
    samples,
    store::{files, ingest::IngestOptions},
};

/// Sentences of the samples that semantic retrieval is done on, dialogues that responses are chosen in, pairs that are drawn:
/// enough to go all ways, and done in seconds.
const SENTENCES: usize = 600;
const RESPONDED: usize = 20;
const PAIRS: usize = 120;
const RELEASED: &str = "as released";

/// What was done.
#[derive(Serialize)]
struct Smoke {
    schema: &'static str,
    steps: Vec<Step>,
    seconds: f64,
    /// What is not as it must be.
    wrong: Vec<String>,
}

#[derive(Serialize)]
struct Step {
    step: String,
    seconds: f64,
    came: String,
}

impl Smoke {
    /// Does a step that tells what came of it.
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
    let set = Sets { folder: folder.to_owned() };
    let mut smoke =
        Smoke { schema: "turnwise/bench-smoke/1", steps: Vec::new(), seconds: 0.0, wrong: Vec::new() };
    let model = match best_model::fetched(context) {
        Ok(()) => true,
        Err(e) if e.class() == Class::Interrupted => return Err(e),
        Err(why) => {
            context.printer.warn(format!("without the default model, by words alone: {why}"));
            false
        }
    };
    smoke.step("sets", |wrong| set.make(wrong, context))?;
    tasks(&mut smoke, &set, model, context)?;
    measured(&mut smoke, &set, context)?;
    smoke.step("report", |_| {
        let files = [folder.join("report.html"), folder.join("report.md")];
        report::run(&set.of("results"), &files, context)?;
        Ok(files.map(|file| file.display().to_string()).join(", "))
    })?;
    smoke.seconds = started.elapsed().as_secs_f64();
    context.printer.result(&smoke, |out| write(&smoke, out))?;
    match smoke.wrong.len() {
        0 => Ok(()),
        _ => Err(Error::Assertion(format!("not as it must be: {}", smoke.wrong.join("; ")))),
    }
}

fn write(smoke: &Smoke, out: &mut dyn Write) -> io::Result<()> {
    for Step { step, seconds, came } in &smoke.steps {
        writeln!(out, "{BOLD}{step:<22}{BOLD:#} {seconds:>5.1} s  {DIM}{came}{DIM:#}")?;
    }
    let end = if smoke.wrong.is_empty() { "all is as it must be" } else { "NOT all is as it must be" };
    writeln!(out, "{end}, {:.1} s", smoke.seconds)
}

/// The files of the tasks, made of the samples.
struct Sets {
    folder: PathBuf,
}

impl Sets {
    fn of(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.of(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).at("create", parent)?;
        }
        std::fs::write(&path, text).at("write", &path)
    }

    /// Makes them all, by the commands that users have.
    fn make(&self, wrong: &mut Vec<String>, context: &Context<'_>) -> Result<String> {
        for (name, text) in samples::SUPPORT {
            self.write(&format!("dialogues/{name}"), text)?;
        }
        self.write("pairs.tsv", samples::PAIRS)?;
        let all = build::all(&[self.of("dialogues")], &ReadArgs::default(), context)?;
        let some: Vec<String> = all.iter().step_by(all.len() / RESPONDED).map(json).collect::<Result<_>>()?;
        self.write("some.jsonl", &some.join("\n"))?;
        self.known_items(&all)?;
        let sentences = || SentencesArgs {
            path: self.of("dialogues"),
            read: ReadArgs::default(),
            sentences: Some(SENTENCES),
        };
        let commands = [
            BuildCommand::Sr {
                labelled: sentences(),
                output: self.of("select.txt"),
                recipe: RecipeArg::Text,
                terms: Terms::default(),
            },
            BuildCommand::Sr {
                labelled: sentences(),
                output: self.of("released.txt"),
                recipe: RecipeArg::Released,
                terms: Terms::default(),
            },
            BuildCommand::Dsts {
                labelled: sentences(),
                output: self.of("to-score.tsv"),
                key: Some(self.of("to-score.key.tsv")),
                pairs: PAIRS,
                rankers: vec!["bm25".to_owned(), "tfidf".to_owned()],
                encoder: EncoderArgs::default(),
                tokens: TokenArgs::default(),
            },
            BuildCommand::Dial {
                paths: vec![self.of("dialogues")],
                read: ReadArgs::default(),
                output: self.of("dial.jsonl"),
                paper: None,
            },
            BuildCommand::Response {
                paths: vec![self.of("some.jsonl")],
                read: ReadArgs::default(),
                output: self.of("samples.jsonl"),
                of: 10,
                context: 2,
                strip_names: true,
            },
        ];
        commands.iter().try_for_each(|command| build::run(command, context))?;
        let lines = |name: &str| -> Result<usize> {
            let path = self.of(name);
            Ok(std::fs::read_to_string(&path).at("read", &path)?.lines().count())
        };
        for (name, expected) in
            [("dial.jsonl", all.len()), ("select.txt", SENTENCES), ("to-score.tsv", PAIRS)]
        {
            let found = lines(name)?;
            if found != expected {
                wrong.push(format!("{name} has {found} lines, not {expected}"));
            }
        }
        Ok(format!("{} dialogues, {} sentences, {} samples", all.len(), SENTENCES, lines("samples.jsonl")?))
    }

    /// Titles as queries, each of which should find its dialogue, as a folder of BEIR.
    fn known_items(&self, all: &[Dialogue]) -> Result<()> {
        let (mut corpus, mut queries, mut qrels) =
            (String::new(), String::new(), "query-id\tcorpus-id\tscore\n".to_owned());
        for dialogue in all {
            let Some(title) = &dialogue.title else { continue };
            let id = dialogue.id.as_str();
            let said: Vec<&str> = dialogue.turns.iter().map(|turn| turn.text.as_str()).collect();
            corpus += &format!("{}\n", serde_json::json!({"_id": id, "title": "", "text": said.join("\n")}));
            queries += &format!("{}\n", serde_json::json!({"_id": format!("q-{id}"), "text": title}));
            qrels += &format!("q-{id}\t{id}\t1\n");
        }
        self.write("beir/corpus.jsonl", &corpus)?;
        self.write("beir/queries.jsonl", &queries)?;
        self.write("beir/qrels/test.tsv", &qrels)
    }
}

fn json(dialogue: &Dialogue) -> Result<String> {
    serde_json::to_string(dialogue).map_err(|e| Error::Internal(e.to_string()))
}

/// All tasks. Whoever ranks must be better than any order, and what is exported must be judged alike by `eval`.
fn tasks(smoke: &mut Smoke, set: &Sets, model: bool, context: &Context<'_>) -> Result<()> {
    let with = |words: &[&str], dense: &[&str]| -> Vec<String> {
        let dense = if model { dense } else { &[] };
        words.iter().chain(dense).map(|name| (*name).to_owned()).collect()
    };
    let specs = [
        (
            "semantic retrieval",
            TaskSpec::Sr { data: set.of("select.txt"), build: None },
            with(&["bm25", "tfidf"], &["model", "hybrid", "maxsim"]),
        ),
        (
            RELEASED,
            TaskSpec::Sr { data: set.of("released.txt"), build: None },
            with(&["tfidf-svd:32"], &["model+centre"]),
        ),
        (
            "similarity",
            TaskSpec::Dsts { data: set.of("pairs.tsv"), background: None },
            with(&["tfidf:letters"], &["model"]),
        ),
        (
            "dialogues",
            TaskSpec::Dialogues { data: set.of("dial.jsonl"), profile: Profile::Paper },
            with(&["bm25", "tfidf-svd:64", "lda"], &["model"]),
        ),
        (
            "dialogues, as coded",
            TaskSpec::Dialogues { data: set.of("dial.jsonl"), profile: Profile::Code },
            with(&["tfidf-svd:64"], &[]),
        ),
        (
            "response selection",
            TaskSpec::Response { data: set.of("samples.jsonl") },
            with(&["bm25"], &["model"]),
        ),
        (
            "ad-hoc retrieval",
            TaskSpec::Adhoc { data: set.of("beir"), qrels: None },
            with(&["bm25"], &["hybrid"]),
        ),
    ];
    for (name, spec, rankers) in specs {
        smoke.step(name, |wrong| {
            let how = how(set, Some(set.of("runs")), 1);
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
        let spec = TaskSpec::Dialogues { data: set.of("dial.jsonl"), profile: Profile::Paper };
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
    RunArgs { results: set.of("results"), rerun: false, seeds, export, encoder, tokens }
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
    let folder = set.of("results");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .at("read", &folder)?;
    files.sort();
    Ok(files.iter().filter_map(|path| Done::read(path).ok()).collect())
}

/// What was exported, judged as `turnwise eval` does it, has the MAP that the task had.
fn judged_alike(set: &Sets, wrong: &mut Vec<String>) -> Result<String> {
    let folder = set.of("runs");
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
        let done = Done::read(&set.of("results").join(name).with_extension("json"))?;
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

/// Graphs and speed, of an index of the samples.
fn measured(smoke: &mut Smoke, set: &Sets, context: &Context<'_>) -> Result<()> {
    let index = set.of("index");
    smoke.step("throughput", |_| {
        let mut plan = Plan::default();
        for (name, text) in samples::SUPPORT {
            let input = Input::from_stream((*name).to_owned(), None, Box::new(Cursor::new(text.as_bytes())))?;
            plan.sources.push(Source::opened(input, formats::by_name("jsonl")?));
        }
        let bytes = samples::SUPPORT.iter().map(|(_, text)| text.len() as u64).sum();
        let throughput = Throughput::new(vec!["the samples".to_owned()], bytes);
        let options = IngestOptions::default();
        let model = |root: &Path, snapshot: &_| Model::best(root, snapshot, context);
        let throughput = throughput::measured(throughput, &index, plan, &options, &model, 200, context)?;
        throughput.write(&set.of("results"))?;
        let paces = throughput
            .steps
            .iter()
            .map(|pace| format!("{} {:.0} {}/s", pace.step, pace.a_second(), pace.unit));
        Ok(paces.collect::<Vec<_>>().join(", "))
    })?;
    smoke.step("recall and speed", |wrong| {
        let args = AnnArgs {
            vectors: None,
            query_vectors: None,
            queries: 200,
            of: SearchOf::Utterances,
            k: 10,
            ef: vec![10, 32, 128],
            graphs: vec![GraphBuilder::Native, GraphBuilder::HnswRs],
            m: vec![16],
            ef_construction: 128,
            half: false,
            results: set.of("results"),
        };
        let measured = ann::measured(&args, &index, context)?;
        let recalls: Vec<f64> =
            measured.graphs.iter().filter_map(|g| g.settings.last().map(|s| s.recall)).collect();
        if recalls.iter().any(|recall| *recall < 0.95) {
            wrong.push(format!("graphs find {recalls:?} of the nearest"));
        }
        Ok(format!("{} vectors, recall {recalls:.3?}", measured.vectors))
    })
}
