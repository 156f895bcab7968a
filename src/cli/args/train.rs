//! Training.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};

use super::{ReadArgs, parsed};
use turnwise_core::error::Error;
use turnwise_encoder::DeviceChoice;
use turnwise_train::{
    recipe::{Aggregation, DevTask, ObjectiveName, Profile},
    run::evaluations::Selection,
    schedule::Shape,
};

#[derive(Debug, Args)]
#[command(after_help = TRAIN_HELP, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct TrainArgs {
    #[command(subcommand)]
    pub(crate) command: Option<TrainCommand>,
    #[command(flatten)]
    pub(crate) run: TrainRunArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TrainCommand {
    /// Train once for each of several values of a setting, and put side by side what comes of them
    #[command(after_help = SWEEP_HELP)]
    Sweep(Box<SweepArgs>),
    /// List the recipes that come with turnwise, what they begin with, and whether their data are here
    List(ListArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// The folder that their paths are below
    #[arg(long, value_name = "FOLDER", default_value = "data")]
    pub(crate) data: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// A setting as recipe.toml has it, and its values, such as temperature=0.05,0.1; every combination of more than one
    #[arg(long, value_name = "SETTING=VALUE,…", required = true, value_parser = varied)]
    pub(crate) vary: Vec<(String, Vec<String>)>,
    #[command(flatten)]
    pub(crate) run: TrainRunArgs,
}

/// A setting and its values.
fn varied(text: &str) -> Result<(String, Vec<String>), String> {
    let written = "it is written SETTING=VALUE,VALUE, such as negatives=1,4,9";
    let (name, values) = text.split_once('=').ok_or(written)?;
    let values: Vec<String> = values.split(',').map(|v| v.trim().to_owned()).collect();
    match values.iter().any(String::is_empty) {
        true => Err(written.to_owned()),
        false => Ok((name.trim().to_owned(), values)),
    }
}

#[derive(Debug, Args)]
pub(crate) struct TrainRunArgs {
    /// auto (for dialogues), surroundings (for utterances, without steps), places (for what utterances do), responses, dialoguecse, dial2vec, simcse, siamese-s, siamese-m, words, relevance, joint; or a recipe: a file (.toml), such as another run's recipe.toml, or one that comes with turnwise, such as dialoguecse-ecd
    #[arg(value_name = "OBJECTIVE|RECIPE", required = true)]
    what: Option<String>,
    /// The dialogues: the name or folder of an index, or files and folders (walked)
    #[arg(short, long, value_name = "INDEX|PATH", num_args = 1..)]
    pub(crate) corpus: Vec<PathBuf>,
    /// The folder that a recipe's paths are below [default: data, for a recipe that comes with turnwise]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    /// The model that training begins with: a folder, or a name
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// The folder of the run
    #[arg(short, long, value_name = "FOLDER", required = true)]
    output: Option<PathBuf>,
    /// Go on with a run that was stopped: the same command, and the folder that it wrote
    #[arg(long)]
    pub(crate) resume: bool,
    /// Train with several seeds, a folder each: 3 (from --seed on) or 1..5
    #[arg(long, value_name = "N|A..B", value_parser = parsed::<Seeds>)]
    pub(crate) seeds: Option<Seeds>,
    /// Settings that go together: small is less of all, for a large model on two cores
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<Preset>,
    /// Where it computes: auto, cpu, cuda, cuda:1, metal
    #[arg(long, default_value_t, value_name = "DEVICE", value_parser = parsed::<DeviceChoice>)]
    device: DeviceChoice,
    /// Compute on several at the same time, such as cuda:0,cuda:1; each takes a share of every step
    #[arg(long, value_delimiter = ',', value_name = "DEVICE,…", value_parser = parsed::<DeviceChoice>, conflicts_with = "device")]
    devices: Vec<DeviceChoice>,
    /// Hold the dialogues in memory, not in files without a name on the disk of the run's folder; what is learned is the same
    #[arg(long)]
    pub(crate) in_memory: bool,
    #[command(flatten)]
    pub(crate) run: RunningArgs,
    #[command(flatten)]
    pub(crate) looking: LookingArgs,
    #[command(flatten)]
    pub(crate) goal: GoalArgs,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
}

impl TrainRunArgs {
    /// Where it computes, and which others take a share. A GPU has room for one.
    pub(crate) fn devices(&self) -> Result<(DeviceChoice, &[DeviceChoice]), Error> {
        for (n, device) in self.devices.iter().enumerate() {
            if *device != DeviceChoice::Cpu && self.devices[..n].contains(device) {
                return Err(Error::input(format!("{device} stands twice in --devices"))
                    .with_hint("each device takes one share of a step"));
            }
        }
        let split = self.devices.split_first();
        Ok(split.map_or((self.device, &[]), |(first, others)| (*first, others)))
    }

    // Both are always there, but where a subcommand has its own.

    /// An objective, or the file of a recipe.
    pub(crate) fn what(&self) -> &str {
        self.what.as_deref().unwrap_or_default()
    }

    /// The folder of the run.
    pub(crate) fn output(&self) -> &Path {
        self.output.as_deref().unwrap_or(Path::new(""))
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Training")]
pub(crate) struct RunningArgs {
    /// Steps
    #[arg(long, value_name = "N")]
    pub(crate) steps: Option<u64>,
    /// Examples a step
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<usize>,
    /// Parts that a step is computed in: less memory, the same step
    #[arg(long, value_name = "N")]
    pub(crate) parts: Option<usize>,
    /// The learning rate
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub(crate) learning_rate: Option<f64>,
    /// How it goes after the warm-up: constant, linear or cosine
    #[arg(long, value_name = "SHAPE", value_parser = parsed::<Shape>)]
    pub(crate) schedule: Option<Shape>,
    /// Steps in which it grows from 0
    #[arg(long, value_name = "N")]
    pub(crate) warm_up: Option<u64>,
    /// What weights lose in a step, times the learning rate
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) weight_decay: Option<f64>,
    /// Make gradients that are longer as long as this; 0: never
    #[arg(long, value_name = "LENGTH", allow_negative_numbers = true)]
    pub(crate) clip: Option<f64>,
    /// How much of hidden states and attention is dropped
    #[arg(long, value_name = "PART", allow_negative_numbers = true)]
    pub(crate) dropout: Option<f64>,
    /// Layers that stay as they are, from below; with one, the embeddings stay, too
    #[arg(long, value_name = "N")]
    pub(crate) frozen_layers: Option<usize>,
    /// Steps between checkpoints
    #[arg(long, value_name = "N")]
    pub(crate) checkpoint_every: Option<u64>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Evaluation")]
pub(crate) struct LookingArgs {
    /// Measure it while it learns: dialogues:PATH, sr:FILE, dsts:FILE or response:FILE; more with more --dev
    #[arg(long, value_name = "TASK:PATH", value_parser = parsed::<DevTask>)]
    pub(crate) dev: Vec<DevTask>,
    /// Steps between evaluations; 0: none [default: a fifth of the steps]
    #[arg(long, value_name = "N")]
    pub(crate) evaluate_every: Option<u64>,
    /// Keep so many dialogues aside, at most a tenth: they are not trained on, and tell without labels what is gained
    /// [default: 400 where there is no --dev, else 0]
    #[arg(long, value_name = "N")]
    pub(crate) aside: Option<usize>,
    /// By what the step is chosen whose model is kept: label-free (by the dialogues kept aside, else where neighbours
    /// agree most with words), dev or last [default: label-free]
    #[arg(long, value_name = "HOW", value_parser = parsed::<Selection>)]
    pub(crate) select: Option<Selection>,
    /// Evaluations without a gain after which it ends; 0: never [default: 3]
    #[arg(long, value_name = "N")]
    pub(crate) patience: Option<usize>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Objective")]
pub(crate) struct GoalArgs {
    /// What is trained for beside it, and what its loss counts, such as keep=1,responses=0.5; keep=0 takes away what is there unasked
    #[arg(long, value_name = "OBJECTIVE=WEIGHT,…", value_delimiter = ',', value_parser = weighed)]
    pub(crate) beside: Vec<(ObjectiveName, f64)>,
    /// Tokens an utterance (of a dialogue: a dialogue) may have
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<usize>,
    /// τ: by how much likenesses are divided
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) temperature: Option<f64>,
    /// Wrong ones beside the right one
    #[arg(long, value_name = "N")]
    pub(crate) negatives: Option<usize>,
    /// dialoguecse, joint: so many of the wrong ones are near the right one, by vectors or words, and yet not too near
    #[arg(long, value_name = "N")]
    pub(crate) hard_negatives: Option<usize>,
    /// dialoguecse: turns around a response; responses: turns before it; surroundings: turns before and after an utterance
    #[arg(long, value_name = "N")]
    pub(crate) context: Option<usize>,
    /// dialoguecse: how they become one: i1 (weighed) or i2 (their mean)
    #[arg(long, value_name = "NAME", value_parser = parsed::<Aggregation>)]
    pub(crate) aggregation: Option<Aggregation>,
    /// Put a layer behind what the steps leave, by what is said around each utterance, as surroundings does alone
    #[arg(long)]
    pub(crate) layer: bool,
    /// That layer: what counts what utterances tell of what is said around them, from 0 (nothing) to 1 (all) [default: 0.5]
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    pub(crate) strength: Option<f64>,
    /// dial2vec: turns that are further apart do not match
    #[arg(long, value_name = "N")]
    pub(crate) window: Option<usize>,
    /// dial2vec: as the paper has it, or as its code does
    #[arg(long, value_name = "NAME", value_parser = parsed::<Profile>)]
    pub(crate) profile: Option<Profile>,
    /// Whether consecutive turns of one speaker become one
    #[arg(long, value_name = "BOOL")]
    pub(crate) merge_turns: Option<bool>,
    /// Leave out dialogues with fewer turns
    #[arg(long, value_name = "N")]
    pub(crate) min_turns: Option<usize>,
    /// Learn from so many dialogues, drawn by the seed
    #[arg(long, value_name = "N")]
    pub(crate) dialogues: Option<usize>,
}

/// Seeds, one run each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seeds {
    /// So many.
    Count(u64),
    /// From one to another, both among them.
    Range(u64, u64),
}

impl Seeds {
    /// The seeds, where counting begins with one.
    pub(crate) fn all(self, first: u64) -> Vec<u64> {
        match self {
            Seeds::Count(count) => (first..first.saturating_add(count)).collect(),
            Seeds::Range(first, last) => (first..=last).collect(),
        }
    }
}

impl std::str::FromStr for Seeds {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let seeds = match text.split_once("..") {
            Some((first, last)) => number(first).zip(number(last)).map(|(a, b)| Seeds::Range(a, b)),
            None => number(text).map(Seeds::Count),
        };
        match seeds {
            Some(seeds @ Seeds::Count(1..=1_000)) => Ok(seeds),
            Some(seeds @ Seeds::Range(first, last)) if first <= last && last - first < 1_000 => Ok(seeds),
            _ => Err(Error::input(format!("{text} are no seeds"))
                .with_hint("a number from 1, or the first and the last, such as 1..5")),
        }
    }
}

/// Settings that go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// 100 steps, 5,000 dialogues, sequences of 128 tokens
    Small,
}

/// An objective and what it counts.
fn weighed(text: &str) -> Result<(ObjectiveName, f64), String> {
    let (name, weight) = text.split_once('=').ok_or("it is written OBJECTIVE=WEIGHT, such as keep=1")?;
    let weight = weight.parse().map_err(|_| format!("{weight} is not a number"))?;
    Ok((name.parse::<ObjectiveName>().map_err(|e| e.to_string())?, weight))
}

const SWEEP_HELP: &str = "\
Examples:
  turnwise train sweep --vary temperature=0.05,0.1,0.2 dialoguecse -c chats --dev sr:select.txt -o runs/tau
  turnwise train sweep --vary dialogues=500,1000,2000 --seeds 3 auto -c chats --dev dialogues:labelled.jsonl -o runs/scale";

const TRAIN_HELP: &str = "\
`auto` is the objective `neighbours`, which gains most on dialogues; several paths behind --corpus are several corpora,
each with its own teacher. What is not given is what the objective's paper has, with half of the layers frozen. The
model that is kept is that of the best step; docs/training.md tells it all.

Examples:
  turnwise train auto --corpus chats -o runs/chats
  turnwise train auto --corpus chats --dev dialogues:labelled.jsonl --seeds 3 -o runs/three
  turnwise train surroundings --corpus chats -o runs/turns
  turnwise train dialoguecse --corpus chats/ -o runs/chats
  turnwise train dial2vec --corpus demo -m all-MiniLM-L6-v2 --steps 500 -o runs/dialogues
  turnwise train runs/chats/recipe.toml -o runs/again
  turnwise train list
  turnwise train dialoguecse-ecd --data data -o runs/dialoguecse-ecd
  turnwise bench sr select.txt -r model -r model:runs/chats/model";
