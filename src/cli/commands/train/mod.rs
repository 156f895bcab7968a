//! `turnwise train`: an encoder that has learned from dialogues.

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
mod running;
mod start;
mod surroundings;
mod taught;
mod told;

use std::path::Path;

use crate::cli::{
    Context,
    args::{ReadArgs, TrainArgs, TrainCommand, TrainRunArgs},
    printer::{counted, grouped},
};
use corpus::Read;
use evaluating::{Tasks, Witnesses};
use folder::{Of, RunFolder};
use running::Reached;
use start::Start;
use surroundings::Surroundings;
use turnwise_core::error::{Error, Result};
use turnwise_encoder::{Device, DeviceChoice};
use turnwise_eval::{data::hash_of_records, halves::Halves};
use turnwise_train::{
    recipe::{ObjectiveName, Recipe},
    run::evaluations::FEWEST_ASIDE,
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
        let (reached, recipe) = once(recipe, args, &place, context)?;
        return told::end(&reached, &recipe, args.output(), context);
    }
    many::run(&recipe, varied, args, context)
}

/// Where a run is.
struct Place<'a> {
    output: &'a Path,
    resume: bool,
    /// Whether it is the first of several: what is true of all of them is told once.
    is_first: bool,
}

/// A run, and its recipe with all that was not given.
fn once(
    mut recipe: Recipe,
    args: &TrainRunArgs,
    &Place { output, resume, is_first }: &Place<'_>,
    context: &Context<'_>,
) -> Result<(Reached, Recipe)> {
    let asked = recipe.clone();
    let start = Start::of(&mut recipe, context)?;
    start.tell(&recipe, context);
    let by_steps = recipe.objective != ObjectiveName::Surroundings;
    let (device, more) = args.devices()?;
    if !by_steps {
        only_one(more)?;
    }
    // Those that are not there are told before anything is read.
    let open = |choice: &DeviceChoice| Device::open(*choice);
    let devices = std::iter::once(&device).chain(more).map(open).collect::<Result<Vec<Device>>>()?;
    let run_folder = RunFolder::take(output, resume)?;
    let begun = folder::is_begun(output);
    if begun {
        run_folder.has_the_settings(&recipe, &asked)?;
    } else if resume {
        context.printer.say(format!("nothing to go on with in {} yet: it begins", output.display()));
    }
    let reading = ReadArgs { strip_nicks: recipe.strip_nicks, ..args.read.clone() };
    let room = (!args.in_memory).then(|| run_folder.path());
    let mut read = corpus::read(&recipe.corpus, &reading, room, context)?;
    let (tasks, dev) = evaluating::tasks(&recipe, &reading, context)?;
    leave_out(&mut read, &tasks, context)?;
    if is_first {
        warn_of_overlap(&read, &tasks, context)?;
    }
    let aside = set_aside(&mut read, &recipe, context)?;
    if let Some(count) = recipe.dialogues {
        read.keep(count, recipe.seed);
    }
    let dialogues = &read.dialogues;
    let of = Of {
        dialogues: hash_of_records((0..dialogues.len()).map(|n| dialogues.bytes(n)))?,
        model: start.folder.fingerprint()?.to_string(),
        dev,
    };
    if begun {
        run_folder.is_of(&of)?;
        if run_folder.model().exists() {
            context.printer.say(format!("the run in {} has ended before", output.display()));
            return Ok((Reached::before(&run_folder, &recipe)?, recipe));
        }
    }
    let run = Run { recipe: &recipe, start: &start, folder: &run_folder, device, of: &of, context };
    let witnesses = Witnesses { tasks, aside };
    let reached = match by_steps {
        true => by_steps::train(&run, read, witnesses, &devices, room)?,
        false => Surroundings { run: &run, folder: &start.folder }.learn_alone(&read, witnesses)?,
    };
    Ok((reached, recipe))
}

/// What a run needs, whatever it learns by.
struct Run<'a> {
    recipe: &'a Recipe,
    start: &'a Start,
    folder: &'a RunFolder,
    device: DeviceChoice,
    of: &'a Of,
    context: &'a Context<'a>,
}

/// Refuses several devices, where there are no steps to share.
fn only_one(more: &[DeviceChoice]) -> Result<()> {
    match more.is_empty() {
        true => Ok(()),
        false => Err(Error::input("surroundings has no steps that several devices could share")
            .with_hint("name one: --device")),
    }
}

/// Leaves out dialogues that a dev task has.
fn leave_out(read: &mut Read, tasks: &Tasks, context: &Context<'_>) -> Result<()> {
    let all = read.dialogues.len();
    let left_out = read.leave_out(evaluating::dialogues_of(tasks))?;
    if left_out > 0 {
        let those = counted(left_out as u64, "dialogue");
        if left_out == all {
            return Err(Error::data(format!("a dev task has the same dialogues as the corpus, all of its {those}"))
                .with_hint("they are not trained on; `turnwise corpus split` parts a corpus into some to train on and some to measure by"));
        }
        context.printer.say(format!("not trained on, for a dev task has the same: {those}"));
    }
    Ok(())
}

/// Keeps some dialogues aside, where that is asked for, and tells so.
fn set_aside(read: &mut Read, recipe: &Recipe, context: &Context<'_>) -> Result<Option<Halves>> {
    let most = recipe.aside.unwrap_or(0);
    if most == 0 {
        return Ok(None);
    }
    let tenth = read.dialogues.len() / 10;
    let aside = Halves::new(&read.set_aside(most)?);
    context.printer.say(match &aside {
        Some(halves) => {
            let all_there_are = if tenth < most { ", a tenth of all" } else { "" };
            format!("kept aside, to tell what is gained: {}{all_there_are}", counted(halves.len() as u64, "dialogue"))
        }
        None => format!(
            "no dialogues are kept aside, by which a gain could be told without labels: it takes {FEWEST_ASIDE} with four turns, and a tenth of \
             all at most is {}",
            grouped(tenth as u64)
        ),
    });
    Ok(aside)
}

/// Tells of dev tasks much of which is said in the corpus.
fn warn_of_overlap(read: &Read, tasks: &Tasks, context: &Context<'_>) -> Result<()> {
    for (task, said, of) in evaluating::said_in(tasks, &read.dialogues)? {
        context.printer.warn(format!(
            "{} of the {} of {task} are said in the corpus, too: of the same dialogues, its gain is told too well; what everybody says \
             does no harm",
            grouped(said as u64),
            counted(of as u64, "text")
        ));
    }
    Ok(())
}
