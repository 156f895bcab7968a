//! A whole training run: reads the dialogues, trains, evaluates, and saves the model in a folder.
//!
//! [`run`] trains with a recipe, and [`sweep`] trains several times with different settings.

mod base_model;
mod card;
mod checkpoint;
mod corpus;
mod curves;
pub mod evaluations;
mod evaluator;
mod events;
mod folder;
pub mod layer;
mod lines;
mod observer;
mod outcome;
mod sources;
mod sweep;
mod training;

use std::{iter, path::PathBuf};

pub use folder::model_in;
pub use observer::{Progress, RunObserver, Stage};
pub use outcome::{Gain, Outcome, Spent};
pub use sweep::{FinishedRun, RUNS, sweep};

use crate::recipe::{Recipe, ResolvedRecipe};
use base_model::BaseModel;
use card::Card;
use corpus::Corpora;
use evaluator::{EvaluationData, HeldOutData, Tasks};
use folder::{InputHashes, RunFolder};
use layer::LayerTraining;
use turnwise_core::{
    error::{Error, Result},
    numbers::{counted, grouped},
};
use turnwise_corpus::{formats::ReadOptions, reader::Reader};
use turnwise_encoder::{Device, DeviceChoice, hub::Places};
use turnwise_eval::{data::hash_of_records, halves::MIN_HELD_OUT};

/// Options of a run that are not part of its recipe, such as its output folder.
#[derive(Clone)]
pub struct RunOptions {
    /// Output folder. It must not exist yet, or be empty, or contain the run to resume.
    pub output: PathBuf,
    /// True to continue the run in the output folder.
    pub resume: bool,
    /// Devices to train on. Each device computes a share of every step, and the first device does everything else.
    pub devices: Vec<DeviceChoice>,
    /// True to keep the training dialogues in memory instead of in temporary files.
    pub in_memory: bool,
    /// Reader for corpora that are files. The recipe decides whether nicknames are removed.
    pub reader: Reader,
    /// Folders that contain models.
    pub models: Places,
    /// Folder of the indexes. A corpus of the recipe can be the name of an index in this folder.
    pub indexes: PathBuf,
}

impl RunOptions {
    /// Creates the options for a run on the default device. The recipe must specify its base model and its corpora as
    /// paths.
    pub fn new(output: impl Into<PathBuf>) -> Self {
        RunOptions {
            output: output.into(),
            resume: false,
            devices: vec![DeviceChoice::default()],
            in_memory: false,
            reader: Reader::default(),
            models: Places { cache: PathBuf::new(), imports: PathBuf::new() },
            indexes: PathBuf::new(),
        }
    }
}

/// Trains a model. The result is in the subfolder `model` of the output folder.
///
/// Returns the outcome, and the recipe with all defaults filled in. With [`RunOptions::resume`], an interrupted run
/// continues from its last checkpoint, and its result is the same as without the interruption.
///
/// # Errors
///
/// [`Error::Input`] if the recipe does not suit its base model, or if the output folder contains other files;
/// [`Error::Data`] if the dialogues cannot be used for training; [`Error::Interrupted`] if the observer stops the run.
pub fn run(
    recipe: Recipe,
    options: &RunOptions,
    observer: &dyn RunObserver,
) -> Result<(Outcome, ResolvedRecipe)> {
    run_one(recipe, options, true, observer)
}

/// Trains one model. In a sweep, warnings about the data are shown only for the first run (`is_first`).
fn run_one(
    recipe: Recipe,
    options: &RunOptions,
    is_first: bool,
    observer: &dyn RunObserver,
) -> Result<(Outcome, ResolvedRecipe)> {
    let given = recipe.clone();
    let (base, recipe) = BaseModel::open(recipe, &options.models)?;
    base.report(&recipe, observer);
    if recipe.steps.is_none() && options.devices.len() > 1 {
        let name = recipe.file.objective.name();
        return Err(Error::input(format!("{name} has no steps to distribute over several devices"))
            .with_hint("use a single one with --device"));
    }
    // Report missing devices before reading any data.
    let device = options.devices.first().copied().unwrap_or_default();
    let others = options.devices.iter().skip(1).copied();
    let devices = iter::once(device).chain(others).map(Device::open).collect::<Result<Vec<Device>>>()?;
    let output = &options.output;
    let run_folder = RunFolder::take(output, options.resume)?;
    let begun = folder::has_run(output);
    if begun {
        run_folder.check_settings(&recipe, &given)?;
    } else if options.resume {
        observer.note(&format!("nothing to resume in {} yet: starting a new run", output.display()));
    }
    let read_options = ReadOptions { strip_nicks: recipe.file.strip_nicks, ..options.reader.options.clone() };
    let reader = Reader { options: read_options, ..options.reader.clone() };
    let spool = (!options.in_memory).then(|| run_folder.path());
    let mut corpora = corpus::read(&recipe.file.corpus, &reader, spool, options, observer)?;
    let (tasks, dev) = evaluator::load_tasks(&recipe, &reader, observer)?;
    exclude(&mut corpora, &tasks, observer)?;
    if is_first {
        warn_of_overlap(&corpora, &tasks, observer)?;
    }
    let held_out = hold_out(&mut corpora, &recipe, observer)?;
    if let Some(count) = recipe.file.dialogues {
        corpora.subsample(count, recipe.file.seed);
    }
    let dialogues = &corpora.dialogues;
    let inputs = InputHashes {
        dialogues: hash_of_records((0..dialogues.len()).map(|n| dialogues.bytes(n)))?,
        model: base.fingerprint()?.to_string(),
        dev,
    };
    if begun {
        run_folder.check_inputs(&inputs)?;
        if run_folder.model().exists() {
            observer.note(&format!("the run in {} has already ended", output.display()));
            return Ok((Outcome::read(&run_folder, &recipe)?, recipe));
        }
    }
    let run = Run {
        recipe: &recipe,
        base: &base,
        folder: &run_folder,
        device,
        models: &options.models,
        inputs: &inputs,
        observer,
    };
    let eval_data = EvaluationData { tasks, held_out };
    let outcome = match &recipe.steps {
        Some(settings) => training::train(&run, settings, corpora, eval_data, &devices, spool)?,
        None => LayerTraining { run: &run, folder: &base.folder }.learn_alone(&corpora, eval_data)?,
    };
    Ok((outcome, recipe))
}

/// Inputs that all parts of a run share, such as the recipe, the base model and the output folder.
#[derive(Clone, Copy)]
struct Run<'a> {
    recipe: &'a ResolvedRecipe,
    base: &'a BaseModel,
    folder: &'a RunFolder,
    device: DeviceChoice,
    models: &'a Places,
    inputs: &'a InputHashes,
    observer: &'a dyn RunObserver,
}

impl<'a> Run<'a> {
    /// Returns the facts for the model card. `seen` has the numbers of training dialogues and of their turns.
    fn card(&self, seen: (usize, usize), outcome: &Outcome) -> Card<'a> {
        Card {
            recipe: self.recipe,
            base: &self.base.name,
            repository: self.base.repository.as_deref(),
            seen,
            data: &self.inputs.dialogues,
            kept: outcome.kept,
            agreements: outcome.agreements(),
            gains: outcome.gains(self.recipe.file.seed),
            losses: outcome.losses,
            layered: outcome.learned.is_some(),
        }
    }
}

/// Removes training dialogues that are also in a dev task. Returns an error if no training dialogues remain.
fn exclude(corpora: &mut Corpora, tasks: &Tasks, observer: &dyn RunObserver) -> Result<()> {
    let all = corpora.dialogues.len();
    let left_out = corpora.exclude(evaluator::dialogues_of(tasks))?;
    if left_out > 0 {
        let excluded = counted(left_out as u64, "dialogue");
        if left_out == all {
            return Err(Error::data(format!("all {excluded} of the corpus are also in a dev task"))
                .with_hint("such dialogues are not trained on; `turnwise corpus split` splits a corpus into training and test data"));
        }
        observer.note(&format!("excluded from training, because a dev task has the same: {excluded}"));
    }
    Ok(())
}

/// Holds out dialogues for evaluation if the recipe requests it, and reports their number. Returns `None` if no
/// dialogues are held out.
fn hold_out(
    corpora: &mut Corpora,
    recipe: &ResolvedRecipe,
    observer: &dyn RunObserver,
) -> Result<Option<HeldOutData>> {
    let most = recipe.held_out;
    if most == 0 {
        return Ok(None);
    }
    let tenth = corpora.dialogues.len() / 10;
    let held_out = HeldOutData::new(recipe, &corpora.hold_out(most)?)?;
    let message = match &held_out {
        Some(data) => {
            let share = if tenth < most { ", from a tenth of all dialogues" } else { "" };
            format!("held out for evaluation: {}{share}", data.describe())
        }
        None => format!(
            "no dialogues are held out for evaluation without labels: {MIN_HELD_OUT} with at least four turns are needed, but a tenth of \
             the corpus is only {}",
            grouped(tenth as u64)
        ),
    };
    observer.note(&message);
    Ok(held_out)
}

/// Warns about dev tasks that overlap with the corpus.
fn warn_of_overlap(corpora: &Corpora, tasks: &Tasks, observer: &dyn RunObserver) -> Result<()> {
    for (task, shared, texts) in evaluator::overlaps(tasks, &corpora.dialogues)? {
        observer.warn(&format!(
            "{} of the {} of {task} are also in the corpus: if they are from the same dialogues, its score will be overestimated; common \
             phrases do no harm",
            grouped(shared as u64),
            counted(texts as u64, "text")
        ));
    }
    Ok(())
}
