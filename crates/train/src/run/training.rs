//! Training with gradient steps: prepares the model and the data, takes the steps, evaluates, and saves checkpoints.

use std::{path::Path, time::Instant};

use candle_core::DType;

use super::{
    Run, base_model, checkpoint,
    corpus::Corpora,
    curves,
    evaluations::Evaluation,
    evaluator::{Evaluated, EvaluationData, Evaluator},
    folder::{self, EVALUATIONS, METRICS},
    layer::LayerTraining,
    lines::{self, Line, Lines},
    observer::{Progress, RunObserver, Stage},
    outcome::{Outcome, Spent, evaluation_line, losses},
    sources::RunSources,
};
use crate::{
    data::TrainingSet,
    model::{Freezing, Trainable, cache::CACHE_BYTES},
    objectives::{Objective, Setup},
    recipe::{Recipe, ResolvedRecipe, StepSettings},
    trainer::Trainer,
};
use turnwise_core::{
    error::{Error, Result},
    numbers::{bytes, counted, grouped},
};
use turnwise_encoder::{
    Device, Network,
    folder::ModelFolder,
    selector::{Head, SelectorSettings, Trained},
};
use turnwise_eval::ann::own_bytes;

/// The run warns if there are fewer dialogues than this number.
const MIN_DIALOGUES: usize = 100;
/// The run warns if more than 1/20 of the tokens are unknown.
const UNKNOWN_ONE_IN: u64 = 20;

/// Trains with gradient steps, learns the layer if the recipe has one, and saves the model. Tokens are stored in a
/// temporary file in the folder `spool`, or in memory if `spool` is `None`.
pub(super) fn train(
    run: &Run<'_>,
    settings: &StepSettings,
    corpora: Corpora,
    eval_data: EvaluationData,
    devices: &[Device],
    spool: Option<&Path>,
) -> Result<Outcome> {
    let Run { recipe, base, folder: run_folder, inputs, observer, .. } = *run;
    let folder = base_model::start_model(base, run_folder.path(), recipe, observer)?;
    let tokenizer = folder.tokenizer()?;
    let prompt = folder.pipeline().prompts.text(None)?;
    let (merge_turns, min_turns) = (settings.merge_turns, recipe.min_turns);
    let data = TrainingSet::new(&corpora.dialogues, &tokenizer, merge_turns, min_turns, spool)?;
    let data = data.with_prompt(prompt, &tokenizer)?.with_corpora(&corpora.ends);
    if data.is_empty() && data.left_out > 0 {
        let turns = counted(min_turns as u64, "turn");
        let skipped = counted(data.left_out as u64, "dialogue");
        return Err(Error::data(format!("every dialogue is shorter than {turns}: {skipped} skipped"))
            .with_hint(
                "use longer dialogues, or allow shorter ones with --min-turns N if the objective can learn from them",
            ));
    }
    report_data(&data, prompt, recipe, observer);
    warn_about_data(&data, recipe, observer);
    if !recipe.evaluates && !recipe.file.dev.is_empty() {
        observer.warn("the dev tasks are not evaluated, because --evaluate-every is 0");
    }
    let identity = identity(&recipe.file, &inputs.dialogues, &folder.fingerprint()?.to_string())?;
    let memory = (!recipe.trains_through_inputs()).then_some(CACHE_BYTES);
    let freezing = Freezing { layers: settings.frozen_layers, embeddings: false, memory };
    let on = |device: &Device| {
        let dtype = if device.is_cpu() { DType::F32 } else { DType::BF16 };
        Trainable::new(folder.network()?, freezing, device.inner(), dtype)
    };
    let (first, others) = devices.split_first().ok_or_else(|| Error::Internal("no device".to_owned()))?;
    let model = on(first)?;
    let others = others.iter().map(on).collect::<Result<Vec<Trainable>>>()?;
    let sources = RunSources { run, data: &data, corpora: &corpora, model: &model };
    let seed = recipe.file.seed;
    let setup = Setup {
        model: &model,
        data: &data,
        seed,
        sources: &sources,
        folder: &base.folder,
        selector: base.selector.as_ref(),
        tokenizer: &tokenizer,
    };
    let objective = settings.create(&setup)?;
    let evaluator = Evaluator::new(run, &corpora, eval_data, &folder)?;
    // The steps need only tokens. Keep the texts only if a layer is learned.
    let corpora = recipe.layer.is_some().then_some(corpora);
    let mut trainer = Trainer::new(&model, objective.as_ref(), &data, settings.plan)?.with_devices(&others);
    let done = run_folder.load_checkpoint(&mut trainer, &identity, observer)?;
    if done == 0 {
        // Report data that cannot be used before the run has started: its folder is then removed.
        trainer.next_batch()?;
    }
    run_folder.begin(recipe, inputs)?;
    let mut outcome = StepLoop {
        run,
        settings,
        model: &model,
        objective: objective.as_ref(),
        trainer: &mut trainer,
        evaluator: &evaluator,
        identity: &identity,
    }
    .run(done)?;
    let network = model.network()?;
    let card = |outcome: &Outcome| run.card((data.len(), data.turns()), outcome);
    if let Some(selector) = objective.selector()? {
        let trained = trained(&selector, &network, base.sentence_network().unwrap_or(model.start()));
        run_folder.save_selector(&folder, &tokenizer, trained, &card(&outcome))?;
        return Ok(outcome);
    }
    let pipeline = base_model::trained_pipeline(&folder)?;
    let layered = corpora.map(|corpora| {
        let training = LayerTraining { run, folder: &folder };
        training.append((&pipeline, &network), &corpora, &evaluator, &mut outcome)
    });
    let trained = match layered.transpose() {
        Ok(Some(layered)) => layered,
        Ok(None) => ModelFolder::open(folder.path())?.with_pipeline(pipeline),
        // The trained steps must not be lost if the layer fails.
        Err(Error::Data { message, .. }) => {
            observer.warn(&format!("no layer was added to the trained model: {message}"));
            ModelFolder::open(folder.path())?.with_pipeline(pipeline)
        }
        Err(e) => return Err(e),
    };
    let pooler = objective.pooler()?;
    run_folder.save(&trained, &tokenizer, &network, pooler.as_ref(), &card(&outcome))?;
    Ok(outcome)
}

/// Returns the parts of a selector to evaluate or to save. `sentences` is the network that computes sentence vectors if
/// they are frozen.
fn trained<'a>(
    (settings, head): &'a (SelectorSettings, Head),
    network: &'a Network,
    sentences: &'a Network,
) -> Trained<'a> {
    let is_frozen = settings.sentences.is_some_and(|sentences| sentences.frozen);
    Trained { network, sentence_network: is_frozen.then_some(sentences), head, settings }
}

/// Warns if there are few dialogues or many unknown tokens.
fn warn_about_data(data: &TrainingSet, recipe: &ResolvedRecipe, observer: &dyn RunObserver) {
    if data.len() < MIN_DIALOGUES {
        observer.warn(&format!(
            "training on only {}: too few to learn anything general; use at least a few hundred",
            counted(data.len() as u64, "dialogue")
        ));
    }
    if data.unknown * UNKNOWN_ONE_IN > data.tokens {
        observer.warn(&format!(
            "{} of the {} tokens are unknown to {}, for example because of a different language or script: nothing is learned from \
             them; choose a model for this language with -m MODEL",
            grouped(data.unknown),
            grouped(data.tokens),
            recipe.file.model
        ));
    }
}

/// Returns a hash of the recipe, the data and the model, which together determine the result of a run.
fn identity(recipe: &Recipe, data: &str, model: &str) -> Result<String> {
    let bytes = serde_json::to_vec(&(recipe, data, model)).map_err(|e| Error::Internal(e.to_string()))?;
    Ok(blake3::hash(&bytes).to_hex()[..32].to_owned())
}

fn report_data(data: &TrainingSet, prompt: &str, recipe: &ResolvedRecipe, observer: &dyn RunObserver) {
    let mut more = String::new();
    if !prompt.is_empty() {
        more += &format!(", with the prompt {prompt:?}");
    }
    if data.left_out > 0 {
        more += &format!("; {} too short, skipped", grouped(data.left_out as u64));
    }
    if data.blank > 0 {
        more += &format!("; {} without text, skipped", counted(data.blank as u64, "turn"));
    }
    observer.note(&format!(
        "{} from {} with {} and {}{more}",
        recipe.file.objective.name(),
        recipe.file.model,
        counted(data.len() as u64, "dialogue"),
        counted(data.turns() as u64, "turn"),
    ));
}

/// State of the training loop.
struct StepLoop<'r, 't> {
    run: &'r Run<'r>,
    settings: &'r StepSettings,
    model: &'r Trainable,
    objective: &'r dyn Objective,
    trainer: &'r mut Trainer<'t>,
    evaluator: &'r Evaluator<'r>,
    identity: &'r str,
}

impl StepLoop<'_, '_> {
    /// Takes the remaining steps. `done` is the number of steps that were taken before.
    fn run(&mut self, done: u64) -> Result<Outcome> {
        let Run { recipe, folder, observer, .. } = *self.run;
        let steps = self.settings.plan.schedule.steps;
        let mut metrics = Lines::open(&folder.join(METRICS), done)?;
        let mut evaluation_log = Lines::open(&folder.join(EVALUATIONS), done)?;
        let mut evaluations: Vec<Evaluation> = lines::read(&folder.join(EVALUATIONS))?;
        let mut examples = Spent::of(&lines::read(&folder.join(METRICS))?).examples;
        // The speed shown is for this call only, without the steps before a resume.
        let (mut tokens, mut seconds, mut smooth) = (0, 0.0, None);
        let report = |done: u64, items: u64, detail: &str| {
            let (stage, total) = (Stage::Training, Some(steps));
            observer.progress(&Progress { stage, done, total, items, detail });
        };
        let (mut step, mut is_first) = (done, true);
        loop {
            // This also performs an evaluation that an interrupted run missed.
            if self.needs_evaluation(step, &evaluations) && !observer.should_stop() {
                is_first = true;
                match self.evaluate(step) {
                    Ok(evaluation) => evaluations.push(evaluation),
                    // The next iteration skips the evaluation and saves the steps.
                    Err(Error::Interrupted { .. }) => continue,
                    Err(e) => return Err(e),
                }
                // Save the best model before its evaluation is written, so that the model of a recorded best evaluation
                // always exists.
                if recipe.select.best(&evaluations).is_some_and(|best| best.step == step) {
                    checkpoint::save_as(&folder.checkpoints(), folder::BEST, self.trainer, self.identity)?;
                }
                evaluations.last().map_or(Ok(()), |evaluation| evaluation_log.add(evaluation))?;
                self.draw(&evaluations, None)?;
            }
            let ends = (step == steps || self.should_stop(&evaluations)) && !observer.should_stop();
            let is_new = step > done && (ends || step.is_multiple_of(recipe.file.checkpoint_every));
            if is_new || observer.should_stop() && step > 0 {
                checkpoint::save(&folder.checkpoints(), self.trainer, self.identity)?;
                checkpoint::prune(&folder.checkpoints(), folder::CHECKPOINTS)?;
            }
            if ends {
                break;
            }
            if observer.should_stop() {
                return Err(self.interrupted(step));
            }
            if is_first {
                report(step, examples, "");
                is_first = false;
            }
            let started = Instant::now();
            let result = match self.trainer.step() {
                Ok(result) => result,
                Err(e) => return Err(folder.explain_failure(e, step, self.trainer)),
            };
            let took = started.elapsed().as_secs_f64();
            metrics.add(&Line { result, seconds: took })?;
            step += 1;
            seconds += took;
            examples += result.examples as u64;
            tokens += result.tokens as u64;
            let smoothed = smooth.map_or(result.loss, |s: f64| 0.9 * s + 0.1 * result.loss);
            smooth = Some(smoothed);
            let rate = grouped((tokens as f64 / seconds.max(1e-3)) as u64);
            let memory = own_bytes().map_or_else(String::new, |own| format!(", {}", bytes(own)));
            report(step, examples, &format!("step {step}, loss {smoothed:.4}, {rate} tokens/s{memory}"));
        }
        let kept = recipe.select.best(&evaluations).map_or(step, |best| best.step);
        self.draw(&evaluations, Some(kept))?;
        if kept != step {
            let best = folder.checkpoints().join(folder::BEST);
            checkpoint::load(&best, self.trainer, self.identity)?;
        }
        let metrics: Vec<Line> = lines::read(&folder.join(METRICS))?;
        let (losses, spent) = (losses(&metrics), Spent::of(&metrics));
        Ok(Outcome { steps: step, kept, losses, learned: None, evaluations, spent })
    }

    /// Returns true if an evaluation is due after this step and has not been done yet.
    fn needs_evaluation(&self, step: u64, evaluations: &[Evaluation]) -> bool {
        let every = self.settings.evaluate_every;
        let is_due = step == self.settings.plan.schedule.steps || step.is_multiple_of(every);
        every > 0
            && !self.evaluator.is_empty()
            && is_due
            && evaluations.last().is_none_or(|last| last.step < step)
    }

    fn interrupted(&self, step: u64) -> Error {
        let kept =
            format!("{} of {} steps are saved", grouped(step), grouped(self.settings.plan.schedule.steps));
        Error::Interrupted { hint: Some(format!("{kept}; continue with the same command and --resume")) }
    }

    /// Returns true if the last `patience` evaluations showed no improvement (early stopping).
    fn should_stop(&self, evaluations: &[Evaluation]) -> bool {
        let patience = self.run.recipe.file.patience;
        patience > 0 && self.run.recipe.select.since_best(evaluations) >= patience
    }

    fn evaluate(&self, step: u64) -> Result<Evaluation> {
        let (base, start) = (self.run.base, self.model.start());
        let selector = self.objective.selector()?;
        // The layers of a new head are random, so such a selector is compared with the vectors of the base model. The head
        // `matching` starts with similarities, so its own scores are meaningful.
        let is_meaningful = |head: &Head| base.selector.is_some() || head.scales.is_some();
        let evaluation = match step {
            0 if selector.as_ref().is_none_or(|(_, head)| !is_meaningful(head)) => {
                self.evaluator.evaluate(Evaluated::Encoder(start), 0)?
            }
            _ => {
                let network = self.model.network()?;
                let sentences = base.sentence_network().unwrap_or(start);
                let model = match &selector {
                    Some(selector) => Evaluated::Selector(trained(selector, &network, sentences)),
                    None => Evaluated::Encoder(&network),
                };
                self.evaluator.evaluate(model, step)?
            }
        };
        let values = evaluation_line(&evaluation);
        self.run.observer.note(&format!("after {}: {values}", counted(step, "step")));
        Ok(evaluation)
    }

    /// Draws the curves. `kept` is the step of the saved model, to be marked; `None` during training.
    fn draw(&self, evaluations: &[Evaluation], kept: Option<u64>) -> Result<()> {
        let steps: Vec<Line> = lines::read(&self.run.folder.join(METRICS))?;
        let curves = curves::Curves { steps: &steps, evaluations, learned: None, kept };
        curves.write(self.run.recipe, self.run.folder)
    }
}
