//! The training loop: takes steps, reports them, evaluates and saves checkpoints.

use std::time::Instant;

use super::{
    curves,
    evaluating::Evaluator,
    folder::{self, RunFolder},
    report,
};
use crate::cli::{
    Context,
    printer::{bytes, counted, grouped},
    progress::ProgressBar,
    signals,
};
use turnwise_core::error::{Error, Result};
use turnwise_eval::ann::own_bytes;
use turnwise_train::{
    model::Trainable,
    recipe::{ResolvedRecipe, StepSettings},
    run::{
        checkpoint,
        evaluations::Evaluation,
        learned::Learned,
        lines::{self, Lines},
        metrics::Line,
    },
    trainer::{StepResult, Trainer},
};

/// Result of a run.
#[derive(Default)]
pub(super) struct Reached {
    /// Number of steps taken; fewer than requested if the run stopped early.
    pub(super) steps: u64,
    /// The step whose model is kept.
    pub(super) kept: u64,
    /// Mean losses of the first and the last steps.
    pub(super) losses: Option<(f64, f64)>,
    /// The learned layer.
    pub(super) learned: Option<Learned>,
    /// All evaluations.
    pub(super) evaluations: Vec<Evaluation>,
    /// Resources used by the steps, including those before a resume.
    pub(super) spent: Spent,
}

/// Resources used by steps.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Spent {
    pub(super) seconds: f64,
    pub(super) examples: u64,
    pub(super) tokens: u64,
}

impl Spent {
    fn of(steps: &[Line]) -> Self {
        Spent {
            seconds: steps.iter().map(|line| line.seconds).sum(),
            examples: steps.iter().map(|line| line.examples as u64).sum(),
            tokens: steps.iter().map(|line| line.tokens as u64).sum(),
        }
    }
}

impl Reached {
    /// Reads the result of a finished run from its files.
    pub(super) fn before(folder: &RunFolder, recipe: &ResolvedRecipe) -> Result<Self> {
        let metrics = match recipe.steps().is_some() {
            true => lines::read::<Line>(&folder.metrics())?,
            false => Vec::new(),
        };
        let evaluations: Vec<Evaluation> = lines::read(&folder.evaluations())?;
        let steps = metrics.last().map_or(0, |line| line.step);
        let kept = recipe.select.best(&evaluations).map_or(steps, |best| best.step);
        let learned = Learned::read(&folder.layer())?;
        let (losses, spent) = (losses(&metrics), Spent::of(&metrics));
        Ok(Reached { steps, kept, losses, learned, evaluations, spent })
    }
}

/// State of the training loop.
pub(super) struct Running<'r, 't> {
    pub(super) model: &'r Trainable,
    pub(super) trainer: &'r mut Trainer<'t>,
    pub(super) recipe: &'r ResolvedRecipe,
    pub(super) settings: &'r StepSettings,
    pub(super) folder: &'r RunFolder,
    pub(super) evaluator: &'r Evaluator<'r>,
    pub(super) identity: &'r str,
    pub(super) context: &'r Context<'r>,
}

impl Running<'_, '_> {
    /// Takes the remaining steps after the given number of finished steps.
    pub(super) fn steps(&mut self, done: u64) -> Result<Reached> {
        let (recipe, settings, folder) = (self.recipe, self.settings, self.folder);
        let mut metrics = Lines::<Line>::open(&folder.metrics(), done)?;
        let mut measured = Lines::<Evaluation>::open(&folder.evaluations(), done)?;
        let mut evaluations: Vec<Evaluation> = lines::read(&folder.evaluations())?;
        let mut examples = Spent::of(&lines::read(&folder.metrics())?).examples;
        // The speed shown is for this call only, without the steps before a resume.
        let (mut tokens, mut seconds, mut smooth) = (0, 0.0, None);
        let mut progress = None;
        let mut step = done;
        loop {
            // Also catches up on an evaluation that an interrupted run missed.
            if self.needs_evaluation(step, &evaluations) && !signals::stopped() {
                // Remove the progress bar, because the evaluation has its own.
                progress = None;
                match self.evaluate(step) {
                    Ok(evaluation) => evaluations.push(evaluation),
                    // Continue to the code below, which saves the steps.
                    Err(Error::Interrupted { .. }) => continue,
                    Err(e) => return Err(e),
                }
                // Save the best model before its evaluation is written, so that a recorded best always exists.
                if recipe.select.best(&evaluations).is_some_and(|best| best.step == step) {
                    checkpoint::save_as(&folder.checkpoints(), folder::BEST, self.trainer, self.identity)?;
                }
                evaluations.last().map_or(Ok(()), |evaluation| measured.add(evaluation))?;
                self.draw(&evaluations, None)?;
            }
            let ends = (step == settings.steps || self.should_stop(&evaluations)) && !signals::stopped();
            let is_new = step > done && (ends || step.is_multiple_of(settings.checkpoint_every));
            if is_new || signals::stopped() && step > 0 {
                checkpoint::save(&folder.checkpoints(), self.trainer, self.identity)?;
                checkpoint::prune(&folder.checkpoints(), folder::CHECKPOINTS)?;
            }
            if ends {
                break;
            }
            if signals::stopped() {
                return Err(self.interrupted(step));
            }
            let bar = progress.get_or_insert_with(|| {
                ProgressBar::new(self.context.printer, "training", "examples", Some(settings.steps))
                    .after(step, examples)
            });
            let started = Instant::now();
            let stepped = match self.trainer.step() {
                Ok(stepped) => stepped,
                Err(e) => return Err(folder.explain_failure(e, step, self.trainer)),
            };
            let took = started.elapsed().as_secs_f64();
            metrics.add(&line(&stepped, took))?;
            step += 1;
            seconds += took;
            examples += stepped.examples as u64;
            tokens += stepped.tokens as u64;
            let smoothed = smooth.map_or(stepped.loss, |s: f64| 0.9 * s + 0.1 * stepped.loss);
            smooth = Some(smoothed);
            let rate = grouped((tokens as f64 / seconds.max(1e-3)) as u64);
            let memory = own_bytes().map_or_else(String::new, |own| format!(", {}", bytes(own)));
            bar.set_suffix(format!("step {step}, loss {smoothed:.4}, {rate} tokens/s{memory}"));
            bar.set(step, examples);
        }
        drop(progress);
        let kept = recipe.select.best(&evaluations).map_or(step, |best| best.step);
        self.draw(&evaluations, Some(kept))?;
        if kept != step {
            let best = folder.checkpoints().join(folder::BEST);
            checkpoint::load(&best, self.trainer, self.identity)?;
        }
        let steps: Vec<Line> = lines::read(&folder.metrics())?;
        let (losses, spent) = (losses(&steps), Spent::of(&steps));
        Ok(Reached { steps: step, kept, losses, learned: None, evaluations, spent })
    }

    /// Whether an evaluation is due after this step and not done yet.
    fn needs_evaluation(&self, step: u64, evaluations: &[Evaluation]) -> bool {
        let every = self.settings.evaluate_every;
        let wanted = every > 0 && !self.evaluator.is_empty();
        wanted
            && (step == self.settings.steps || step.is_multiple_of(every))
            && evaluations.last().is_none_or(|last| last.step < step)
    }

    fn interrupted(&self, step: u64) -> Error {
        let kept = format!("{} of {} steps are saved", grouped(step), grouped(self.settings.steps));
        Error::Interrupted { hint: Some(format!("{kept}; continue with the same command and --resume")) }
    }

    fn should_stop(&self, evaluations: &[Evaluation]) -> bool {
        let patience = self.settings.patience;
        patience > 0 && self.recipe.select.since_best(evaluations) >= patience
    }

    fn evaluate(&self, step: u64) -> Result<Evaluation> {
        let evaluation = match step {
            0 => self.evaluator.evaluate(self.model.start(), 0)?,
            _ => self.evaluator.evaluate(&self.model.network()?, step)?,
        };
        self.context.printer.say(format!(
            "after {}: {}",
            counted(step, "step"),
            report::measured(&evaluation)
        ));
        Ok(evaluation)
    }

    /// Draws the curves so far. At the end, the kept step is marked.
    fn draw(&self, evaluations: &[Evaluation], kept: Option<u64>) -> Result<()> {
        let steps: Vec<Line> = lines::read(&self.folder.metrics())?;
        let curves = curves::Curves { steps: &steps, evaluations, learned: None, kept };
        curves.write(self.recipe, self.folder)
    }
}

fn line(stepped: &StepResult, seconds: f64) -> Line {
    Line {
        step: stepped.step,
        loss: stepped.loss,
        learning_rate: stepped.rate,
        gradient: stepped.norm,
        examples: stepped.examples,
        tokens: stepped.tokens,
        seconds,
    }
}

/// Mean losses over the first and the last tenth of the run.
fn losses(lines: &[Line]) -> Option<(f64, f64)> {
    let part = (lines.len() / 10).max(1);
    let mean = |lines: &[Line]| lines.iter().map(|l| l.loss).sum::<f64>() / lines.len() as f64;
    (!lines.is_empty()).then(|| (mean(&lines[..part]), mean(&lines[lines.len() - part..])))
}
