//! `turnwise train`: trains an encoder on dialogues.

mod list;
mod observer;
mod recipe;
mod report;

use crate::cli::{
    Context,
    args::{Seeds, TrainArgs, TrainCommand, TrainRunArgs},
    commands,
};
use observer::RunPrinter;
use turnwise_core::error::Result;
use turnwise_train::run::{self, RunOptions};

pub(crate) fn run(args: &TrainArgs, context: &Context<'_>) -> Result<()> {
    let (args, varied) = match &args.command {
        Some(TrainCommand::List(args)) => return list::run(args, context),
        Some(TrainCommand::Sweep(sweep)) => (&sweep.run, sweep.vary.as_slice()),
        None => (&args.run, &[][..]),
    };
    let recipe = recipe::of(args, context)?;
    let options = options(args, context)?;
    let observer = RunPrinter::new(context.printer);
    if varied.is_empty() && args.seeds.is_none() {
        let (outcome, recipe) = run::run(recipe, &options, &observer)?;
        return report::end(&outcome, &recipe, args.output(), context);
    }
    let seeds = args.seeds.map(|seeds: Seeds| seeds.all(recipe.seed));
    let finished = run::sweep(&recipe, varied, seeds.as_deref(), &options, &observer, &mut |run| {
        report::warn_of_losses(&run.dev, run.has_layer, context);
    })?;
    report::sweep(&finished, args.output(), context)
}

/// Returns the options of a run that are not part of its recipe.
fn options(args: &TrainRunArgs, context: &Context<'_>) -> Result<RunOptions> {
    let (device, more) = args.devices()?;
    Ok(RunOptions {
        output: args.output().to_owned(),
        resume: args.resume,
        devices: std::iter::once(device).chain(more.iter().copied()).collect(),
        in_memory: args.in_memory,
        reader: commands::reader(&args.read, context)?,
        models: context.places(),
        indexes: context.settings.indexes_dir.clone(),
    })
}
