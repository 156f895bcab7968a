//! `train surroundings`: no steps, but one look at the dialogues and a linear layer behind the encoder's vectors.

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
        recipe::Recipe,
        run::{card::Card, evaluations::Evaluation, events, lines::Lines},
        surroundings::{self, Layer, Sums},
    },
};

/// Dialogues of a corpus that are looked at, at most: more of them move the layer no more.
const MOST: usize = 16_384;

/// What it begins with.
pub(super) struct Surroundings<'a> {
    pub(super) recipe: &'a Recipe,
    /// The model's name.
    pub(super) name: &'a str,
    pub(super) folder: ModelFolder,
    pub(super) device: DeviceChoice,
    pub(super) run_folder: &'a RunFolder,
    pub(super) context: &'a Context<'a>,
}

/// What was looked at.
struct Seen {
    dialogues: usize,
    utterances: u64,
    tokens: u64,
}

impl Surroundings<'_> {
    /// Learns from dialogues with that hash, measures what it gains, and saves it.
    pub(super) fn run(&self, read: &Read, room: &Path, tasks: Tasks, hash: &str) -> Result<Reached> {
        let (recipe, run_folder) = (self.recipe, self.run_folder);
        let network = self.folder.network()?;
        let named = (self.name, &self.folder);
        let evaluator = Evaluator::new(recipe, (read, room), tasks, named, self.device, self.context)?;
        let started = Instant::now();
        let (layer, seen) = self.learn(&network, read)?;
        let seconds = started.elapsed().as_secs_f64();
        let learned = format!(
            "a layer by what is said around {}; directions that tell more than chance does: {}, the first {:.2} (chance {:.2})",
            counted(seen.utterances, "utterance"),
            layer.telling(),
            layer.told[0],
            layer.by_chance
        );
        let trained = ModelFolder::open(self.folder.path())?.with_pipeline(self.pipeline(layer));
        run_folder.begin(recipe, hash)?;
        let mut measured = Measuring {
            of: evaluator,
            skipped: recipe.evaluate_every == Some(0),
            to: Lines::open(&run_folder.evaluations(), 0)?,
            evaluations: Vec::new(),
        };
        // Of a run that was stopped, and begins anew.
        measured.to.clear()?;
        measured.look(&self.folder, &network, 0, self.context)?;
        measured.look(&trained, &network, 1, self.context)?;
        let evaluations = measured.evaluations;
        files::replace(&run_folder.curves(), curves::picture(&[], &evaluations).as_bytes())?;
        events::write(&run_folder.events(), &curves::scalars(&[], &evaluations))?;
        let reached = Reached {
            steps: 1,
            kept: 1,
            losses: None,
            learned: Some(learned),
            evaluations,
            seconds,
            examples: seen.utterances,
            tokens: seen.tokens,
        };
        let gains = told::gains(&reached, recipe.seed).into_iter();
        let card = Card {
            recipe,
            base: self.name,
            seen: (seen.dialogues, seen.utterances as usize),
            data: hash,
            kept: reached.kept,
            gains: gains.map(|gain| (gain.task, gain.measure, [gain.start, gain.kept])).collect(),
            losses: None,
        };
        run_folder.save(&trained, trained.pipeline(), &trained.tokenizer()?, &network, &card)?;
        Ok(reached)
    }

    /// What stands before and after the network, with the layer behind all that was there.
    fn pipeline(&self, layer: Layer) -> Pipeline {
        let before = self.folder.pipeline();
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

    /// The layer, and what it was learned from.
    fn learn(&self, network: &Network, read: &Read) -> Result<(Layer, Seen)> {
        let recipe = self.recipe;
        // Whole vectors: what is cut off at the end is cut off behind the layer.
        let whole = Pipeline { truncate_dim: None, ..self.folder.pipeline().clone() };
        let folder = ModelFolder::open(self.folder.path())?.with_pipeline(whole);
        let settings = Settings { device: self.device, ..Settings::default() };
        let encoder = open::open_with(self.name, &folder, network, &settings)?;
        let least = recipe.min_turns.unwrap_or(2);
        let (mut corpora, mut begin) = (Vec::new(), 0);
        let mut seen = Seen { dialogues: 0, utterances: 0, tokens: 0 };
        for end in &read.ends {
            let mut chosen: Vec<usize> = (begin..*end).collect();
            Random::new(recipe.seed, 1).shuffle(&mut chosen);
            // They stay in that order: those of a chunk are not about the same more often than chance has it.
            chosen.truncate(MOST);
            let mut sums = Sums::new(encoder.dim(), recipe.context.unwrap_or(1));
            let mut progress =
                Progress::new(self.context.printer, "looking", "utterances", Some(chosen.len() as u64));
            let (mut texts, mut turns) = (Texts::default(), Vec::new());
            for (n, number) in chosen.iter().enumerate() {
                if signals::stopped() {
                    return Err(Error::Interrupted { hint: Some("nothing was learned yet".to_owned()) });
                }
                let dialogue = read.dialogues.get(*number)?;
                if dialogue.turns.len() >= least {
                    seen.dialogues += 1;
                    turns.push(dialogue.turns.len());
                    dialogue.turns.iter().for_each(|turn| texts.push(&turn.text));
                }
                if texts.bytes >= encoder.chunk_bytes() || n + 1 == chosen.len() {
                    let given: Vec<&str> = texts.all.iter().map(String::as_str).collect();
                    let encoded = encoder.encode(&given, &TextOptions::default())?;
                    sums.add(&encoded.vectors, &turns);
                    seen.utterances += given.len() as u64;
                    seen.tokens += encoded.spent.tokens;
                    progress.set(n as u64 + 1, seen.utterances);
                    (texts, turns) = (Texts::default(), Vec::new());
                }
            }
            corpora.push(sums);
            begin = *end;
        }
        Ok((surroundings::learn(&corpora, recipe.strength.unwrap_or(1.0))?, seen))
    }
}

/// Texts on their way to the encoder.
#[derive(Default)]
struct Texts {
    all: Vec<String>,
    bytes: usize,
}

impl Texts {
    fn push(&mut self, text: &str) {
        self.bytes += text.len();
        self.all.push(text.to_owned());
    }
}

/// What it is worth before and after.
struct Measuring<'a> {
    of: Evaluator<'a>,
    skipped: bool,
    to: Lines<Evaluation>,
    evaluations: Vec<Evaluation>,
}

impl Measuring<'_> {
    fn look(
        &mut self,
        folder: &ModelFolder,
        network: &Network,
        step: u64,
        context: &Context<'_>,
    ) -> Result<()> {
        if self.skipped || self.of.is_blind() {
            return Ok(());
        }
        let evaluation = self.of.evaluate_as(folder, network, None, step)?;
        self.to.add(&evaluation)?;
        let when = if step == 0 { "as it is" } else { "with the layer" };
        context.printer.say(format!("{when}: {}", told::measured(&evaluation)));
        self.evaluations.push(evaluation);
        Ok(())
    }
}
