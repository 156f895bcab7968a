//! The layer by what is said around utterances: alone (`train surroundings`), or behind what steps have left (`--layer`).

use std::{path::Path, time::Instant};

use super::{
    corpus::Read,
    curves,
    evaluating::{Evaluator, Tasks},
    folder::RunFolder,
    running::Reached,
    told,
};
use crate::{
    cli::{Context, printer::counted, progress::Progress, signals},
    encoder::{
        DeviceChoice, Encoder, Network, TextOptions,
        folder::{Dense, DenseActivation, ModelFolder, Pipeline, Step},
        open,
        transformer::Settings,
    },
    error::{Error, Result},
    random::Random,
    store::files,
    train::{
        recipe::{ObjectiveName, Recipe},
        run::{
            card::Card,
            evaluations::Evaluation,
            events,
            lines::{self, Lines},
            metrics::Line,
        },
        surroundings::{self, Layer, Sums},
    },
};

/// Dialogues of a corpus that are looked at, at most: more of them move the layer no more.
const MOST: usize = 16_384;

/// What a layer is to stand behind.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) recipe: &'a Recipe,
    /// The model's name.
    pub(super) name: &'a str,
    pub(super) folder: &'a ModelFolder,
    pub(super) device: DeviceChoice,
    pub(super) run_folder: &'a RunFolder,
    pub(super) context: &'a Context<'a>,
}

/// What was looked at.
struct Seen {
    dialogues: usize,
    utterances: u64,
    tokens: u64,
    seconds: f64,
}

impl Surroundings<'_> {
    /// Learns from dialogues with that hash, measures what it gains, and saves it: a run without steps.
    pub(super) fn run(&self, read: &Read, room: &Path, tasks: Tasks, hash: &str) -> Result<Reached> {
        let (recipe, run_folder) = (self.recipe, self.run_folder);
        let network = self.folder.network()?;
        let named = (self.name, self.folder);
        let evaluator = Evaluator::new(recipe, (read, room), tasks, named, self.device, self.context)?;
        let (trained, learned, seen) = self.learn(self.folder.pipeline(), &network, read)?;
        run_folder.begin(recipe, hash)?;
        // What there was is of a run that was stopped, and begins anew.
        Lines::<Evaluation>::open(&run_folder.evaluations(), 0)?.clear()?;
        let mut evaluations = Vec::new();
        for (step, folder, when) in [(0, self.folder, "as it is"), (1, &trained, "with the layer")] {
            evaluations.extend(self.measure(&evaluator, folder, &network, step, when)?);
        }
        self.draw(&evaluations)?;
        let reached = Reached {
            steps: 1,
            kept: 1,
            losses: None,
            learned: Some(learned),
            evaluations,
            seconds: seen.seconds,
            examples: seen.utterances,
            tokens: seen.tokens,
        };
        let card = Card {
            recipe,
            base: self.name,
            seen: (seen.dialogues, seen.utterances as usize),
            data: hash,
            kept: reached.kept,
            gains: told::gains(&reached, recipe.seed).into_iter().map(told::Gain::of_card).collect(),
            losses: None,
        };
        run_folder.save(&trained, &trained.tokenizer()?, &network, &card)?;
        Ok(reached)
    }

    /// Puts the layer behind what steps have left, and measures it as one step more; gives the model.
    pub(super) fn behind(
        &self,
        (pipeline, network): (&Pipeline, &Network),
        read: &Read,
        evaluator: &Evaluator,
        reached: &mut Reached,
    ) -> Result<ModelFolder> {
        let (trained, learned, _) = self.learn(pipeline, network, read).map_err(|e| match e {
            Error::Interrupted { .. } => Error::Interrupted {
                hint: Some("the steps are kept; the same command with --resume goes on".to_owned()),
            },
            other => other,
        })?;
        let step = reached.steps + 1;
        let evaluation = self.measure(evaluator, &trained, network, step, "with the layer")?;
        reached.evaluations.extend(evaluation);
        self.draw(&reached.evaluations)?;
        reached.learned = Some(learned);
        Ok(trained)
    }

    /// The model with the layer behind all that was there, and what was learned, in words.
    fn learn(
        &self,
        before: &Pipeline,
        network: &Network,
        read: &Read,
    ) -> Result<(ModelFolder, String, Seen)> {
        let (sums, seen) = self.look(before, network, read)?;
        let layer = surroundings::learn(&sums, self.recipe.strength.unwrap_or(1.0))?;
        let learned = format!(
            "a layer by what is said around {}; directions that tell more than chance does: {}, the first {:.2} (chance {:.2})",
            counted(seen.utterances, "utterance"),
            layer.telling(),
            layer.told[0],
            layer.by_chance
        );
        Ok((ModelFolder::open(self.folder.path())?.with_pipeline(with(before, layer)), learned, seen))
    }

    /// Encodes the dialogues, and adds them up corpus by corpus.
    fn look(&self, before: &Pipeline, network: &Network, read: &Read) -> Result<(Vec<Sums>, Seen)> {
        let started = Instant::now();
        let recipe = self.recipe;
        // Whole vectors: what is cut off at the end is cut off behind the layer.
        let whole = Pipeline { truncate_dim: None, ..before.clone() };
        let folder = ModelFolder::open(self.folder.path())?.with_pipeline(whole);
        let settings = Settings { device: self.device, ..Settings::default() };
        let encoder = open::open_with(self.name, &folder, network, &settings)?;
        // Beside an objective of steps the word is that one's.
        let around = match recipe.objective {
            ObjectiveName::Surroundings => recipe.context.unwrap_or(1),
            _ => 1,
        };
        let least = recipe.min_turns.unwrap_or(1);
        let (mut corpora, mut begin) = (Vec::new(), 0);
        let mut seen = Seen { dialogues: 0, utterances: 0, tokens: 0, seconds: 0.0 };
        for end in &read.ends {
            let mut chosen: Vec<usize> = (begin..*end).collect();
            // They stay in that order: those of a chunk are not about the same more often than chance has it.
            Random::new(recipe.seed, 1).shuffle(&mut chosen);
            chosen.truncate(MOST);
            let mut sums = Sums::new(encoder.dim(), around);
            let mut progress =
                Progress::new(self.context.printer, "looking", "utterances", Some(chosen.len() as u64));
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

    /// Measures a model, and says so, unless nothing is to be measured.
    fn measure(
        &self,
        evaluator: &Evaluator,
        folder: &ModelFolder,
        network: &Network,
        step: u64,
        when: &str,
    ) -> Result<Option<Evaluation>> {
        if self.recipe.evaluate_every == Some(0) || evaluator.is_blind() {
            return Ok(None);
        }
        let evaluation = evaluator.evaluate_as(folder, network, None, step)?;
        Lines::open(&self.run_folder.evaluations(), step)?.add(&evaluation)?;
        self.context.printer.say(format!("{when}: {}", told::measured(&evaluation)));
        Ok(Some(evaluation))
    }

    /// What is to be looked at.
    fn draw(&self, evaluations: &[Evaluation]) -> Result<()> {
        let metrics = self.run_folder.metrics();
        let steps: Vec<Line> = if metrics.exists() { lines::read(&metrics)? } else { Vec::new() };
        files::replace(&self.run_folder.curves(), curves::picture(&steps, evaluations).as_bytes())?;
        events::write(&self.run_folder.events(), &curves::scalars(&steps, evaluations))?;
        Ok(())
    }
}

/// What stands before and after a network, with the layer behind all that was there.
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
