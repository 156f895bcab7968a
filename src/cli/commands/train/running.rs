//! The steps of a run: taken, told, measured now and then, kept.

use std::time::Instant;

use super::{
    curves,
    evaluating::Evaluator,
    folder::{self, RunFolder},
    told,
};
use crate::{
    cli::{
        Context,
        printer::{bytes, counted, grouped},
        progress::Progress,
        signals,
    },
    encoder::Network,
    error::{Error, Result},
    eval::ann::own_bytes,
    store::files,
    train::{
        model::Trainable,
        recipe::Recipe,
        run::{
            checkpoint,
            evaluations::Evaluation,
            events,
            lines::{self, Lines},
            metrics::Line,
        },
        trainer::{Stepped, Trainer},
    },
};

/// What came of the steps.
pub(super) struct Reached {
    /// Steps taken; fewer than were asked for where it ended early.
    pub(super) steps: u64,
    /// The step whose model is kept.
    pub(super) kept: u64,
    /// The mean losses of the first and the last steps.
    pub(super) losses: Option<(f64, f64)>,
    /// What was learned without steps, in words.
    pub(super) learned: Option<String>,
    /// What was measured.
    pub(super) evaluations: Vec<Evaluation>,
    /// Of the steps of this call.
    pub(super) seconds: f64,
    pub(super) examples: u64,
    pub(super) tokens: u64,
}

/// A run with all that it needs.
pub(super) struct Running<'r, 't> {
    pub(super) model: &'r Trainable,
    pub(super) trainer: &'r mut Trainer<'t>,
    pub(super) recipe: &'r Recipe,
    pub(super) folder: &'r RunFolder,
    pub(super) evaluator: &'r Evaluator<'r>,
    pub(super) identity: &'r str,
    pub(super) context: &'r Context<'r>,
}

impl Running<'_, '_> {
    /// Takes the steps that are left after so many.
    pub(super) fn steps(&mut self, done: u64) -> Result<Reached> {
        let (recipe, folder) = (self.recipe, self.folder);
        let mut metrics = Lines::<Line>::open(&folder.metrics(), done)?;
        let mut measured = Lines::<Evaluation>::open(&folder.evaluations(), done)?;
        let mut evaluations: Vec<Evaluation> = lines::read(&folder.evaluations())?;
        let every = recipe.evaluate_every.unwrap_or(0);
        let every = if self.evaluator.is_blind() { 0 } else { every };
        if every > 0 && evaluations.is_empty() && done == 0 {
            evaluations.push(self.evaluate(self.model.start(), 0, &mut measured)?);
        }
        let (mut examples, mut tokens, mut seconds, mut smooth) = (0, 0, 0.0, None);
        let mut progress = None;
        let mut step = done;
        while step < recipe.steps && !self.gains_no_more(&evaluations) {
            let (bar, from) = progress.get_or_insert_with(|| {
                let bar = Progress::new(self.context.printer, "training", "examples", Some(recipe.steps));
                (bar.after(step), examples)
            });
            let started = Instant::now();
            let stepped = match self.trainer.step() {
                Ok(stepped) => stepped,
                Err(e) => return Err(folder.stopped_by(e, step, self.trainer)),
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
            bar.set_more(format!("step {step}, loss {smoothed:.4}, {rate} tokens/s{memory}"));
            bar.set(step, examples - *from);
            let last = step == recipe.steps;
            if every > 0 && (last || step.is_multiple_of(every)) && !signals::stopped() {
                // Its place is taken by what the evaluation shows.
                progress = None;
                evaluations.push(self.evaluate(&self.model.network()?, step, &mut measured)?);
                if recipe.select.best(&evaluations).is_some_and(|best| best.step == step) {
                    checkpoint::save_as(&folder.checkpoints(), folder::BEST, self.trainer, self.identity)?;
                }
                self.draw(&evaluations)?;
            }
            let ends = last || self.gains_no_more(&evaluations);
            if ends || step.is_multiple_of(recipe.checkpoint_every) || signals::stopped() {
                checkpoint::save(&folder.checkpoints(), self.trainer, self.identity)?;
                checkpoint::prune(&folder.checkpoints(), folder::CHECKPOINTS)?;
            }
            if signals::stopped() && !ends {
                return Err(Error::Interrupted {
                    hint: Some(format!(
                        "{} of {} steps are kept; the same command with --resume goes on",
                        grouped(step),
                        grouped(recipe.steps)
                    )),
                });
            }
        }
        drop(progress);
        self.draw(&evaluations)?;
        let kept = recipe.select.best(&evaluations).map_or(step, |best| best.step);
        if kept != step {
            let best = folder.checkpoints().join(folder::BEST);
            checkpoint::load(&best, self.trainer, self.identity)?;
        }
        let losses = losses(&lines::read(&folder.metrics())?);
        Ok(Reached { steps: step, kept, losses, learned: None, evaluations, seconds, examples, tokens })
    }

    fn gains_no_more(&self, evaluations: &[Evaluation]) -> bool {
        let patience = self.recipe.patience;
        patience > 0 && self.recipe.select.since_best(evaluations) >= patience
    }

    fn evaluate(&self, network: &Network, step: u64, to: &mut Lines<Evaluation>) -> Result<Evaluation> {
        let evaluation = self.evaluator.evaluate(network, step)?;
        to.add(&evaluation)?;
        self.context.printer.say(format!("after {}: {}", counted(step, "step"), told::measured(&evaluation)));
        Ok(evaluation)
    }

    /// What is to be looked at, as far as the run has come.
    fn draw(&self, evaluations: &[Evaluation]) -> Result<()> {
        let steps: Vec<Line> = lines::read(&self.folder.metrics())?;
        files::replace(&self.folder.curves(), curves::picture(&steps, evaluations).as_bytes())?;
        events::write(&self.folder.events(), &curves::scalars(&steps, evaluations))?;
        Ok(())
    }
}

fn line(stepped: &Stepped, seconds: f64) -> Line {
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

/// The mean over a tenth of the run at its beginning and at its end.
fn losses(lines: &[Line]) -> Option<(f64, f64)> {
    let part = (lines.len() / 10).max(1);
    let mean = |lines: &[Line]| lines.iter().map(|l| l.loss).sum::<f64>() / lines.len() as f64;
    (!lines.is_empty()).then(|| (mean(&lines[..part]), mean(&lines[lines.len() - part..])))
}
