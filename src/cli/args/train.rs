//! Arguments of `turnwise train`.

use std::path::{Path, PathBuf};

use clap::{Arg, Args, Subcommand, ValueEnum};

use super::{ReadArgs, parse_value};
use turnwise_core::error::Error;
use turnwise_encoder::DeviceChoice;
use turnwise_train::{
    objectives::definition::Role,
    optimizer::Shape,
    recipe::{
        Aggregation, DevTask, Divider, Frame, HeadKind, History, ObjectiveName, Profile, SelectorRecipe,
        SentencePooling,
    },
    run::evaluations::Selection,
};

#[derive(Debug, Args)]
#[command(after_help = train_help(), args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct TrainArgs {
    #[command(subcommand)]
    pub(crate) command: Option<TrainCommand>,
    #[command(flatten)]
    pub(crate) run: TrainRunArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TrainCommand {
    /// Train once with each value of a setting and compare the results
    ///
    /// For each combination of values, prints the loss, the label-free scores (by held-out halves and by BM25 neighbors, see --select), and the measures of the --dev
    /// tasks. With several seeds, prints the means.
    #[command(after_help = SWEEP_HELP)]
    Sweep(Box<SweepArgs>),
    /// List the included recipes, the models they start from, and whether their data is on this machine
    List(ListArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Folder that the recipes' paths are relative to
    #[arg(long, value_name = "FOLDER", default_value = "data")]
    pub(crate) data: PathBuf,
}

/// Replaces the help text of an option that has a different meaning in `turnwise train sweep`. Returns other options
/// unchanged.
fn describe_for_sweep(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "output" => arg.help("Output folder of all runs").long_help(
            "Output folder of all runs\n\n\
             Each run has its own folder in it, such as temperature=0.1, or temperature=0.1/seed-1 with --seeds. The file \
             runs.json has the results of all runs.",
        ),
        _ => arg,
    }
}

#[derive(Debug, Args)]
#[command(mut_args(describe_for_sweep))]
pub(crate) struct SweepArgs {
    /// Setting and values, such as temperature=0.05,0.1; repeatable
    ///
    /// SETTING is a key of recipe.toml, such as temperature, negatives, context, learning_rate, batch, steps, warm_up or
    /// dialogues. Most keys are the names of options, with _ instead of -; the recipe.toml of any run contains all keys.
    /// With several settings, every combination of values is trained.
    #[arg(long, value_name = "SETTING=VALUE,…", required = true, value_parser = parse_variation)]
    pub(crate) vary: Vec<(String, Vec<String>)>,
    #[command(flatten)]
    pub(crate) run: TrainRunArgs,
}

/// Parses a setting and its values, such as `negatives=1,4,9`.
fn parse_variation(text: &str) -> Result<(String, Vec<String>), String> {
    let expected = "expected SETTING=VALUE,VALUE, such as negatives=1,4,9";
    let (name, values) = text.split_once('=').ok_or(expected)?;
    let values: Vec<String> = values.split(',').map(|v| v.trim().to_owned()).collect();
    match values.iter().any(String::is_empty) {
        true => Err(expected.to_owned()),
        false => Ok((name.trim().to_owned(), values)),
    }
}

#[derive(Debug, Args)]
pub(crate) struct TrainRunArgs {
    /// Training objective, or recipe (a .toml file or an included recipe)
    ///
    /// `turnwise train --help` describes the objectives at its end, for example auto, context-cca and joint.
    ///
    /// A recipe is a file, such as the recipe.toml of an earlier run, or the name of an included recipe, such as
    /// dialoguecse-ecd (see `turnwise train list`). Options take precedence over the recipe.
    #[arg(value_name = "OBJECTIVE|RECIPE", required = true)]
    objective_or_recipe: Option<String>,
    /// Training dialogues: the name or folder of an index, or files and folders
    ///
    /// A plain name is an index; write a folder of files with a slash, such as chats/. Folders are read recursively.
    /// Each value is a corpus; several values follow one -c, as in `-c chats emails/`. With some objectives, all examples of
    /// a step come from the same corpus. With auto and joint, each corpus adds to the default number of steps. See docs/training.md.
    #[arg(short, long, value_name = "INDEX|PATH", num_args = 1..)]
    pub(crate) corpus: Vec<PathBuf>,
    /// Folder that the recipe's paths are relative to [default: ./data for an included recipe, the current folder for a recipe file]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data: Option<PathBuf>,
    /// Model to start from: a name or a folder [default: all-MiniLM-L6-v2]
    ///
    /// A selector (`runs/replies/model`) can only be trained further as a selector.
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Output folder of the run
    ///
    /// It holds the settings (recipe.toml), metrics, checkpoints, and at the end the model in model/.
    #[arg(short, long, value_name = "FOLDER", required = true)]
    output: Option<PathBuf>,
    /// Resume an interrupted run
    ///
    /// Repeat the original command, with the same output folder, and add --resume.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Train with several seeds, each in its own folder
    ///
    /// A number of seeds, such as 3 (starting at --seed), or the first and the last seed, such as 1..5.
    #[arg(long, value_name = "N|A..B", value_parser = parse_value::<Seeds>)]
    pub(crate) seeds: Option<Seeds>,
    /// Predefined combination of settings
    ///
    /// `small` makes it practical to train a large model on two cores. Options given explicitly take precedence.
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<Preset>,
    /// Device to run on: auto, cpu, cuda, cuda:N (GPU number N, from 0) or metal
    ///
    /// `auto` is a GPU if this build of turnwise supports one and it can be opened, else the CPU.
    #[arg(long, default_value_t, value_name = "DEVICE", value_parser = parse_value::<DeviceChoice>)]
    device: DeviceChoice,
    /// Devices to train on in parallel, such as cuda:0,cuda:1
    ///
    /// Each device computes a share of every step. Not together with --device.
    #[arg(long, value_delimiter = ',', value_name = "DEVICE,…", value_parser = parse_value::<DeviceChoice>, conflicts_with = "device")]
    devices: Vec<DeviceChoice>,
    /// Keep the training dialogues in memory instead of in temporary files
    ///
    /// The temporary files are on the disk of the output folder. The trained model is the same.
    #[arg(long)]
    pub(crate) in_memory: bool,
    #[command(flatten)]
    pub(crate) run: OptimizationArgs,
    #[command(flatten)]
    pub(crate) evaluation: EvaluationArgs,
    #[command(flatten)]
    pub(crate) goal: ObjectiveArgs,
    #[command(flatten)]
    pub(crate) selector: SelectorArgs,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
}

impl TrainRunArgs {
    /// Returns the main device and the additional devices. Returns an error if a GPU is listed twice.
    pub(crate) fn devices(&self) -> Result<(DeviceChoice, &[DeviceChoice]), Error> {
        for (n, device) in self.devices.iter().enumerate() {
            if *device != DeviceChoice::Cpu && self.devices[..n].contains(device) {
                return Err(Error::input(format!("{device} is listed twice in --devices"))
                    .with_hint("list each device once"));
            }
        }
        let split = self.devices.split_first();
        Ok(split.map_or((self.device, &[]), |(first, others)| (*first, others)))
    }

    // The next two arguments are optional in the struct, because a subcommand has its own. Without a subcommand, clap
    // requires them.

    /// Returns the name of an objective, or the name or file of a recipe; empty if a subcommand was given.
    pub(crate) fn objective_or_recipe(&self) -> &str {
        self.objective_or_recipe.as_deref().unwrap_or_default()
    }

    /// Returns the output folder of the run.
    pub(crate) fn output(&self) -> &Path {
        self.output.as_deref().unwrap_or(Path::new(""))
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Training")]
pub(crate) struct OptimizationArgs {
    /// Number of training steps [default: set by the objective; see docs/training.md]
    ///
    /// A step processes one batch.
    #[arg(long, value_name = "N")]
    pub(crate) steps: Option<u64>,
    /// Batch size: number of examples per step [default: set by the objective]
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<usize>,
    /// Number of micro-batches into which each batch is divided [default: 1]
    ///
    /// More micro-batches need less memory. Without dropout, the number of micro-batches changes the result only by
    /// rounding.
    #[arg(long = "micro-batches", alias = "parts", value_name = "N")]
    pub(crate) parts: Option<usize>,
    /// Learning rate [default: set by the objective]
    #[arg(long, value_name = "RATE")]
    pub(crate) learning_rate: Option<f64>,
    /// Learning rate schedule after the warm-up: constant, linear or cosine [default: linear]
    #[arg(long, value_name = "SHAPE", value_parser = parse_value::<Shape>)]
    pub(crate) schedule: Option<Shape>,
    /// Number of warm-up steps [default: set by the objective, at most 30; 0 if --steps is given]
    ///
    /// In these steps, the learning rate grows linearly up to --learning-rate.
    #[arg(long, value_name = "N")]
    pub(crate) warm_up: Option<u64>,
    /// Weight decay, multiplied by the learning rate as in AdamW [default: 0.01]
    #[arg(long, value_name = "X")]
    pub(crate) weight_decay: Option<f64>,
    /// Clip the gradient norm to this value; 0 disables clipping [default: 1]
    #[arg(long, value_name = "NORM")]
    pub(crate) clip: Option<f64>,
    /// Dropout probability of hidden states and attention [default: 0.1]
    #[arg(long, value_name = "RATE")]
    pub(crate) dropout: Option<f64>,
    /// Number of layers to freeze, counted from the input [default: half of the layers; simcse, mlm, post-training, selector: 0]
    ///
    /// Frozen layers are not trained. If at least one layer is frozen, the embeddings are frozen, too.
    #[arg(long, value_name = "N")]
    pub(crate) frozen_layers: Option<usize>,
    /// Number of steps between checkpoints [default: 20]
    ///
    /// --resume continues from the last checkpoint.
    #[arg(long, value_name = "N")]
    pub(crate) checkpoint_every: Option<u64>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Evaluation")]
pub(crate) struct EvaluationArgs {
    /// Labeled benchmark to evaluate the model on during training; repeatable
    ///
    /// One of dialogues:PATH (dialogue retrieval), sr:FILE (semantic retrieval), dsts:FILE (sentence similarity) or
    /// response:FILE (response selection). `turnwise bench TASK --help` describes the format and the measures of each
    /// task. The measures are only reported. To choose the saved step by them, add `--select dev`.
    #[arg(long, value_name = "TASK:PATH", value_parser = parse_value::<DevTask>)]
    pub(crate) dev: Vec<DevTask>,
    /// Number of steps between evaluations; 0 disables them [default: a fifth of the steps]
    #[arg(long, value_name = "N")]
    pub(crate) evaluate_every: Option<u64>,
    /// Number of held-out dialogues, at most a tenth of all [default: 400; 0 if --dev is given]
    ///
    /// Held-out dialogues are not trained on. They are used to evaluate the model without labels. The objectives
    /// role-position, mlm, relevance and post-training hold out none by default.
    #[arg(long, alias = "aside", value_name = "N")]
    pub(crate) held_out: Option<usize>,
    /// Which step to save as the model: label-free, dev or last [default: label-free; role-position, post-training: last]
    ///
    /// label-free: the last step whose score is close to the best score. With held-out dialogues, each of them is split
    /// into two halves. For each half, the nearest neighbors among the other held-out dialogues are found. The score is the
    /// share of neighbors that both halves have in common; close means within 0.005 or one standard error, whichever is larger.
    /// Without held-out dialogues, the score is the share of the nearest neighbors by BM25 that are also nearest neighbors
    /// by vectors; close means within 0.005. With the objective selector, the score is the share of the contexts in the
    /// held-out dialogues whose next turn ranks first among ten responses.
    ///
    /// dev: the first step with the best mean over the --dev tasks. The measure of each task is the first one that `turnwise
    /// bench` prints.
    ///
    /// last: the last step.
    #[arg(long, value_name = "CRITERION", value_parser = parse_value::<Selection>)]
    pub(crate) select: Option<Selection>,
    /// Stop after N evaluations without improvement; 0 disables early stopping [default: 3]
    ///
    /// The score that --select uses must improve. With `--select last`, there is no early stopping.
    #[arg(long, value_name = "N")]
    pub(crate) patience: Option<usize>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Objective")]
pub(crate) struct ObjectiveArgs {
    /// Auxiliary objectives and the weights of their losses, such as self-distillation=1,responses=0.5
    ///
    /// The weighted losses are added to the loss of the main objective. `turnwise train --help` lists the
    /// objectives at its end. One more, `self-distillation`, keeps the vectors of utterances close to those of the
    /// start model.
    ///
    /// By default, auto has self-distillation=40, joint has neighbors=1,dial2vec=0.1,self-distillation=1, and the
    /// others have none. This option replaces the whole default list; to have no auxiliary objective, use
    /// self-distillation=0.
    #[arg(long, alias = "beside", value_name = "OBJECTIVE=WEIGHT,…", value_delimiter = ',', value_parser = parse_weighted_objective)]
    pub(crate) auxiliary: Vec<(ObjectiveName, f64)>,
    /// Maximum number of tokens of a training sequence [default: set by the objective]
    ///
    /// A sequence is one utterance; with auto and dial2vec, a whole dialogue; with mlm, several consecutive turns; with
    /// relevance, post-training and selector, the turns and the candidate response.
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<usize>,
    /// Temperature τ of the softmax [default: set by the objective]
    ///
    /// Similarities are divided by this value.
    #[arg(long, value_name = "X")]
    pub(crate) temperature: Option<f64>,
    /// Only dialoguecse, joint, dial2vec, selector: number of negatives per positive [default: 9; selector: 1]
    #[arg(long, value_name = "N")]
    pub(crate) negatives: Option<usize>,
    /// Only dialoguecse, joint, selector: number of hard negatives among the negatives [default: 0; joint: 2]
    ///
    /// Hard negatives are similar to the right response, by vectors or by BM25. Candidates that could also be a right
    /// response are excluded.
    #[arg(long, value_name = "N")]
    pub(crate) hard_negatives: Option<usize>,
    /// Number of context turns [default: set by the objective]
    ///
    /// dialoguecse, joint: turns before and after a response, counted together (default 3).
    ///
    /// responses, siamese-m, relevance, post-training: turns before a response (default 3).
    ///
    /// siamese-s: turns before a response (default 1).
    ///
    /// context-cca: turns on each side of an utterance (default 1). The layer of --context-layer always uses one turn on each side.
    #[arg(long, value_name = "N")]
    pub(crate) context: Option<usize>,
    /// Only dialoguecse, joint: how to combine the context turns, i1 or i2 [default: i2]
    ///
    /// These are the names in the paper on DialogueCSE. i1: a mean with weights that a small network learns. i2: the
    /// plain mean.
    #[arg(long, value_name = "NAME", value_parser = parse_value::<Aggregation>)]
    pub(crate) aggregation: Option<Aggregation>,
    /// After training, also append the linear layer of `context-cca` to the model
    ///
    /// The layer is computed in closed form, from the turns before and after each utterance.
    #[arg(long, alias = "layer")]
    pub(crate) context_layer: bool,
    /// Only context-cca, --context-layer: weight of the context in the similarity, from 0 to 1 [default: 0.5]
    ///
    /// With 0, similarities are those of the model without the layer. With 1, they depend only on the vectors that
    /// the layer predicts for the neighboring turns. Lower values are safer for texts about topics that are not in the
    /// corpus.
    #[arg(long, alias = "strength", value_name = "0..1")]
    pub(crate) context_weight: Option<f64>,
    /// Only dial2vec: maximum distance, in turns, between utterances that are matched [default: 10]
    #[arg(long, value_name = "N")]
    pub(crate) window: Option<usize>,
    /// Only dial2vec: follow the text of the paper (paper) or its released code (code) [default: paper]
    #[arg(long, value_name = "NAME", value_parser = parse_value::<Profile>)]
    pub(crate) profile: Option<Profile>,
    /// Whether to merge consecutive turns of the same speaker [default: dialoguecse, joint: true; others: false]
    ///
    /// Unlike in `ingest`, the value is required: `--merge-turns true` or `--merge-turns false`.
    #[arg(long, value_name = "BOOL")]
    pub(crate) merge_turns: Option<bool>,
    /// Skip dialogues with fewer than N turns [default: set by the objective, from 1 to 3]
    #[arg(long, value_name = "N")]
    pub(crate) min_turns: Option<usize>,
    /// Train on a random sample of N dialogues [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) dialogues: Option<usize>,
}

#[derive(Debug, Args)]
#[command(
    next_help_heading = "Pairs of a context and a response (only selector, post-training and relevance)"
)]
pub(crate) struct SelectorArgs {
    /// How the network reads the context: tokens or sentences [default: tokens]
    ///
    /// tokens: the tokens of all turns, at most --max-tokens; the oldest tokens of a longer context are cut off.
    ///
    /// sentences: one vector per turn. Fast for many candidates and long contexts: a sequence of 128 inputs holds about
    /// 50 turns, and one of 512 inputs (--max-tokens 512) about 240.
    #[arg(long, value_name = "KIND", value_parser = parse_value::<History>)]
    pub(crate) history: Option<History>,
    /// Token after every turn of the context: eou or none [default: eou]
    #[arg(long, value_name = "TOKEN", value_parser = parse_value::<Divider>)]
    pub(crate) divider: Option<Divider>,
    /// Only selector: layers that compute the score, matching, pooler or cls [default: matching]
    ///
    /// matching: a single layer on the first token, plus similarities of the response with the turns and with the whole
    /// context, all encoded separately. pooler: the head of BERT for sequence classification, which sentence-transformers
    /// knows. cls: a single layer on the first token.
    #[arg(long, value_name = "KIND", value_parser = parse_value::<HeadKind>)]
    pub(crate) head: Option<HeadKind>,
    /// With --history sentences: special tokens around each turn, cls-sep, cls-eou, eou or none [default: cls-sep]
    #[arg(long, value_name = "TOKENS", value_parser = parse_value::<Frame>)]
    pub(crate) frame: Option<Frame>,
    /// With --history sentences: vector of a turn, mean (of its tokens) or cls (the first token) [default: mean]
    #[arg(long, value_name = "POOLING", value_parser = parse_value::<SentencePooling>)]
    pub(crate) sentence_pooling: Option<SentencePooling>,
    /// With --history sentences: weight of the first layer in the vector of a turn, from 0 to 1 [default: 0.4]
    ///
    /// The last layer has the remaining weight.
    #[arg(long, value_name = "0..1")]
    pub(crate) first_weight: Option<f32>,
    /// With --history sentences: weight of the first layer for special tokens [default: the same as --first-weight]
    #[arg(long, value_name = "0..1")]
    pub(crate) special_first_weight: Option<f32>,
    /// With --history sentences: maximum number of tokens of a turn [default: 50]
    #[arg(long, value_name = "N")]
    pub(crate) turn_tokens: Option<usize>,
    /// With --history sentences: give the vectors of turns a segment of their own
    ///
    /// The network can then tell vectors of turns from tokens.
    #[arg(long)]
    pub(crate) sentence_segment: bool,
    /// Only selector, with --history sentences and --head cls or pooler: do not train the vectors of turns
    ///
    /// A copy of the base model computes them, and they are cached, so training is faster. The saved selector contains both
    /// networks.
    #[arg(long)]
    pub(crate) frozen_sentences: bool,
}

impl SelectorArgs {
    /// Adds the given options to the settings of a recipe.
    pub(crate) fn add_to(&self, recipe: &mut Option<SelectorRecipe>) {
        let known = recipe.unwrap_or_default();
        let merged = SelectorRecipe {
            history: self.history.or(known.history),
            divider: self.divider.or(known.divider),
            head: self.head.or(known.head),
            turn_tokens: self.turn_tokens.or(known.turn_tokens),
            frame: self.frame.or(known.frame),
            pooling: self.sentence_pooling.or(known.pooling),
            first_weight: self.first_weight.or(known.first_weight),
            special_first_weight: self.special_first_weight.or(known.special_first_weight),
            own_segment: self.sentence_segment.then_some(true).or(known.own_segment),
            frozen: self.frozen_sentences.then_some(true).or(known.frozen),
        };
        if merged != SelectorRecipe::default() {
            *recipe = Some(merged);
        }
    }
}

/// Seeds of several training runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seeds {
    /// Number of consecutive seeds. The first seed is the value of `--seed`, or else the seed of the recipe.
    Count(u64),
    /// First and last seed, both included.
    Range(u64, u64),
}

impl Seeds {
    /// Returns all seeds. If only the number of seeds is given, returns consecutive seeds from `first` on.
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
            _ => Err(Error::input(format!("`{text}` is not a valid list of seeds")).with_hint(
                "give a number of seeds, such as 3, or a range, such as 1..5; at most 1,000 seeds",
            )),
        }
    }
}

/// Predefined combination of settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// 100 steps, 5,000 dialogues, at most 128 tokens
    Small,
}

/// Parses an objective and its weight, such as `self-distillation=1`.
fn parse_weighted_objective(text: &str) -> Result<(ObjectiveName, f64), String> {
    let (name, weight) =
        text.split_once('=').ok_or("expected OBJECTIVE=WEIGHT, such as self-distillation=1")?;
    let weight = weight.parse().map_err(|_| format!("{weight} is not a number"))?;
    Ok((name.parse::<ObjectiveName>().map_err(|e| e.to_string())?, weight))
}

const SWEEP_HELP: &str = "\
Examples:
  turnwise train sweep --vary temperature=0.05,0.1,0.2 dialoguecse -c chats --dev sr:select.txt -o runs/tau
  turnwise train sweep --vary dialogues=500,1000,2000 --seeds 3 auto -c chats --dev dialogues:labeled.jsonl -o runs/scale";

/// Returns the help text after the options: the objectives and examples.
fn train_help() -> String {
    let mut help =
        "Objectives, and what they train (vectors of dialogues or utterances, or response selection):\n"
            .to_owned();
    for definition in ObjectiveName::ALL.iter().map(|objective| objective.definition()) {
        if definition.role == Role::Auxiliary {
            continue;
        }
        let (mut line, indent) = (format!("  {:15}", definition.name), " ".repeat(17));
        for word in definition.about.split(' ') {
            if line.len() + 1 + word.len() > 110 {
                help += &format!("{line}\n");
                line.clone_from(&indent);
            }
            line += &format!(" {word}");
        }
        help += &format!("{line}\n");
    }
    help + TRAIN_EXAMPLES
}

const TRAIN_EXAMPLES: &str = "
`auto` is another name of `neighbors`. Start with auto for dialogue search, context-cca for turns, joint for both, \
responses for response selection by vectors, and selector to choose among some replies. \
The model of the best step is saved (see --select). docs/training.md describes the objectives and their defaults.

Examples:
  turnwise train auto --corpus chats -o runs/chats
  turnwise train auto --corpus chats --dev dialogues:labeled.jsonl --seeds 3 -o runs/three
  turnwise train context-cca --corpus chats -o runs/turns
  turnwise train dialoguecse --corpus chats/ -o runs/chats
  turnwise train dial2vec --corpus demo -m all-MiniLM-L6-v2 --steps 500 -o runs/dialogues
  turnwise train runs/chats/recipe.toml -o runs/again
  turnwise train list
  turnwise train dialoguecse-ecd --data data -o runs/dialoguecse-ecd
  turnwise bench sr select.txt -r model -r model:runs/chats/model";
