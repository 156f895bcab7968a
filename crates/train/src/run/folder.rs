//! The folder of a run: its files, and how a run starts, resumes and ends.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::{base_model::START, card::Card, checkpoint, observer::RunObserver};
use crate::{
    recipe::{Recipe, ResolvedRecipe, not_of_layers},
    trainer::Trainer,
};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
    numbers::grouped,
};
use turnwise_encoder::{
    Network,
    folder::{ModelFolder, SavedModel, Tokenizer, save},
    selector::{SavedSelector, Trained, save_selector},
};
use turnwise_store::lock::WriterLock;

/// Number of regular checkpoints that are kept.
pub(super) const CHECKPOINTS: usize = 2;

/// Name of the checkpoint of the best step, stored next to the regular checkpoints.
pub(super) const BEST: &str = "best";

// Names of files in the folder of a run. A process that uses the folder holds the lock file.
pub(super) const METRICS: &str = "metrics.jsonl";
pub(super) const EVALUATIONS: &str = "evaluations.jsonl";
pub(super) const LAYER: &str = "layer.json";
const RECIPE: &str = "recipe.toml";
const LOCK: &str = "lock";

/// Folder of a run, locked by this process.
pub(super) struct RunFolder {
    path: PathBuf,
    /// Folders that were created for the run, innermost first.
    created: Vec<PathBuf>,
    /// `None` only while the lock is acquired or released.
    lock: Option<WriterLock>,
}

/// Returns true if a folder contains a run that has started.
pub(super) fn has_run(path: &Path) -> bool {
    path.join(RECIPE).is_file()
}

/// Returns the path of the trained model in the folder of a run.
pub fn model_in(path: &Path) -> PathBuf {
    path.join("model")
}

/// Returns an error if a folder cannot be the output folder of a run.
///
/// A folder with a run needs `resume`. Any other folder must not exist, or be empty, or contain only files of a run
/// that was stopped before its first step.
pub(super) fn check(path: &Path, resume: bool) -> Result<()> {
    let begun = has_run(path);
    if begun && !resume {
        return Err(Error::input(format!("{} already contains a run", path.display()))
            .with_hint("continue it with --resume, or choose a different folder"));
    }
    if path.exists() && !path.is_dir() {
        return Err(Error::input(format!("{} is a file, but a run needs a folder", path.display()))
            .with_hint("use a folder that does not exist yet: -o runs/chats"));
    }
    let is_foreign = |entry: std::io::Result<fs::DirEntry>| {
        entry.is_ok_and(|e| e.file_name() != START && e.file_name() != LOCK)
    };
    if !begun && fs::read_dir(path).is_ok_and(|mut entries| entries.any(is_foreign)) {
        let what = if resume { "contains no run to resume" } else { "is not empty" };
        return Err(Error::input(format!("{} {what}", path.display()))
            .with_hint("use a folder that does not exist yet, or the folder of a run"));
    }
    Ok(())
}

impl RunFolder {
    /// Creates and locks a new folder, or locks an existing folder to resume its run.
    pub(super) fn take(path: &Path, resume: bool) -> Result<Self> {
        check(path, resume)?;
        let missing =
            path.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
        let created = missing.map(Path::to_owned).collect();
        fs::create_dir_all(path).at("create", path)?;
        let mut folder = RunFolder { path: path.to_owned(), created, lock: None };
        folder.lock = Some(WriterLock::acquire_named(path, LOCK, "turnwise train")?);
        // A different process may have used the folder between the first check and the lock.
        check(path, resume)?;
        Ok(folder)
    }

    /// Path of the folder of the run.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file or folder in the folder of the run.
    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(super) fn checkpoints(&self) -> PathBuf {
        self.join("checkpoints")
    }

    pub(super) fn model(&self) -> PathBuf {
        model_in(&self.path)
    }

    /// Writes the recipe file, which marks the run as started.
    pub(super) fn begin(&self, recipe: &ResolvedRecipe, inputs: &InputHashes) -> Result<()> {
        let text = inputs.line()
            + &toml::to_string(&table_of(&recipe.file)?).map_err(|e| Error::Internal(e.to_string()))?;
        files::replace(&self.join(RECIPE), text.as_bytes())
    }

    /// Returns an error if the recipe differs from the recipe of the run to resume.
    ///
    /// `given` is the recipe without defaults. If a setting in `given` differs, the error does not mention defaults
    /// that differ.
    pub(super) fn check_settings(&self, recipe: &ResolvedRecipe, given: &Recipe) -> Result<()> {
        let stored = self.stored_recipe()?;
        let (complete, given) = (table_of(&recipe.file)?, table_of(given)?);
        let names: BTreeSet<&String> = stored.keys().chain(complete.keys()).collect();
        let mut different: Vec<&String> =
            names.into_iter().filter(|name| stored.get(*name) != complete.get(*name)).collect();
        if different.is_empty() {
            return Ok(());
        }
        let defaults = table_of(&Recipe::new(recipe.file.objective, String::new(), Vec::new()))?;
        let is_default = |name: &String| {
            let given = given.get(name);
            complete.contains_key(name) && given.is_none_or(|value| defaults.get(name) == Some(value))
        };
        if !different.iter().all(|name| is_default(name)) {
            different.retain(|name| !is_default(name));
        }
        let value = |table: &toml::Table, name: &str| {
            table.get(name).map_or("not set".to_owned(), ToString::to_string)
        };
        let differences = different
            .iter()
            .map(|name| format!("{name} ({}, now {})", value(&stored, name), value(&complete, name)));
        let (run, differences) = (self.path.display(), differences.collect::<Vec<String>>().join(", "));
        let advice = match self.model().exists() {
            true => format!(
                "the run has ended; to train its model further, start a new run with `-m {}`",
                self.model().display()
            ),
            false => format!("to continue it: `turnwise train {run}/{RECIPE} -o {run} --resume`"),
        };
        Err(Error::input(format!("the run in {run} has different settings: {differences}"))
            .with_hint(format!("use a different output folder; {advice}")))
    }

    /// Returns an error if the dialogues, the model or the dev data have changed since the run started.
    pub(super) fn check_inputs(&self, inputs: &InputHashes) -> Result<()> {
        let text = self.recipe_text()?;
        let line = text.lines().next().unwrap_or_default();
        let what = [
            (&inputs.dialogues, "the dialogues of its corpus have changed"),
            (&inputs.model, "its base model has changed"),
            (&inputs.dev, "the data of its dev tasks have changed, so its evaluations cannot be compared"),
        ];
        match what.into_iter().find(|(hash, _)| !line.contains(hash.as_str())) {
            None => Ok(()),
            Some((_, changed)) => {
                Err(Error::input(format!("cannot resume the run in {}: {changed}", self.path.display()))
                    .with_hint("use a different output folder, or restore the original files"))
            }
        }
    }

    fn recipe_text(&self) -> Result<String> {
        let path = self.join(RECIPE);
        fs::read_to_string(&path).at("read", &path)
    }

    fn stored_recipe(&self) -> Result<toml::Table> {
        self.recipe_text()?.parse().map_err(|e: toml::de::Error| {
            Error::corrupt(self.join(RECIPE), e.message()).with_hint("use a different output folder")
        })
    }

    /// Loads the last checkpoint. Returns its number of steps, or 0 if there is no checkpoint.
    pub(super) fn load_checkpoint(
        &self,
        trainer: &mut Trainer,
        identity: &str,
        observer: &dyn RunObserver,
    ) -> Result<u64> {
        let Some((steps, path)) = checkpoint::list(&self.checkpoints()).pop() else {
            if has_run(&self.path) {
                observer.note("no checkpoint yet: starting from the beginning");
            }
            return Ok(0);
        };
        checkpoint::load(&path, trainer, identity)?;
        observer.note(&format!("resuming after {} steps", grouped(steps)));
        Ok(steps)
    }

    /// Saves the batch of a failed step for inspection, and returns the error of the step. If the error has a hint,
    /// adds the locations of the saved batch and of the last checkpoint to the hint.
    pub(super) fn explain_failure(&self, e: Error, step: u64, trainer: &mut Trainer) -> Error {
        let mut more = String::new();
        let path = self.join("failed-batch.json");
        let batch = trainer.next_batch();
        if batch.and_then(|batch| files::replace(&path, format!("{batch:#}\n").as_bytes())).is_ok() {
            more += &format!("; its examples are in {}", path.display());
        }
        if let Some((at, _)) = checkpoint::list(&self.checkpoints()).pop()
            && step > 0
        {
            more += &format!("; the checkpoint after {} steps is in {}", grouped(at), self.path.display());
        }
        match e.hint() {
            Some(hint) => e.with_hint(hint + &more),
            None => e,
        }
    }

    /// Saves the network and its pipeline as the model of the run. Replaces an earlier model.
    pub(super) fn save(
        &self,
        base: &ModelFolder,
        tokenizer: &Tokenizer,
        network: &Network,
        pooler: Option<&[Vec<f32>; 2]>,
        card: &Card,
    ) -> Result<()> {
        let saved = SavedModel {
            network,
            architecture: base.config().architecture,
            pipeline: base.pipeline(),
            tokenizer,
            base: Some(card.base),
            pooler,
        };
        self.save_with(card, &|path| save(path, &saved))
    }

    /// Saves a selector as the model of the run. Replaces an earlier model.
    pub(super) fn save_selector(
        &self,
        base: &ModelFolder,
        tokenizer: &Tokenizer,
        trained: Trained<'_>,
        card: &Card,
    ) -> Result<()> {
        let saved = SavedSelector {
            trained,
            architecture: base.config().architecture,
            pipeline: base.pipeline(),
            tokenizer,
            base: Some(card.base),
        };
        self.save_with(card, &|path| save_selector(path, &saved))
    }

    fn save_with(&self, card: &Card, save: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
        // Write to a temporary folder and rename it, so that a killed process leaves the old or the new model.
        let temporary = files::temporary_path(&self.model());
        files::remove_folder(&temporary)?;
        save(&temporary)?;
        files::replace(&temporary.join("README.md"), card.text().as_bytes())?;
        files::replace_folder(&temporary, &self.model(), &self.path.join("model.old"))
    }
}

impl Drop for RunFolder {
    /// Removes the folder if the run has not started.
    fn drop(&mut self) {
        if self.lock.is_none() || has_run(&self.path) {
            return;
        }
        let _ = files::remove_folder(&self.path.join(START));
        let _ = fs::remove_file(self.path.join(LOCK));
        self.lock = None;
        // `remove_dir` fails on folders that are not empty, so such folders stay.
        self.created.iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }
}

/// Hashes of the inputs of a run.
pub(super) struct InputHashes {
    pub(super) dialogues: String,
    /// Hash of the base model.
    pub(super) model: String,
    /// Hash of the data of the dev tasks.
    pub(super) dev: String,
}

impl InputHashes {
    /// Returns the first line of the recipe file: a comment with these hashes.
    fn line(&self) -> String {
        let InputHashes { dialogues, model, dev } = self;
        format!(
            "# Recipe of this run. Hash of its dialogues: {dialogues}; of its base model: {model}; \
             of the data of its dev tasks: {dev}\n"
        )
    }
}

/// Returns the recipe as a TOML table, without the settings for training steps if the objective has no steps.
fn table_of(recipe: &Recipe) -> Result<toml::Table> {
    let mut table = toml::Table::try_from(recipe).map_err(|e| Error::Internal(e.to_string()))?;
    if recipe.objective.definition().steps.is_none() {
        not_of_layers().for_each(|name| drop(table.remove(Recipe::stored_name(name))));
    }
    Ok(table)
}
