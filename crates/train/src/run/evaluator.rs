//! Evaluation of a model during a run: on the labeled dev tasks of the recipe, and without labels.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    time::Instant,
};

use super::{
    Run,
    corpus::{Corpora, read_files},
    evaluations::{Evaluation, HeldOut, HeldOutMeasure, MIN_HELD_OUT, Measured},
    observer::{EvaluationProgress, RunObserver},
};
use crate::{
    objectives::{Output, Sample},
    recipe::{DevTask, ResolvedRecipe},
    spool::DiskVec,
    unique::Unique,
};
use turnwise_core::{
    error::{Error, Result},
    numbers::counted,
    random::Random,
};
use turnwise_corpus::{Dialogue, reader::Reader};
use turnwise_encoder::{
    Network,
    folder::{ModelFolder, PoolingMode},
    open,
    selector::{Selector, Trained},
    transformer::{Settings, Tokens},
};
use turnwise_eval::{
    build::{ResponseOptions, response_set},
    halves::Halves,
    label_free::LabelFree,
    rank::{BySelector, Dense, Items, LastPart, Pool, Ranker},
    tasks::{LoadOptions, Loaded, RankingTask, Task, TaskSpec},
};

/// Maximum number of dialogues in the sample of the label-free evaluation.
const DIALOGUES: usize = 400;
/// Maximum number of utterances in the sample of the label-free evaluation.
const UTTERANCES: usize = 2_000;

/// Minimum length in bytes of the texts that are looked up in the corpus. Shorter texts are often equal by chance.
const DISTINCTIVE_BYTES: usize = 20;
/// The run warns about a task if more than 1/10 of its long texts are also in the corpus. A text is long if it has at
/// least [`DISTINCTIVE_BYTES`] bytes.
const OVERLAP_ONE_IN: usize = 10;

/// Labeled tasks, each with its name in the recipe, for example `sr:select.txt`.
pub(super) type Tasks = Vec<(String, Box<dyn Task>)>;

/// Loads the dev tasks of a recipe. Also returns the hash of their data.
pub(super) fn load_tasks(
    recipe: &ResolvedRecipe,
    reader: &Reader,
    observer: &dyn RunObserver,
) -> Result<(Tasks, String)> {
    let read_dialogues = |path: &Path| {
        let mut dialogues = Vec::new();
        read_files(&[path.to_owned()], reader, observer, &mut |dialogue| {
            dialogues.push(dialogue);
            Ok(())
        })?;
        Ok(dialogues)
    };
    let options = LoadOptions { seed: recipe.file.seed, read_dialogues: &read_dialogues, progress: &() };
    let mut tasks = Tasks::new();
    let mut hasher = blake3::Hasher::new();
    for dev in &recipe.file.dev {
        let spec = TaskSpec::from_name(&dev.task, dev.data.clone())
            .ok_or_else(|| Error::unknown_name("task", &dev.task, DevTask::KNOWN))?;
        let definition = recipe.file.objective.definition();
        if definition.output == Output::Selector && dev.task != "response" {
            return Err(Error::input(format!("a selector cannot be evaluated on the task {}", dev.task))
                .with_hint("use response selection: --dev response:FILE"));
        }
        let Loaded { task, data } = spec.settings().load(Path::new(""), &options)?;
        hasher.update(data.hash.as_bytes());
        tasks.push((String::from(dev.clone()), task));
    }
    Ok((tasks, hasher.finalize().to_hex()[..32].to_owned()))
}

/// Returns all dialogues that are documents of the tasks. Skips tasks whose documents are texts.
pub(super) fn dialogues_of(tasks: &Tasks) -> impl Iterator<Item = &Dialogue> {
    tasks.iter().flat_map(|(_, task)| match &task.pool().documents {
        Items::Dialogues(dialogues) => dialogues.as_slice(),
        Items::Texts(_) => &[],
    })
}

/// Finds the tasks that share more than a tenth of their long texts with the corpus. A text is long if it has at least
/// [`DISTINCTIVE_BYTES`] bytes.
///
/// Returns, for each of these tasks, its name, the number of shared texts, and the number of long texts.
pub(super) fn overlaps<'t>(
    tasks: &'t Tasks,
    dialogues: &DiskVec<Dialogue>,
) -> Result<Vec<(&'t str, usize, usize)>> {
    let texts_in = |items: &'t Items| match items {
        Items::Texts(texts) => texts.as_slice(),
        Items::Dialogues(_) => &[],
    };
    let texts_of = |task: &'t dyn Task| -> HashSet<&'t str> {
        let pool = task.pool();
        let all = texts_in(&pool.documents).iter().chain(texts_in(pool.queries()));
        all.map(|text| text.trim()).filter(|text| text.len() >= DISTINCTIVE_BYTES).collect()
    };
    let texts: Vec<HashSet<&str>> = tasks.iter().map(|(_, task)| texts_of(task.as_ref())).collect();
    let mut shared: Vec<HashSet<&str>> = vec![HashSet::new(); texts.len()];
    if texts.iter().any(|texts| !texts.is_empty()) {
        for dialogue in dialogues.iter() {
            for turn in &dialogue?.turns {
                for (texts, shared) in texts.iter().zip(&mut shared) {
                    shared.extend(texts.get(turn.text.trim()));
                }
            }
        }
    }
    let counts = tasks.iter().zip(shared.iter().zip(&texts));
    let counts = counts.map(|((task, _), (shared, texts))| (task.as_str(), shared.len(), texts.len()));
    Ok(counts.filter(|(_, shared, texts)| shared * OVERLAP_ONE_IN > *texts).collect())
}

/// Data for evaluations during a run: labeled tasks and held-out dialogues. The label-free sample is stored separately.
pub(super) struct EvaluationData {
    pub(super) tasks: Tasks,
    /// The held-out dialogues; `None` if no dialogues are held out.
    pub(super) held_out: Option<HeldOutData>,
}

/// Held-out dialogues, prepared for the evaluation of a model.
pub(super) enum HeldOutData {
    /// The two halves of each dialogue, for encoders.
    Halves(Halves),
    /// Samples of response selection, for selectors.
    Responses(RankingTask),
}

/// Maximum number of response selection samples from the held-out dialogues.
const SAMPLES: usize = 600;
/// Number of candidate responses per sample.
const CANDIDATES: usize = 10;

impl HeldOutData {
    /// Prepares held-out dialogues for the evaluation of the model that a recipe trains. Returns `None` if there are too
    /// few dialogues.
    pub(super) fn new(recipe: &ResolvedRecipe, dialogues: &[Dialogue]) -> Result<Option<Self>> {
        match recipe.file.objective.definition().output {
            Output::Encoder => Ok(Halves::new(dialogues).map(HeldOutData::Halves)),
            Output::Selector if dialogues.len() < MIN_HELD_OUT => Ok(None),
            Output::Selector => {
                // The samples do not depend on the seed of the run, so that runs with different seeds are comparable.
                let options = ResponseOptions {
                    of: CANDIDATES,
                    hard: 0,
                    context: 1,
                    strip_names: false,
                    role: None,
                    samples: None,
                    seed: 0,
                };
                match response_set(dialogues, &options) {
                    Ok(set) => Ok(set.into_task(SAMPLES, 0)?.map(HeldOutData::Responses)),
                    // The dialogues have too few different responses.
                    Err(Error::Data { .. }) => Ok(None),
                    Err(e) => Err(e),
                }
            }
        }
    }

    /// Describes the held-out data for the user.
    pub(super) fn describe(&self) -> String {
        match self {
            HeldOutData::Halves(halves) => counted(halves.len() as u64, "dialogue"),
            HeldOutData::Responses(task) => {
                format!("{} of response selection", counted(task.queries.len() as u64, "sample"))
            }
        }
    }
}

/// A model to evaluate.
pub(super) enum Evaluated<'a> {
    /// An encoder with this network.
    Encoder(&'a Network),
    Selector(Trained<'a>),
}

pub(super) struct Evaluator<'a> {
    run: Run<'a>,
    eval_data: EvaluationData,
    label_free: Option<LabelFree>,
    /// The model before training.
    folder: &'a ModelFolder,
}

impl<'a> Evaluator<'a> {
    /// Creates an evaluator, and draws the sample for the label-free evaluation from the corpora.
    pub(super) fn new(
        run: &Run<'a>,
        corpora: &Corpora,
        eval_data: EvaluationData,
        folder: &'a ModelFolder,
    ) -> Result<Self> {
        // The label-free sample measures vectors, which selectors do not compute.
        let label_free = match run.recipe.file.objective.definition().output {
            Output::Encoder => {
                let sample = draw_sample(run.recipe, corpora, run.folder.path())?;
                LabelFree::new(sample, &EvaluationProgress(run.observer))?
            }
            Output::Selector => None,
        };
        Ok(Evaluator { run: *run, eval_data, label_free, folder })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.eval_data.tasks.is_empty() && self.eval_data.held_out.is_none() && self.label_free.is_none()
    }

    /// Evaluates the network after `step` steps with the pipeline of the base model. If `step` is above 0, mean pooling
    /// replaces the pooling of this pipeline.
    pub(super) fn evaluate(&self, model: Evaluated<'_>, step: u64) -> Result<Evaluation> {
        let trained = match model {
            // Training always uses mean pooling, even if the base model does not.
            Evaluated::Encoder(network) => {
                let pooling = (step > 0).then_some(PoolingMode::Mean);
                return self.evaluate_as(self.folder, network, pooling, step);
            }
            Evaluated::Selector(trained) => trained,
        };
        let started = Instant::now();
        let (name, device) = (&self.run.base.name, self.run.device);
        let selector = Selector::of_training(name, self.folder, trained, device)?;
        self.evaluate_with(&BySelector { selector: &selector, history: LastPart::default() }, step, started)
    }

    /// Evaluates a network with the pipeline of `folder`. If `pooling` is given, it replaces the pooling of the
    /// pipeline.
    pub(super) fn evaluate_as(
        &self,
        folder: &ModelFolder,
        network: &Network,
        pooling: Option<PoolingMode>,
        step: u64,
    ) -> Result<Evaluation> {
        let started = Instant::now();
        let tokens = Tokens { pooling, ..Tokens::default() };
        let settings = Settings { device: self.run.device, tokens, ..Settings::default() };
        let encoder = open::open_with(&self.run.base.name, folder, network, &settings)?;
        self.evaluate_with(&Dense::new(&encoder), step, started)
    }

    /// Evaluates a ranker.
    fn evaluate_with(&self, ranker: &dyn Ranker, step: u64, started: Instant) -> Result<Evaluation> {
        let watch = EvaluationProgress(self.run.observer);
        let mut dev = Vec::new();
        for (name, task) in &self.eval_data.tasks {
            let scorer = ranker.prepare(task.pool(), &watch)?;
            let outcome = task.run(scorer.as_ref(), false, &watch)?;
            // Only the main measure of a task needs per-query values, for significance tests.
            let measured = outcome.values.into_iter().enumerate().map(|(n, v)| Measured {
                task: name.clone(),
                measure: v.measure,
                value: v.value,
                each: if n == 0 { v.each } else { Vec::new() },
            });
            dev.extend(measured);
        }
        let measures = match &self.label_free {
            None => None,
            Some(label_free) => {
                let scorer = ranker.prepare(label_free.pool(), &watch)?;
                scorer.vectors().map(|vectors| label_free.look(vectors))
            }
        };
        let held_out = match &self.eval_data.held_out {
            None => None,
            Some(HeldOutData::Halves(halves)) => {
                let scorer = ranker.prepare(halves.pool(), &watch)?;
                scorer.vectors().map(|vectors| HeldOut::new(halves.look(vectors), HeldOutMeasure::Halves))
            }
            Some(HeldOutData::Responses(task)) => {
                let scorer = ranker.prepare(task.pool(), &watch)?;
                let outcome = task.run(scorer.as_ref(), false, &watch)?;
                let first = outcome.values.into_iter().next();
                first.map(|value| HeldOut::new(value.each, HeldOutMeasure::Responses))
            }
        };
        Ok(Evaluation {
            step,
            layer: false,
            dev,
            held_out,
            agreement: measures.map(|l| l.agreement),
            alignment: measures.map(|l| l.alignment),
            uniformity: measures.map(|l| l.uniformity),
            seconds: started.elapsed().as_secs_f64(),
        })
    }
}

/// Draws the sample for the label-free evaluation: dialogues or distinct utterances, depending on the objective.
fn draw_sample(recipe: &ResolvedRecipe, corpora: &Corpora, spool: &Path) -> Result<Pool> {
    let mut random = Random::new(recipe.file.seed, 3);
    if recipe.file.objective.definition().sample == Sample::Dialogues {
        let chosen = sample(corpora.dialogues.len(), DIALOGUES, &mut random);
        let dialogues = chosen.into_iter().map(|n| Ok(corpora.dialogues.get(n)?.into_owned()));
        return Ok(Pool::of(Items::Dialogues(dialogues.collect::<Result<_>>()?)));
    }
    let mut texts = Unique::new(spool)?;
    for dialogue in corpora.dialogues.iter() {
        dialogue?.turns.iter().try_for_each(|turn| texts.push(&turn.text))?;
    }
    // Count the texts first and pick by number, so that memory holds only the sample.
    let mut count = 0;
    texts.each(&mut |_| count += 1)?;
    let chosen = sample(count, UTTERANCES, &mut random);
    let wanted: HashMap<usize, usize> = chosen.into_iter().zip(0..).collect();
    let (mut found, mut number) = (vec![String::new(); wanted.len()], 0);
    texts.each(&mut |text| {
        if let Some(index) = wanted.get(&number) {
            found[*index] = text;
        }
        number += 1;
    })?;
    Ok(Pool::of(Items::Texts(found)))
}

/// Draws up to `most` distinct numbers below `count`, in random order.
fn sample(count: usize, most: usize, random: &mut Random) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..count).collect();
    random.shuffle(&mut numbers);
    numbers.truncate(most);
    numbers
}
