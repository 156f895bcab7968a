//! `turnwise train`: trains an encoder on dialogues.

mod by_steps;
mod corpus;
mod curves;
mod evaluating;
mod folder;
mod list;
mod many;
mod mined;
mod objective;
mod recipe;
mod report;
mod running;
mod start;
mod surroundings;
mod teacher;

use std::path::Path;

use crate::cli::{
    Context,
    args::{ReadArgs, TrainArgs, TrainCommand, TrainRunArgs},
    printer::{counted, grouped},
};
use corpus::Read;
use evaluating::{EvaluationData, Tasks};
use folder::{Of, RunFolder};
use running::Reached;
use start::Start;
use surroundings::Surroundings;
use turnwise_core::error::{Error, Result};
use turnwise_encoder::{Device, DeviceChoice};
use turnwise_eval::{data::hash_of_records, halves::Halves};
use turnwise_train::{
    recipe::{Method, Recipe, ResolvedRecipe},
    run::evaluations::MIN_HELD_OUT,
};

pub(crate) fn run(args: &TrainArgs, context: &Context<'_>) -> Result<()> {
    let (args, varied) = match &args.command {
        Some(TrainCommand::List(args)) => return list::run(args, context),
        Some(TrainCommand::Sweep(sweep)) => (&sweep.run, sweep.vary.as_slice()),
        None => (&args.run, &[][..]),
    };
    let recipe = recipe::of(args, context)?;
    if varied.is_empty() && args.seeds.is_none() {
        let place = Place { output: args.output(), resume: args.resume, is_first: true };
        let (reached, recipe) = run_one(recipe, args, &place, context)?;
        return report::end(&reached, &recipe, args.output(), context);
    }
    many::run(&recipe, varied, args, context)
}

/// Folder of a run.
struct Place<'a> {
    output: &'a Path,
    resume: bool,
    /// Whether this is the first of several runs. Messages that apply to all of them are shown once.
    is_first: bool,
}

/// Runs one training. Also returns the recipe with all defaults filled in.
fn run_one(
    recipe: Recipe,
    args: &TrainRunArgs,
    &Place { output, resume, is_first }: &Place<'_>,
    context: &Context<'_>,
) -> Result<(Reached, ResolvedRecipe)> {
    let asked = recipe.clone();
    let (start, recipe) = Start::of(recipe, context)?;
    start.report(&recipe, context);
    let (device, more) = args.devices()?;
    if recipe.steps().is_none() {
        only_one(more)?;
    }
    // Report missing devices before reading any data.
    let open = |choice: &DeviceChoice| Device::open(*choice);
    let devices = std::iter::once(&device).chain(more).map(open).collect::<Result<Vec<Device>>>()?;
    let run_folder = RunFolder::take(output, resume)?;
    let begun = folder::has_run(output);
    if begun {
        run_folder.check_settings(&recipe, &asked)?;
    } else if resume {
        context.printer.say(format!("nothing to resume in {} yet: starting a new run", output.display()));
    }
    let reading = ReadArgs { strip_nicks: recipe.strip_nicks, ..args.read.clone() };
    let room = (!args.in_memory).then(|| run_folder.path());
    let mut read = corpus::read(&recipe.corpus, &reading, room, context)?;
    let (tasks, dev) = evaluating::tasks(&recipe, &reading, context)?;
    exclude(&mut read, &tasks, context)?;
    if is_first {
        warn_of_overlap(&read, &tasks, context)?;
    }
    let aside = hold_out(&mut read, &recipe, context)?;
    if let Some(count) = recipe.dialogues {
        read.subsample(count, recipe.seed);
    }
    let dialogues = &read.dialogues;
    let of = Of {
        dialogues: hash_of_records((0..dialogues.len()).map(|n| dialogues.bytes(n)))?,
        model: start.folder.fingerprint()?.to_string(),
        dev,
    };
    if begun {
        run_folder.check_inputs(&of)?;
        if run_folder.model().exists() {
            context.printer.say(format!("the run in {} has already ended", output.display()));
            return Ok((Reached::before(&run_folder, &recipe)?, recipe));
        }
    }
    let run = Run { recipe: &recipe, start: &start, folder: &run_folder, device, of: &of, context };
    let eval_data = EvaluationData { tasks, aside };
    let reached = match &recipe.method {
        Method::Steps(steps) => by_steps::train(&run, steps, read, eval_data, &devices, room)?,
        Method::Layer(_) => {
            Surroundings { run: &run, folder: &start.folder }.learn_alone(&read, eval_data)?
        }
    };
    Ok((reached, recipe))
}

/// Everything that a run needs, whatever its objective.
struct Run<'a> {
    recipe: &'a ResolvedRecipe,
    start: &'a Start,
    folder: &'a RunFolder,
    device: DeviceChoice,
    of: &'a Of,
    context: &'a Context<'a>,
}

/// Returns an error for several devices if the objective has no steps to distribute.
fn only_one(more: &[DeviceChoice]) -> Result<()> {
    match more.is_empty() {
        true => Ok(()),
        false => Err(Error::input("surroundings has no steps to distribute over several devices")
            .with_hint("use a single one with --device")),
    }
}

/// Removes dialogues that are also in a dev task.
fn exclude(read: &mut Read, tasks: &Tasks, context: &Context<'_>) -> Result<()> {
    let all = read.dialogues.len();
    let left_out = read.exclude(evaluating::dialogues_of(tasks))?;
    if left_out > 0 {
        let those = counted(left_out as u64, "dialogue");
        if left_out == all {
            return Err(Error::data(format!("all {those} of the corpus are also in a dev task"))
                .with_hint("such dialogues are not trained on; `turnwise corpus split` splits a corpus into training and test data"));
        }
        context.printer.say(format!("excluded from training, because a dev task has the same: {those}"));
    }
    Ok(())
}

/// Holds out some dialogues for evaluation, if requested, and reports it.
fn hold_out(read: &mut Read, recipe: &ResolvedRecipe, context: &Context<'_>) -> Result<Option<Halves>> {
    let most = recipe.held_out;
    if most == 0 {
        return Ok(None);
    }
    let tenth = read.dialogues.len() / 10;
    let aside = Halves::new(&read.hold_out(most)?);
    context.printer.say(match &aside {
        Some(halves) => {
            let all_there_are = if tenth < most { ", a tenth of all" } else { "" };
            format!("held out for evaluation: {}{all_there_are}", counted(halves.len() as u64, "dialogue"))
        }
        None => format!(
            "no dialogues are held out for evaluation without labels: {MIN_HELD_OUT} with at least four turns are needed, but a tenth of \
             the corpus is only {}",
            grouped(tenth as u64)
        ),
    });
    Ok(aside)
}

/// Warns about dev tasks that overlap with the corpus.
fn warn_of_overlap(read: &Read, tasks: &Tasks, context: &Context<'_>) -> Result<()> {
    for (task, said, of) in evaluating::overlaps(tasks, &read.dialogues)? {
        context.printer.warn(format!(
            "{} of the {} of {task} are also in the corpus: if they are from the same dialogues, its score will be overestimated; common \
             phrases do no harm",
            grouped(said as u64),
            counted(of as u64, "text")
        ));
    }
    Ok(())
}
