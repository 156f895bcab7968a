//! `turnwise bench`: the papers' tasks, by whoever ranks.

mod build;
mod compare;
mod export;
mod rankers;
mod recipes;
mod report;
mod table;

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use super::convert::each_dialogue;
use crate::{
    cli::{
        Context,
        args::{BenchCommand, ReadArgs, RunArgs},
        watching::Watching,
    },
    error::{Error, Result},
    eval::{
        build::retrieval_set,
        data,
        rank::{Ranker, Step, Terms},
        recipe::TaskSpec,
        result::{Data, Done, Of},
        tasks::{DialogueTask, Task},
    },
};

pub(super) fn run(command: BenchCommand, context: &Context<'_>) -> Result<()> {
    let (spec, read, how) = match command {
        BenchCommand::Sr { file, how } => (TaskSpec::Sr { data: file, build: None }, None, how),
        BenchCommand::Dsts { file, background, how } => {
            (TaskSpec::Dsts { data: file, background }, None, how)
        }
        BenchCommand::Response { file, how } => (TaskSpec::Response { data: file }, None, how),
        BenchCommand::Adhoc { folder, qrels, how } => (TaskSpec::Adhoc { data: folder, qrels }, None, how),
        BenchCommand::Dialogues { path, read, profile, how } => {
            (TaskSpec::Dialogues { data: path, profile: profile.into() }, Some(read), how)
        }
        BenchCommand::Build(command) => return build::run(&command, context),
        BenchCommand::Compare { a, b } => return compare::run(&a, &b, context),
        BenchCommand::List(args) => return recipes::list(&args, context),
        BenchCommand::Reproduce { recipes, report, run } => {
            return recipes::reproduce(&recipes, report.as_deref(), &run, context);
        }
    };
    let results = on(&spec, Path::new(""), &read.unwrap_or_default(), &how.run, &how.rankers, context)?;
    context.printer.results(&results, |out| table::write(out, &results, &how.run.results))
}

/// Does a task by some rankers. Its files lie below a folder.
fn on(
    spec: &TaskSpec,
    folder: &Path,
    read: &ReadArgs,
    how: &RunArgs,
    rankers: &[String],
    context: &Context<'_>,
) -> Result<Vec<Done>> {
    let watch = Watching::new(context.printer);
    let done = |task: &dyn Task, files: &[PathBuf], hash: String| {
        by_rankers(task, &named(task, files, hash), how, rankers, context, &watch)
    };
    match spec {
        TaskSpec::Sr { data: file, build: None } => {
            let file = folder.join(file);
            done(&data::semantic_retrieval(&file)?, std::slice::from_ref(&file), data::hash(&[&file])?)
        }
        TaskSpec::Sr { data: file, build: Some(recipe) } => {
            let file = folder.join(file);
            let sentences = data::labelled(&file)?;
            let set = retrieval_set(sentences, *recipe, Terms::default(), context.settings.seed, &watch)?;
            let mut made = Vec::new();
            set.write(&mut made).map_err(|e| Error::Internal(e.to_string()))?;
            let hash = blake3::hash(&made).to_hex()[..32].to_owned();
            done(&data::semantic_retrieval_of(made.as_slice(), &file)?, std::slice::from_ref(&file), hash)
        }
        TaskSpec::Dsts { data: file, background } => {
            let (file, background) = (folder.join(file), background.as_ref().map(|path| folder.join(path)));
            let sentences = background.as_deref().map(data::sentences).transpose()?.unwrap_or_default();
            let task = data::sentence_pairs(&file, sentences)?;
            let files: Vec<PathBuf> = std::iter::once(file).chain(background).collect();
            done(&task, &files, data::hash(&files)?)
        }
        TaskSpec::Response { data: file } => {
            let file = folder.join(file);
            done(&data::response_selection(&file)?, std::slice::from_ref(&file), data::hash(&[&file])?)
        }
        TaskSpec::Adhoc { data: files, qrels } => {
            let qrels = qrels.as_ref().map(|path| folder.join(path));
            let (task, files) = data::ad_hoc(&folder.join(files), qrels.as_deref())?;
            done(&task, &files, data::hash(&files)?)
        }
        TaskSpec::Dialogues { data: path, profile } => {
            let path = folder.join(path);
            let mut dialogues = Vec::new();
            let problems =
                each_dialogue(std::slice::from_ref(&path), read, "reading", context, &mut |dialogue| {
                    dialogues.push(dialogue);
                    Ok(())
                })?;
            problems.into_result()?;
            let hash = data::hash_of_dialogues(&dialogues)?;
            let task = DialogueTask::new(dialogues, *profile, context.settings.seed)?;
            done(&task, std::slice::from_ref(&path), hash)
        }
    }
}

fn named(task: &dyn Task, files: &[PathBuf], hash: String) -> Data {
    let paths = files.iter().map(|path| path.display().to_string()).collect();
    Data { paths, hash, size: task.size() }
}

fn by_rankers(
    task: &dyn Task,
    data: &Data,
    how: &RunArgs,
    rankers: &[String],
    context: &Context<'_>,
    watch: &Watching<'_, Step>,
) -> Result<Vec<Done>> {
    let mut results = Vec::new();
    rankers::each(rankers, how, task, context, &mut |ranker| {
        let (name, identity) = (ranker.name(), ranker.identity());
        let of = Of { task, data, ranker: (&name, &identity) };
        let known = if how.rerun || how.export.is_some() { None } else { of.known(&how.results) };
        results.push(match known {
            Some(done) => {
                context
                    .printer
                    .detail(format!("{name}: done before, in {}", of.path(&how.results).display()));
                done
            }
            None => rank(ranker, of, how, watch)?,
        });
        Ok(())
    })?;
    Ok(results)
}

fn rank(ranker: &dyn Ranker, of: Of<'_>, how: &RunArgs, watch: &Watching<'_, Step>) -> Result<Done> {
    let started = Instant::now();
    let scorer = ranker.prepare(of.task.pool(), watch)?;
    let outcome = of.task.run(scorer.as_ref(), how.export.is_some(), watch)?;
    let seconds = started.elapsed().as_secs_f64();
    let path = of.path(&how.results);
    if let Some(folder) = &how.export {
        export::write(&outcome, &path, folder, &ranker.name())?;
    }
    let done = of.done(outcome, seconds);
    done.write(&path)?;
    Ok(done)
}

/// The name of a file without its ending.
fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}
