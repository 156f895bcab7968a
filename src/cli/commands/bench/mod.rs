//! `turnwise bench`: the papers' tasks, by whoever ranks.

mod build;
mod compare;
mod export;
mod rankers;
mod table;

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use super::convert::each_dialogue;
use crate::{
    cli::{
        Context,
        args::{BenchArgs, BenchCommand},
        watching::Watching,
    },
    error::Result,
    eval::{
        data,
        rank::Ranker,
        result::{Data, Done, Of},
        tasks::{DialogueTask, Task},
    },
};

pub(super) fn run(command: &BenchCommand, context: &Context<'_>) -> Result<()> {
    match command {
        BenchCommand::Sr { file, how } => {
            bench(&data::semantic_retrieval(file)?, std::slice::from_ref(file), how, context)
        }
        BenchCommand::Dsts { file, background, how } => {
            let sentences = background.as_deref().map(data::sentences).transpose()?.unwrap_or_default();
            let files: Vec<PathBuf> = std::iter::once(file).chain(background).cloned().collect();
            bench(&data::sentence_pairs(file, sentences)?, &files, how, context)
        }
        BenchCommand::Response { file, how } => {
            bench(&data::response_selection(file)?, std::slice::from_ref(file), how, context)
        }
        BenchCommand::Adhoc { folder, qrels, how } => {
            let (task, files) = data::ad_hoc(folder, qrels.as_deref())?;
            bench(&task, &files, how, context)
        }
        BenchCommand::Dialogues { paths, read, profile, how } => {
            let mut dialogues = Vec::new();
            let problems = each_dialogue(paths, read, "reading", context, &mut |dialogue| {
                dialogues.push(dialogue);
                Ok(())
            })?;
            problems.into_result()?;
            let hash = data::hash_of_dialogues(&dialogues)?;
            let task = DialogueTask::new(dialogues, (*profile).into(), context.settings.seed)?;
            by_rankers(&task, paths, hash, how, context)
        }
        BenchCommand::Build(command) => build::run(command, context),
        BenchCommand::Compare { a, b } => compare::run(a, b, context),
    }
}

fn bench(task: &dyn Task, files: &[PathBuf], args: &BenchArgs, context: &Context<'_>) -> Result<()> {
    by_rankers(task, files, data::hash(files)?, args, context)
}

fn by_rankers(
    task: &dyn Task,
    paths: &[PathBuf],
    hash: String,
    args: &BenchArgs,
    context: &Context<'_>,
) -> Result<()> {
    let data = Data {
        paths: paths.iter().map(|path| path.display().to_string()).collect(),
        hash,
        size: task.size(),
    };
    let watch = Watching::new(context.printer);
    let mut results: Vec<Done> = Vec::new();
    rankers::each(args, task, context, &mut |ranker| {
        let (name, identity) = (ranker.name(), ranker.identity());
        let of = Of { task, data: &data, ranker: (&name, &identity) };
        let known = if args.rerun || args.export.is_some() { None } else { of.known(&args.results) };
        results.push(match known {
            Some(done) => {
                context
                    .printer
                    .detail(format!("{name}: done before, in {}", of.path(&args.results).display()));
                done
            }
            None => rank(ranker, of, args, &watch)?,
        });
        Ok(())
    })?;
    drop(watch);
    context.printer.results(&results, |out| table::write(out, &results, &args.results))
}

fn rank(
    ranker: &dyn Ranker,
    of: Of<'_>,
    args: &BenchArgs,
    watch: &Watching<'_, crate::eval::rank::Step>,
) -> Result<Done> {
    let started = Instant::now();
    let scorer = ranker.prepare(of.task.pool(), watch)?;
    let outcome = of.task.run(scorer.as_ref(), args.export.is_some(), watch)?;
    let seconds = started.elapsed().as_secs_f64();
    let path: PathBuf = of.path(&args.results);
    if let Some(folder) = &args.export {
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
