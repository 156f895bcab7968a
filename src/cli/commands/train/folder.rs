//! The folder of a run: what is in it, and how it is begun, gone on with and ended.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    cli::{Context, printer::grouped},
    encoder::{
        Network,
        folder::{ModelFolder, Pipeline, PoolingMode, SavedModel, Tokenizer, save, save_divided},
    },
    error::{Error, IoContext, Result},
    store::files,
    train::{
        recipe::{ObjectiveName, Recipe},
        run::{card::Card, checkpoint},
        trainer::Trainer,
    },
};

/// How many checkpoints are kept.
pub(super) const CHECKPOINTS: usize = 2;

/// The name of the checkpoint whose model is kept, beside them.
pub(super) const BEST: &str = "best";

/// The model that training begins with, where it had to be made: one that had nothing to divide turns by.
const START: &str = "start";

/// The folder of a run.
pub(super) struct RunFolder(PathBuf);

impl RunFolder {
    /// A folder that is not there yet, or one to go on in.
    pub(super) fn new(path: &Path, resume: bool) -> Result<Self> {
        let folder = RunFolder(path.to_owned());
        let begun = folder.is_begun();
        if begun && !resume {
            return Err(Error::input(format!("{} holds a run already", path.display()))
                .with_hint("go on with it by --resume, or name another folder"));
        }
        if resume && !begun {
            return Err(Error::input(format!("{} holds no run to go on with", path.display()))
                .with_hint("leave --resume out"));
        }
        // What a run begins with may be there of one that was stopped before it began.
        let is_else = |entry: std::io::Result<fs::DirEntry>| entry.is_ok_and(|e| e.file_name() != START);
        if !begun && fs::read_dir(path).is_ok_and(|mut entries| entries.any(is_else)) {
            return Err(Error::input(format!("{} is not empty", path.display()))
                .with_hint("name a folder that is not there yet"));
        }
        Ok(folder)
    }

    /// Whether it holds a run.
    pub(super) fn is_begun(&self) -> bool {
        self.recipe().is_file()
    }

    /// One that there is.
    pub(super) fn of(path: &Path) -> Self {
        RunFolder(path.to_owned())
    }

    fn recipe(&self) -> PathBuf {
        self.0.join("recipe.toml")
    }

    pub(super) fn metrics(&self) -> PathBuf {
        self.0.join("metrics.jsonl")
    }

    pub(super) fn evaluations(&self) -> PathBuf {
        self.0.join("evaluations.jsonl")
    }

    pub(super) fn curves(&self) -> PathBuf {
        self.0.join("curves.svg")
    }

    /// Where TensorBoard looks.
    pub(super) fn events(&self) -> PathBuf {
        self.0.join("tensorboard")
    }

    pub(super) fn checkpoints(&self) -> PathBuf {
        self.0.join("checkpoints")
    }

    /// The model that came of it.
    pub(super) fn model(&self) -> PathBuf {
        self.0.join("model")
    }

    /// Writes down what the run is of.
    pub(super) fn begin(&self, recipe: &Recipe, data: &str) -> Result<()> {
        fs::create_dir_all(self.checkpoints()).at("create", self.checkpoints())?;
        let text = text_of(recipe).map_err(|e| Error::Internal(e.to_string()))?;
        let text = format!("# What this run is of; the hash of its dialogues: {data}\n{text}");
        files::replace(&self.recipe(), text.as_bytes())
    }

    /// Brings a trainer to the last checkpoint; gives the steps that were taken.
    pub(super) fn go_on(&self, trainer: &mut Trainer, identity: &str, context: &Context<'_>) -> Result<u64> {
        let Some((steps, path)) = checkpoint::list(&self.checkpoints()).pop() else {
            context.printer.say("no checkpoint yet: it begins anew");
            return Ok(0);
        };
        checkpoint::load(&path, trainer, identity)?;
        context.printer.say(format!("goes on after {} steps", grouped(steps)));
        Ok(steps)
    }

    /// An error in a step, with what is left of the run: its batch is kept, for who wants to know what was wrong with it.
    pub(super) fn stopped_by(&self, e: Error, step: u64, trainer: &mut Trainer) -> Error {
        let batch = self.0.join("failed-batch.json");
        let written =
            trainer.next_batch().and_then(|b| files::replace(&batch, format!("{b:#}\n").as_bytes()));
        let kept_batch = match written {
            Ok(()) => format!("; its examples are in {}", batch.display()),
            Err(_) => String::new(),
        };
        let kept = checkpoint::list(&self.checkpoints()).pop();
        let kept = match kept {
            Some((at, _)) if step > 0 => {
                format!("; the checkpoint after {} steps is in {}", grouped(at), self.0.display())
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
        base: ModelFolder,
        recipe: &Recipe,
        context: &Context<'_>,
    ) -> Result<ModelFolder> {
        if !recipe.divides_turns() {
            return Ok(base);
        }
        let start = self.0.join(START);
        files::remove_folder(&start)?;
        let Some((token, is_new)) = save_divided(&base, &recipe.model, &start)? else { return Ok(base) };
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
        files::replace_folder(&beside, &self.model(), &self.0.join("model.old"))
    }
}

/// A recipe as its file has it. What has no steps has none of what is theirs.
fn text_of(recipe: &Recipe) -> Result<String, toml::ser::Error> {
    if recipe.objective != ObjectiveName::Surroundings {
        return toml::to_string(recipe);
    }
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
    let mut table = toml::Table::try_from(recipe)?;
    OF_STEPS.iter().for_each(|name| drop(table.remove(*name)));
    toml::to_string(&table)
}
