//! Runs that learn a linear layer from the context of utterances: alone (`train context-cca`) or after training steps
//! (`--context-layer`).

use std::{fs, path::Path, time::Instant};

use serde::{Deserialize, Serialize};

use super::{
    Run,
    corpus::Corpora,
    curves,
    evaluations::Evaluation,
    evaluator::{EvaluationData, Evaluator},
    folder::{EVALUATIONS, LAYER, METRICS},
    lines::{self, Line, Lines},
    observer::{self, Progress, Stage},
    outcome::{Outcome, evaluation_line},
};
use crate::{
    context_cca::{self, Layer, Sums},
    recipe::LayerSettings,
};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
    random::Random,
};
use turnwise_encoder::{
    Encoder, Network, TextOptions,
    folder::{Dense, DenseActivation, ModelFolder, Pipeline, Step},
    open,
    transformer::Settings,
};

/// Maximum number of dialogues per corpus. More dialogues hardly change the layer.
const MAX_DIALOGUES: usize = 16_384;

/// Statistics of a learned layer: its training data and its canonical correlations.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    /// Number of dialogues that the layer was learned from.
    pub dialogues: u64,
    /// Number of turns in these dialogues.
    pub utterances: u64,
    /// Number of tokens in these turns.
    pub tokens: u64,
    /// Duration of learning the layer, in seconds.
    pub seconds: f64,
    /// Canonical correlations between utterances and their context, from 0 to 1, in descending order.
    #[serde(rename = "told")]
    pub correlations: Vec<f64>,
    /// Random baseline: the largest correlation between utterances and unrelated contexts.
    #[serde(rename = "by_chance")]
    pub baseline: f64,
}

impl Learned {
    /// Number of canonical correlations above the random baseline.
    pub fn above_baseline(&self) -> usize {
        self.correlations.iter().filter(|correlation| **correlation > self.baseline).count()
    }

    fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string(self).map_err(|e| Error::Internal(e.to_string()))?;
        files::replace(path, (text + "\n").as_bytes())
    }

    /// Reads the statistics from a file. Returns `None` if the file does not exist.
    pub(super) fn read(path: &Path) -> Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(path).at("read", path)?;
        serde_json::from_str(&text).map(Some).map_err(|e| {
            Error::corrupt(path, e.to_string()).with_hint("remove this file: the layer is then learned again")
        })
    }
}

/// A run, and the model to which the layer is appended.
#[derive(Clone, Copy)]
pub(super) struct LayerTraining<'a> {
    pub(super) run: &'a Run<'a>,
    pub(super) folder: &'a ModelFolder,
}

impl LayerTraining<'_> {
    /// Performs a whole run without gradient steps: learns the layer, evaluates it, and saves the model.
    pub(super) fn learn_alone(&self, corpora: &Corpora, eval_data: EvaluationData) -> Result<Outcome> {
        let run_folder = self.run.folder;
        let network = self.folder.network()?;
        let evaluator = Evaluator::new(self.run, corpora, eval_data, self.folder)?;
        let (trained, learned) = self.learn(self.folder.pipeline(), &network, corpora)?;
        run_folder.begin(self.run.recipe, self.run.inputs)?;
        // Evaluations of an interrupted run are discarded, because the run starts again.
        files::replace(&run_folder.join(EVALUATIONS), b"")?;
        let mut evaluations = Vec::new();
        for (layer, folder) in [(false, self.folder), (true, &trained)] {
            evaluations.extend(self.measure(&evaluator, folder, &network, (0, layer))?);
        }
        let seen = (learned.dialogues as usize, learned.utterances as usize);
        let outcome = Outcome { learned: Some(learned), evaluations, ..Outcome::default() };
        self.draw(&outcome)?;
        run_folder.save(&trained, &trained.tokenizer()?, &network, None, &self.run.card(seen, &outcome))?;
        Ok(outcome)
    }

    /// Learns the layer for a model that was trained by steps, and appends it. Evaluates and returns the resulting
    /// model.
    pub(super) fn append(
        &self,
        (pipeline, network): (&Pipeline, &Network),
        corpora: &Corpora,
        evaluator: &Evaluator,
        outcome: &mut Outcome,
    ) -> Result<ModelFolder> {
        let (trained, learned) = self.learn(pipeline, network, corpora).map_err(|e| match e {
            Error::Interrupted { .. } => {
                e.with_hint("the steps are saved; continue with the same command and --resume")
            }
            other => other,
        })?;
        let evaluation = self.measure(evaluator, &trained, network, (outcome.steps, true))?;
        outcome.evaluations.extend(evaluation);
        outcome.learned = Some(learned);
        self.draw(outcome)?;
        Ok(trained)
    }

    /// Learns the layer. Returns the model with the layer appended to the pipeline `before`, and the statistics.
    fn learn(
        &self,
        before: &Pipeline,
        network: &Network,
        corpora: &Corpora,
    ) -> Result<(ModelFolder, Learned)> {
        let started = Instant::now();
        let settings =
            self.run.recipe.layer.ok_or_else(|| Error::Internal("no layer is learned".to_owned()))?;
        let (sums, mut learned) = self.accumulate(settings, before, network, corpora)?;
        let Layer { weight, bias, correlations, baseline } = context_cca::learn(&sums, settings.strength)?;
        (learned.correlations, learned.baseline) = (correlations, baseline);
        let mut pipeline = before.clone();
        let dim = bias.len();
        pipeline.steps.push(Step::Dense(Dense {
            inputs: dim,
            outputs: dim,
            weight,
            bias: Some(bias),
            activation: DenseActivation::Identity,
        }));
        if before.normalizes() {
            pipeline.steps.push(Step::Normalize);
        }
        learned.seconds = started.elapsed().as_secs_f64();
        Ok((ModelFolder::open(self.folder.path())?.with_pipeline(pipeline), learned))
    }

    /// Encodes the dialogues. Returns the [`Sums`] of each corpus, and the statistics without the correlations.
    fn accumulate(
        &self,
        settings: LayerSettings,
        before: &Pipeline,
        network: &Network,
        corpora: &Corpora,
    ) -> Result<(Vec<Sums>, Learned)> {
        let Run { recipe, base, device, observer, .. } = *self.run;
        // The layer needs full vectors, because the pipeline truncates after the layer.
        let whole = Pipeline { truncate_dim: None, ..before.clone() };
        let folder = ModelFolder::open(self.folder.path())?.with_pipeline(whole);
        let encoder_settings = Settings { device, ..Settings::default() };
        let encoder = open::open_with(&base.name, &folder, network, &encoder_settings)?;
        let (mut all, mut begin) = (Vec::new(), 0);
        let mut seen = Learned::default();
        for end in &corpora.ends {
            let mut chosen: Vec<usize> = (begin..*end).collect();
            // The random baseline pairs utterances with contexts from other dialogues of the same chunk. Without
            // shuffling, these dialogues could be similar.
            Random::new(recipe.file.seed, 1).shuffle(&mut chosen);
            chosen.truncate(MAX_DIALOGUES);
            let mut sums = Sums::new(encoder.dim(), settings.context);
            let report = |done: usize, items: u64| {
                let (stage, total) = (Stage::EncodingContexts, Some(chosen.len() as u64));
                observer.progress(&Progress { stage, done: done as u64, total, items, detail: "" });
            };
            report(0, seen.utterances);
            let (mut texts, mut bytes, mut turns) = (Vec::new(), 0, Vec::new());
            for (n, number) in chosen.iter().enumerate() {
                observer::check(observer, None)?;
                let dialogue = corpora.dialogues.get(*number)?.into_owned();
                if dialogue.turns.len() >= recipe.min_turns {
                    seen.dialogues += 1;
                    turns.push(dialogue.turns.len());
                    bytes += dialogue.turns.iter().map(|turn| turn.text.len()).sum::<usize>();
                    texts.extend(dialogue.turns.into_iter().map(|turn| turn.text));
                }
                if bytes >= encoder.chunk_bytes() || n + 1 == chosen.len() {
                    let given: Vec<&str> = texts.iter().map(String::as_str).collect();
                    let encoded = encoder.encode(&given, &TextOptions::default())?;
                    sums.add(&encoded.vectors, &turns);
                    seen.utterances += given.len() as u64;
                    seen.tokens += encoded.spent.tokens;
                    report(n + 1, seen.utterances);
                    (texts, bytes, turns) = (Vec::new(), 0, Vec::new());
                }
            }
            all.push(sums);
            begin = *end;
        }
        Ok((all, seen))
    }

    /// Evaluates a model and reports the result. Returns `None` if there is nothing to evaluate on. `step` and `layer`
    /// become fields of the [`Evaluation`].
    fn measure(
        &self,
        evaluator: &Evaluator,
        folder: &ModelFolder,
        network: &Network,
        (step, layer): (u64, bool),
    ) -> Result<Option<Evaluation>> {
        if !self.run.recipe.evaluates || evaluator.is_empty() {
            return Ok(None);
        }
        let mut evaluation = evaluator.evaluate_as(folder, network, None, step)?;
        evaluation.layer = layer;
        Lines::open(&self.run.folder.join(EVALUATIONS), step)?.add(&evaluation)?;
        let when = if layer { "with the layer" } else { "before" };
        self.run.observer.note(&format!("{when}: {}", evaluation_line(&evaluation)));
        Ok(Some(evaluation))
    }

    /// Writes the statistics of the layer and the curves.
    fn draw(&self, outcome: &Outcome) -> Result<()> {
        let learned = outcome.learned.as_ref();
        learned.map_or(Ok(()), |learned| learned.write(&self.run.folder.join(LAYER)))?;
        let metrics = self.run.folder.join(METRICS);
        let steps: Vec<Line> = if metrics.exists() { lines::read(&metrics)? } else { Vec::new() };
        let (evaluations, kept) = (outcome.evaluations.as_slice(), Some(outcome.kept));
        let curves = curves::Curves { steps: &steps, evaluations, learned, kept };
        curves.write(self.run.recipe, self.run.folder)
    }
}
