//! `turnwise train`: trains an encoder on dialogues.

mod observer;
mod recipe;
mod report;

use crate::cli::{
    args::{ListArgs, Seeds, TrainArgs, TrainCommand, TrainRunArgs},
    commands,
    prelude::*,
};
use observer::RunPrinter;
use turnwise_train::{
    recipe::{Recipe, known_about, known_names},
    run::{self, RunOptions},
};

pub(crate) fn run(args: &TrainArgs, context: &Context<'_>) -> Result<()> {
    let (args, varied) = match &args.command {
        Some(TrainCommand::List(args)) => return list_recipes(args, context),
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
        report::warn_of_losses(&run.dev, report::hint_about_losses(&recipe, run.has_layer), context);
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

/// A built-in recipe: an objective with a base model, data and options.
#[derive(Debug, Serialize)]
struct Entry {
    name: &'static str,
    objective: &'static str,
    /// Name of the model that training starts from.
    model: String,
    about: &'static str,
    /// Data files of the recipe that are missing.
    missing: Vec<PathBuf>,
}

fn list_recipes(args: &ListArgs, context: &Context<'_>) -> Result<()> {
    let entry = |name: &'static str| -> Result<Entry> {
        let unknown = || Error::Internal(format!("no recipe {name}"));
        let mut recipe = Recipe::known(name).ok_or_else(unknown)??;
        recipe.below(&args.data);
        let needed = recipe.corpus.iter().chain(recipe.dev.iter().map(|dev| &dev.data));
        Ok(Entry {
            name,
            objective: recipe.objective.name(),
            missing: needed.filter(|path| !path.exists()).cloned().collect(),
            model: recipe.model,
            about: known_about(name),
        })
    };
    let entries = known_names().map(entry).collect::<Result<Vec<Entry>>>()?;
    context.printer.results(&entries, |out| {
        let width = |of: fn(&Entry) -> &str| entries.iter().map(|e| of(e).len()).max().unwrap_or(0);
        let widths = [width(|e| e.name), width(|e| e.objective), width(|e| &e.model)];
        entries.iter().try_for_each(|entry| line(entry, widths, out))?;
        let folder = args.data.display();
        let command = format!("turnwise train NAME --data {folder} -o runs/NAME");
        writeln!(out, "{DIM}data: {folder}; to run a recipe: {command}{DIM:#}")
    })
}

fn line(entry: &Entry, [name, objective, model]: [usize; 3], out: &mut dyn Write) -> io::Result<()> {
    let (style, here) = match entry.missing.as_slice() {
        [] => (NAME, "has data "),
        _ => (BOLD, "no data  "),
    };
    write!(
        out,
        "{style}{:name$}{style:#}  {:objective$}  {:model$}",
        entry.name, entry.objective, entry.model
    )?;
    writeln!(out, "  {here}  {DIM}{}{DIM:#}", entry.about)
}
