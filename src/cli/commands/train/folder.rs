//! The folder of a run: what is in it, and how it is begun, gone on with and ended.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::cli::{Context, printer::grouped};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};
use turnwise_encoder::{
    Network,
    folder::{ModelFolder, Pipeline, PoolingMode, SavedModel, Tokenizer, save, save_divided},
};
use turnwise_store::lock::WriterLock;
use turnwise_train::{
    recipe::{ObjectiveName, Recipe},
    run::{card::Card, checkpoint},
    trainer::Trainer,
};

/// How many checkpoints are kept.
pub(super) const CHECKPOINTS: usize = 2;

/// The name of the checkpoint whose model is kept, beside them.
pub(super) const BEST: &str = "best";

/// The model that training begins with, where it had to be made: one that had nothing to divide turns by.
const START: &str = "start";

/// What a run is of.
const RECIPE: &str = "recipe.toml";

/// DiskVec by the process that runs in the folder.
const LOCK: &str = "lock";

/// The folder of a run, in which nobody else runs.
pub(super) struct RunFolder {
    path: PathBuf,
    /// Folders that were made for it, the innermost first.
    made: Vec<PathBuf>,
    lock: Option<WriterLock>,
}

/// Whether a folder holds a run.
pub(super) fn is_begun(path: &Path) -> bool {
    path.join(RECIPE).is_file()
}

/// Where the model lies that came of a run.
pub(super) fn model_in(path: &Path) -> PathBuf {
    path.join("model")
}

/// Refuses a folder that is there already. One to go on in may not have begun: it was stopped before its first step.
pub(super) fn check(path: &Path, resume: bool) -> Result<()> {
    let begun = is_begun(path);
    if begun && !resume {
        return Err(Error::input(format!("{} holds a run already", path.display()))
            .with_hint("go on with it by --resume, or name another folder"));
    }
    if path.exists() && !path.is_dir() {
        return Err(Error::input(format!("{} is a file, and a run wants a folder", path.display()))
            .with_hint("name a folder that is not there yet: -o runs/chats"));
    }
    // What a run begins with may be there of one that was stopped before it began.
    let is_else = |entry: std::io::Result<fs::DirEntry>| {
        entry.is_ok_and(|e| e.file_name() != START && e.file_name() != LOCK)
    };
    if !begun && fs::read_dir(path).is_ok_and(|mut entries| entries.any(is_else)) {
        let what = if resume { "holds no run to go on with" } else { "is not empty" };
        return Err(Error::input(format!("{} {what}", path.display()))
            .with_hint("name a folder that is not there yet, or that of a run"));
    }
    Ok(())
}

impl RunFolder {
    /// Takes a folder that is not there yet, or one to go on in, for this process alone.
    pub(super) fn take(path: &Path, resume: bool) -> Result<Self> {
        check(path, resume)?;
        let missing =
            path.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
        let made = missing.map(Path::to_owned).collect();
        fs::create_dir_all(path).at("create", path)?;
        let mut folder = RunFolder { path: path.to_owned(), made, lock: None };
        folder.lock = Some(WriterLock::acquire_named(path, LOCK, "turnwise train")?);
        // Another may have begun, and ended, since it was looked at.
        check(path, resume)?;
        Ok(folder)
    }

    /// Where it is; it is there, and so is room for what is read.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn recipe(&self) -> PathBuf {
        self.path.join(RECIPE)
    }

    pub(super) fn metrics(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    pub(super) fn evaluations(&self) -> PathBuf {
        self.path.join("evaluations.jsonl")
    }

    pub(super) fn curves(&self) -> PathBuf {
        self.path.join("curves.svg")
    }

    /// Where TensorBoard looks.
    pub(super) fn events(&self) -> PathBuf {
        self.path.join("tensorboard")
    }

    pub(super) fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// The model that came of it.
    pub(super) fn model(&self) -> PathBuf {
        model_in(&self.path)
    }

    /// What was learned without steps.
    pub(super) fn layer(&self) -> PathBuf {
        self.path.join("layer.json")
    }

    /// Writes down what the run is of.
    pub(super) fn begin(&self, recipe: &Recipe, of: &Of) -> Result<()> {
        let text =
            of.line() + &toml::to_string(&table_of(recipe)?).map_err(|e| Error::Internal(e.to_string()))?;
        files::replace(&self.recipe(), text.as_bytes())
    }

    /// Refuses a recipe that is another than that of the run which is to be gone on with.
    /// Named is what was asked for, not what follows from it.
    pub(super) fn has_the_settings(&self, recipe: &Recipe, asked: &Recipe) -> Result<()> {
        let (there, whole, asked) = (self.written()?, table_of(recipe)?, table_of(asked)?);
        let names: BTreeSet<&String> = there.keys().chain(whole.keys()).collect();
        let said = |table: &toml::Table, name: &str| {
            table.get(name).map_or("nothing".to_owned(), ToString::to_string)
        };
        let mut other: Vec<&String> =
            names.into_iter().filter(|name| there.get(*name) != whole.get(*name)).collect();
        if other.is_empty() {
            return Ok(());
        }
        let unasked = table_of(&Recipe::new(recipe.objective, String::new(), Vec::new()))?;
        let follows = |name: &String| {
            whole.contains_key(name) && asked.get(name).is_none_or(|value| unasked.get(name) == Some(value))
        };
        if !other.iter().all(|name| follows(name)) {
            other.retain(|name| !follows(name));
        }
        let other = other
            .iter()
            .map(|name| format!("{name} ({}, and not {})", said(&there, name), said(&whole, name)));
        let (run, other) = (self.path.display(), other.collect::<Vec<String>>().join(", "));
        let way = match self.model().exists() {
            true => format!(
                "it has ended; `-m {}` begins another run with what it has learned",
                self.model().display()
            ),
            false => format!("`turnwise train {run}/{RECIPE} -o {run} --resume` goes on with it"),
        };
        Err(Error::input(format!("the run in {run} is of other settings: {other}"))
            .with_hint(format!("train into another folder; {way}")))
    }

    /// Refuses dialogues and a model that are others than those of the run which is to be gone on with.
    pub(super) fn is_of(&self, of: &Of) -> Result<()> {
        let text = fs::read_to_string(self.recipe()).at("read", self.recipe())?;
        let line = text.lines().next().unwrap_or_default();
        let what = [
            (&of.dialogues, "other dialogues: those of its corpus have changed since"),
            (&of.model, "another model: what it began with has changed since"),
            (
                &of.dev,
                "other dev tasks: their data have changed since, and it was measured by what they were",
            ),
        ];
        match what.into_iter().find(|(hash, _)| !line.contains(hash.as_str())) {
            None => Ok(()),
            Some((_, changed)) => {
                Err(Error::input(format!("the run in {} is of {changed}", self.path.display()))
                    .with_hint("train into another folder, or put back what was there"))
            }
        }
    }

    fn written(&self) -> Result<toml::Table> {
        let text = fs::read_to_string(self.recipe()).at("read", self.recipe())?;
        text.parse().map_err(|e: toml::de::Error| Error::Corrupt {
            path: self.recipe(),
            what: e.message().to_owned(),
            hint: "train into another folder".to_owned(),
        })
    }

    /// Brings a trainer to the last checkpoint; gives the steps that were taken.
    pub(super) fn go_on(&self, trainer: &mut Trainer, identity: &str, context: &Context<'_>) -> Result<u64> {
        let Some((steps, path)) = checkpoint::list(&self.checkpoints()).pop() else {
            if is_begun(&self.path) {
                context.printer.say("no checkpoint yet: it begins anew");
            }
            return Ok(0);
        };
        checkpoint::load(&path, trainer, identity)?;
        context.printer.say(format!("goes on after {} steps", grouped(steps)));
        Ok(steps)
    }

    /// An error in a step, with what is left of the run: its batch is kept, for who wants to know what was wrong with it.
    pub(super) fn stopped_by(&self, e: Error, step: u64, trainer: &mut Trainer) -> Error {
        let batch = self.path.join("failed-batch.json");
        let written =
            trainer.next_batch().and_then(|b| files::replace(&batch, format!("{b:#}\n").as_bytes()));
        let kept_batch = match written {
            Ok(()) => format!("; its examples are in {}", batch.display()),
            Err(_) => String::new(),
        };
        let kept = checkpoint::list(&self.checkpoints()).pop();
        let kept = match kept {
            Some((at, _)) if step > 0 => {
                format!("; the checkpoint after {} steps is in {}", grouped(at), self.path.display())
            }
            _ => String::new(),
        };
        let hint = e.hint().map(|hint| format!("{hint}{kept_batch}{kept}"));
        match hint {
            Some(hint) => e.with_hint(hint),
            None => e,
        }
    }

    /// The model that training begins with: another where sequences of several turns have nothing to divide them by.
    pub(super) fn divided(
        &self,
        base: &ModelFolder,
        recipe: &Recipe,
        context: &Context<'_>,
    ) -> Result<ModelFolder> {
        if !recipe.divides_turns() {
            return ModelFolder::open(base.path());
        }
        let start = self.path.join(START);
        files::remove_folder(&start)?;
        let Some((token, is_new)) = save_divided(base, &recipe.model, &start)? else {
            return ModelFolder::open(base.path());
        };
        let new = match (is_new, recipe.frozen_layers) {
            (false, _) => "",
            (true, Some(0)) => ", a new token",
            (true, _) => {
                ", a new token whose vector stays as it begins (it is trained with --frozen-layers 0)"
            }
        };
        context
            .printer
            .say(format!("{} puts nothing between turns; they are divided by {token}{new}", recipe.model));
        ModelFolder::open(&start)
    }

    /// What stands before and after a network that steps have trained.
    pub(super) fn pipeline_of_steps(base: &ModelFolder) -> Result<Pipeline> {
        let mut pipeline = base.pipeline().clone();
        pipeline.pooling.modes = vec![PoolingMode::Mean];
        // The mean that was trained is of all tokens, those of a prompt among them.
        pipeline.pooling.include_prompt |= !pipeline.prompts.text(None)?.is_empty();
        Ok(pipeline)
    }

    /// Saves what came of it, in the place of what was there: a network with what stands before and after it in a folder.
    pub(super) fn save(
        &self,
        base: &ModelFolder,
        tokenizer: &Tokenizer,
        network: &Network,
        card: &Card,
    ) -> Result<()> {
        // Beside it first: a kill leaves the model that was there, or the new one.
        let beside = files::beside(&self.model());
        files::remove_folder(&beside)?;
        let saved = SavedModel {
            network,
            architecture: base.architecture(),
            pipeline: base.pipeline(),
            tokenizer,
            base: Some(card.base),
        };
        save(&beside, &saved)?;
        files::replace(&beside.join("README.md"), card.text().as_bytes())?;
        files::replace_folder(&beside, &self.model(), &self.path.join("model.old"))
    }
}

impl Drop for RunFolder {
    /// What could not be begun leaves nothing.
    fn drop(&mut self) {
        if self.lock.is_none() || is_begun(&self.path) {
            return;
        }
        let _ = files::remove_folder(&self.path.join(START));
        let _ = fs::remove_file(self.path.join(LOCK));
        self.lock = None;
        // Those that something else has come into stay.
        self.made.iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }
}

/// What a run learns from, as hashes.
pub(super) struct Of {
    pub(super) dialogues: String,
    /// The model that it begins with.
    pub(super) model: String,
    /// The data of its dev tasks.
    pub(super) dev: String,
}

impl Of {
    /// The first line of a run's recipe.
    fn line(&self) -> String {
        let Of { dialogues, model, dev } = self;
        format!(
            "# What this run is of; the hash of its dialogues: {dialogues}; of the model that it begins with: {model}; \
             of the data of its dev tasks: {dev}\n"
        )
    }
}

/// A recipe as its file has it. What has no steps has none of what is theirs.
fn table_of(recipe: &Recipe) -> Result<toml::Table> {
    const OF_STEPS: [&str; 14] = [
        "steps",
        "batch",
        "parts",
        "learning_rate",
        "schedule",
        "warm_up",
        "weight_decay",
        "clip",
        "dropout",
        "max_tokens",
        "temperature",
        "checkpoint_every",
        "patience",
        "select",
    ];
    let mut table = toml::Table::try_from(recipe).map_err(|e| Error::Internal(e.to_string()))?;
    if recipe.objective == ObjectiveName::Surroundings {
        OF_STEPS.iter().for_each(|name| drop(table.remove(*name)));
    }
    Ok(table)
}
