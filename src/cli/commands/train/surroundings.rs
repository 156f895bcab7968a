//! Learns a linear layer from the context of utterances: alone (`train surroundings`) or after training steps
//! (`--layer`).

use std::time::Instant;

use super::{
    Run,
    corpus::Read,
    curves,
    evaluating::{EvaluationData, Evaluator},
    report,
    running::Reached,
};
use crate::cli::{progress::ProgressBar, signals};
use turnwise_core::{
    error::{Error, Result},
    random::Random,
};
use turnwise_encoder::{
    Encoder, Network, TextOptions,
    folder::{Dense, DenseActivation, ModelFolder, Pipeline, Step},
    open,
    transformer::Settings,
};
use turnwise_train::{
    recipe::LayerSettings,
    run::{
        card::Card,
        evaluations::Evaluation,
        learned::Learned,
        lines::{self, Lines},
        metrics::Line,
    },
    surroundings::{self, Layer, Sums},
};

/// Largest number of dialogues used per corpus; more hardly change the layer.
const MOST: usize = 16_384;

/// A run and the base model of its layer.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) run: &'a Run<'a>,
    pub(super) folder: &'a ModelFolder,
}

impl Surroundings<'_> {
    /// Learns the layer from dialogues, evaluates it, and saves the model: a run without steps.
    pub(super) fn learn_alone(&self, read: &Read, eval_data: EvaluationData) -> Result<Reached> {
        let Run { recipe, start, folder: run_folder, device, of, context } = *self.run;
        let network = self.folder.network()?;
        let named = (start.name.as_str(), self.folder);
        let evaluator = Evaluator::new(recipe, (read, run_folder.path()), eval_data, named, device, context)?;
        let (trained, learned) = self.learn(self.folder.pipeline(), &network, read)?;
        run_folder.begin(recipe, of)?;
        // Evaluations of an interrupted run are discarded, because the run starts again.
        Lines::<Evaluation>::open(&run_folder.evaluations(), 0)?.clear()?;
        let mut evaluations = Vec::new();
        for (layer, folder) in [(false, self.folder), (true, &trained)] {
            evaluations.extend(self.measure(&evaluator, folder, &network, (0, layer))?);
        }
        let seen = (learned.dialogues as usize, learned.utterances as usize);
        let reached = Reached { learned: Some(learned), evaluations, ..Reached::default() };
        self.draw(&reached)?;
        let card = Card {
            recipe,
            base: &start.name,
            repository: start.repository.as_deref(),
            seen,
            data: &of.dialogues,
            kept: reached.kept,
            gains: report::of_card(&reached, recipe.seed),
            losses: None,
            layered: true,
        };
        run_folder.save(&trained, &trained.tokenizer()?, &network, &card)?;
        Ok(reached)
    }

    /// Appends the layer to a model trained by steps and evaluates it. Returns the model.
    pub(super) fn append(
        &self,
        (pipeline, network): (&Pipeline, &Network),
        read: &Read,
        evaluator: &Evaluator,
        reached: &mut Reached,
    ) -> Result<ModelFolder> {
        let (trained, learned) = self.learn(pipeline, network, read).map_err(|e| match e {
            Error::Interrupted { .. } => Error::Interrupted {
                hint: Some("the steps are saved; continue with the same command and --resume".to_owned()),
            },
            other => other,
        })?;
        let evaluation = self.measure(evaluator, &trained, network, (reached.steps, true))?;
        reached.evaluations.extend(evaluation);
        reached.learned = Some(learned);
        self.draw(reached)?;
        Ok(trained)
    }

    /// Learns the layer. Returns the model with the layer appended, and a description of the layer.
    fn learn(&self, before: &Pipeline, network: &Network, read: &Read) -> Result<(ModelFolder, Learned)> {
        let settings =
            self.run.recipe.layer().ok_or_else(|| Error::Internal("no layer is learned".to_owned()))?;
        let (sums, mut learned) = self.accumulate(settings, before, network, read)?;
        let layer = surroundings::learn(&sums, settings.strength)?;
        (learned.told, learned.by_chance) = (layer.told.clone(), layer.by_chance);
        Ok((ModelFolder::open(self.folder.path())?.with_pipeline(with(before, layer)), learned))
    }

    /// Encodes the dialogues and accumulates the statistics of each corpus.
    fn accumulate(
        &self,
        settings: LayerSettings,
        before: &Pipeline,
        network: &Network,
        read: &Read,
    ) -> Result<(Vec<Sums>, Learned)> {
        let started = Instant::now();
        let Run { recipe, start, device, context, .. } = *self.run;
        // Use full vectors: truncation happens after the layer.
        let whole = Pipeline { truncate_dim: None, ..before.clone() };
        let folder = ModelFolder::open(self.folder.path())?.with_pipeline(whole);
        let device = Settings { device, ..Settings::default() };
        let encoder = open::open_with(&start.name, &folder, network, &device)?;
        let least = recipe.min_turns;
        let (mut corpora, mut begin) = (Vec::new(), 0);
        let mut seen = Learned::default();
        for end in &read.ends {
            let mut chosen: Vec<usize> = (begin..*end).collect();
            // Shuffle, so that dialogues in a chunk are not more similar than by chance.
            Random::new(recipe.seed, 1).shuffle(&mut chosen);
            chosen.truncate(MOST);
            let mut sums = Sums::new(encoder.dim(), settings.context);
            let mut progress = ProgressBar::new(
                context.printer,
                "reading contexts",
                "utterances",
                Some(chosen.len() as u64),
            );
            let (mut texts, mut bytes, mut turns) = (Vec::new(), 0, Vec::new());
            for (n, number) in chosen.iter().enumerate() {
                if signals::stopped() {
                    return Err(Error::Interrupted { hint: None });
                }
                let dialogue = read.dialogues.get(*number)?.into_owned();
                if dialogue.turns.len() >= least {
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
                    progress.set(n as u64 + 1, seen.utterances);
                    (texts, bytes, turns) = (Vec::new(), 0, Vec::new());
                }
            }
            corpora.push(sums);
            begin = *end;
        }
        seen.seconds = started.elapsed().as_secs_f64();
        Ok((corpora, seen))
    }

    /// Evaluates a model and prints the result, unless there is nothing to evaluate on.
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
        Lines::open(&self.run.folder.evaluations(), step)?.add(&evaluation)?;
        let when = if layer { "with the layer" } else { "before" };
        self.run.context.printer.say(format!("{when}: {}", report::measured(&evaluation)));
        Ok(Some(evaluation))
    }

    /// Writes the description of the layer and the curves.
    fn draw(&self, reached: &Reached) -> Result<()> {
        let learned = reached.learned.as_ref();
        learned.map_or(Ok(()), |learned| learned.write(&self.run.folder.layer()))?;
        let metrics = self.run.folder.metrics();
        let steps: Vec<Line> = if metrics.exists() { lines::read(&metrics)? } else { Vec::new() };
        let (evaluations, kept) = (reached.evaluations.as_slice(), Some(reached.kept));
        let curves = curves::Curves { steps: &steps, evaluations, learned, kept };
        curves.write(self.run.recipe, self.run.folder)
    }
}

/// Returns the pipeline with the layer appended.
fn with(before: &Pipeline, layer: Layer) -> Pipeline {
    let mut pipeline = before.clone();
    let dim = layer.bias.len();
    pipeline.steps.push(Step::Dense(Dense {
        inputs: dim,
        outputs: dim,
        weight: layer.weight,
        bias: Some(layer.bias),
        activation: DenseActivation::Identity,
    }));
    if before.normalizes() {
        pipeline.steps.push(Step::Normalize);
    }
    pipeline
}
