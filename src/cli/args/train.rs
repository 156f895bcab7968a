//! Training.

use std::path::PathBuf;

use clap::Args;

use super::{ReadArgs, parsed};
use crate::{
    encoder::DeviceChoice,
    train::{
        recipe::{Aggregation, DevTask, ObjectiveName, Profile},
        run::evaluations::Selection,
        schedule::Shape,
    },
};

#[derive(Debug, Args)]
#[command(after_help = TRAIN_HELP)]
pub(crate) struct TrainArgs {
    /// auto (for dialogues), responses, dialoguecse, dial2vec, simcse, siamese-s, siamese-m, words, relevance; or a recipe (.toml), such as another run's recipe.toml
    #[arg(value_name = "OBJECTIVE|RECIPE")]
    pub(crate) what: String,
    /// The dialogues: the name or folder of an index, or files and folders (walked)
    #[arg(short, long, value_name = "INDEX|PATH", num_args = 1..)]
    pub(crate) corpus: Vec<PathBuf>,
    /// The model that training begins with: a folder, or a name
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// The folder of the run
    #[arg(short, long, value_name = "FOLDER")]
    pub(crate) output: PathBuf,
    /// Go on with a run that was stopped: the same command, and the folder that it wrote
    #[arg(long)]
    pub(crate) resume: bool,
    /// Where it computes: auto, cpu, cuda, cuda:1, metal
    #[arg(long, default_value_t, value_name = "DEVICE", value_parser = parsed::<DeviceChoice>)]
    pub(crate) device: DeviceChoice,
    #[command(flatten)]
    pub(crate) run: RunningArgs,
    #[command(flatten)]
    pub(crate) looking: LookingArgs,
    #[command(flatten)]
    pub(crate) goal: GoalArgs,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
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
    #[arg(long, value_name = "RATE")]
    pub(crate) learning_rate: Option<f64>,
    /// How it goes after the warm-up: constant, linear or cosine
    #[arg(long, value_name = "SHAPE", value_parser = parsed::<Shape>)]
    pub(crate) schedule: Option<Shape>,
    /// Steps in which it grows from 0
    #[arg(long, value_name = "N")]
    pub(crate) warm_up: Option<u64>,
    /// What weights lose in a step, times the learning rate
    #[arg(long, value_name = "X")]
    pub(crate) weight_decay: Option<f64>,
    /// Make gradients that are longer as long as this; 0: never
    #[arg(long, value_name = "LENGTH")]
    pub(crate) clip: Option<f64>,
    /// How much of hidden states and attention is dropped
    #[arg(long, value_name = "PART")]
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
    /// By what the step is chosen whose model is kept: label-free (where neighbours agree most with words), dev or last
    /// [default: label-free]
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
    #[arg(long, value_name = "X")]
    pub(crate) temperature: Option<f64>,
    /// Wrong ones beside the right one
    #[arg(long, value_name = "N")]
    pub(crate) negatives: Option<usize>,
    /// dialoguecse: turns around a response; responses: turns before it
    #[arg(long, value_name = "N")]
    pub(crate) context: Option<usize>,
    /// dialoguecse: how they become one: i1 (weighed) or i2 (their mean)
    #[arg(long, value_name = "NAME", value_parser = parsed::<Aggregation>)]
    pub(crate) aggregation: Option<Aggregation>,
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
}

/// An objective and what it counts.
fn weighed(text: &str) -> Result<(ObjectiveName, f64), String> {
    let (name, weight) = text.split_once('=').ok_or("it is written OBJECTIVE=WEIGHT, such as keep=1")?;
    let weight = weight.parse().map_err(|_| format!("{weight} is not a number"))?;
    Ok((name.parse::<ObjectiveName>().map_err(|e| e.to_string())?, weight))
}

const TRAIN_HELP: &str = "\
`auto` is the objective `neighbours`, which gains most on dialogues. What is not given is what the objective's paper
has, with half of the layers frozen; docs/training.md tells it all.

Examples:
  turnwise train auto --corpus chats -o runs/chats
  turnwise train dialoguecse --corpus chats/ -o runs/chats
  turnwise train dial2vec --corpus demo -m all-MiniLM-L6-v2 --steps 500 -o runs/dialogues
  turnwise train runs/chats/recipe.toml -o runs/again
  turnwise bench sr select.txt -r model -r model:runs/chats/model";
