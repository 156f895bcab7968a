//! The arguments, as clap reads them. Commands never see clap; their doc comments here are their help.

mod model;

use std::{path::PathBuf, str::FromStr};

use clap::{Args, Parser, Subcommand, ValueEnum, builder::styling};

use crate::{
    cli::{embeddings, encoders::Given},
    corpus::{clean::Form, filter::Filter, formats::ColumnMap, split::Parts, writers::Target},
    encoder::{
        DeviceChoice, DialogueMode, DialoguePooling, Precision,
        folder::PoolingMode,
        transformer::{Layers, Settings},
    },
    error::Error,
};

pub(crate) use model::{FitArgs, FitKind, ModelBenchArgs, ModelCommand, PullArgs};

const STYLES: styling::Styles = styling::Styles::styled()
    .header(styling::AnsiColor::Green.on_default().bold())
    .usage(styling::AnsiColor::Green.on_default().bold())
    .literal(styling::AnsiColor::Cyan.on_default().bold())
    .placeholder(styling::AnsiColor::Cyan.on_default());

/// Make conversations searchable.
///
/// turnwise reads dialogue corpora in the formats people have, keeps them in an index that loses nothing, and finds
/// the turn you mean. `turnwise demo` shows it on a corpus that comes with it.
#[derive(Debug, Parser)]
#[command(name = "turnwise", version, styles = STYLES, max_term_width = 110, propagate_version = false)]
#[command(after_help = EXIT_CODES, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done, 1 a check did not hold, 2 wrong input, 3 bad data, 4 a damaged index, \
5 busy, 6 something is unavailable, 70 a bug in turnwise, 130 interrupted.";

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// The index: a name (looked for in ./indexes) or a path with a slash
    #[arg(short, long, global = true, value_name = "NAME|PATH")]
    pub(crate) index: Option<String>,
    /// How results are printed
    #[arg(long, global = true, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    /// Print results and errors only
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print details about what happens
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Show no progress
    #[arg(long, global = true)]
    pub(crate) no_progress: bool,
    /// Use so many threads; 0 is one for each core
    #[arg(long, global = true, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Seed whatever draws at random
    #[arg(long, global = true, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Read settings from this file instead of ./turnwise.toml
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// One JSON document
    Json,
    /// One JSON object a line
    Jsonl,
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Format::Text => "text",
            Format::Json => "json",
            Format::Jsonl => "jsonl",
        })
    }
}

impl std::str::FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        <Format as ValueEnum>::from_str(text, false)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Ingest the sample dialogues into indexes/demo and search them
    Demo,
    /// Read dialogues into an index
    Ingest(IngestArgs),
    /// Find utterances by their words
    Search(SearchArgs),
    /// Turn texts, utterances or dialogues of files into vectors
    Embed(EmbedArgs),
    /// Give the utterances and dialogues of an index their vectors
    Encode(EncodeArgs),
    /// Look at, convert and split corpora
    #[command(subcommand)]
    Corpus(CorpusCommand),
    /// Count what an index holds
    Stats,
    /// Remove dialogues from an index
    Delete(DeleteArgs),
    /// Bring the search index up to date
    #[command(subcommand)]
    Index(IndexCommand),
    /// Check every checksum and count of an index
    Verify,
    /// Mend a damaged index from what can still be read
    Repair,
    /// Copy an index, with checksums, into a new folder
    Backup {
        /// The folder to make
        target: PathBuf,
        /// Leave out the vectors; `encode` makes them anew
        #[arg(long)]
        no_vectors: bool,
    },
    /// Make an index from a backup
    Restore {
        /// The folder that `backup` wrote
        source: PathBuf,
    },
    /// Get models and look at them
    #[command(subcommand)]
    Model(ModelCommand),
    /// Look whether this machine and this folder are fit for work
    Doctor,
    /// Show or begin settings
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man,
}

/// Parses a value; clap shows one text, so the hint goes into it.
fn parsed<T: FromStr<Err = Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|e: Error| match e.hint() {
        Some(hint) => format!("{e} ({hint})"),
        None => e.to_string(),
    })
}

#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    /// The format; told by the beginning of each file if not given (`corpus formats` lists them)
    #[arg(long, value_name = "FORMAT")]
    pub(crate) from: Option<String>,
    /// For CSV and TSV: which column is what, such as id=session,speaker=from,text=message
    #[arg(long, value_name = "FIELD=COLUMN,…", value_parser = parsed::<ColumnMap>)]
    pub(crate) map: Option<ColumnMap>,
    /// Remove participants' nicks at the start of utterances (IRC)
    #[arg(long)]
    pub(crate) strip_nicks: bool,
    /// The longest record, in megabytes
    #[arg(long, value_name = "N")]
    pub(crate) max_record_mb: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct IngestArgs {
    /// Files and folders (walked); `-` is standard input; .gz and .zst are unpacked on the way
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
    /// Name the corpus these dialogues come from
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,
    /// Put this in front of every dialogue's id
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) id_prefix: String,
    /// The language of dialogues that name none (BCP 47: en, zh, pt-BR)
    #[arg(long, value_name = "TAG")]
    pub(crate) language: Option<String>,
    /// List rejected records in this file, as JSON lines
    #[arg(long, value_name = "FILE")]
    pub(crate) rejects: Option<PathBuf>,
    /// Stop when more records than this are rejected
    #[arg(long, value_name = "N")]
    pub(crate) max_errors: Option<u64>,
    /// Leave the search index as it is
    #[arg(long)]
    pub(crate) no_index: bool,
    // Last, because its heading holds for whatever follows.
    #[command(flatten)]
    pub(crate) clean: CleanArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Cleaning")]
pub(crate) struct CleanArgs {
    /// Make consecutive turns of a speaker one turn
    #[arg(long)]
    pub(crate) merge_turns: bool,
    /// Leave out dialogues with fewer turns
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) min_turns: usize,
    /// Bring texts into a Unicode normal form
    #[arg(long, value_enum, value_name = "FORM")]
    pub(crate) normalize: Option<FormArg>,
    /// Leave out dialogues with the same turns as another
    #[arg(long)]
    pub(crate) dedupe: bool,
    /// Replace e-mail addresses, phone numbers and card numbers by placeholders
    #[arg(long)]
    pub(crate) redact: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum FormArg {
    /// Composed
    Nfc,
    /// Composed, and width and ligatures unified
    Nfkc,
}

impl From<FormArg> for Form {
    fn from(form: FormArg) -> Self {
        match form {
            FormArg::Nfc => Form::Nfc,
            FormArg::Nfkc => Form::Nfkc,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct SearchArgs {
    /// What to look for
    pub(crate) query: String,
    /// How many hits
    #[arg(short, default_value_t = 10, value_name = "N")]
    pub(crate) k: usize,
    /// Show so many turns before and after each hit
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) window: usize,
}

#[derive(Debug, Args)]
#[command(after_help = EMBED_FORMATS)]
pub(crate) struct EmbedArgs {
    /// Files and folders (walked); `-` is standard input; .gz and .zst are unpacked on the way
    #[arg(required = true, value_name = "INPUT")]
    pub(crate) inputs: Vec<PathBuf>,
    /// The file of vectors; `-` is standard output, as JSON lines
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// The format of OUT; told by its ending if not given
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) to: Option<VectorTarget>,
    /// What becomes a vector
    #[arg(long, value_enum, value_name = "WHAT", default_value = "utterances")]
    pub(crate) of: OneOf,
    #[command(flatten)]
    pub(crate) encoder: EncoderArgs,
    #[command(flatten)]
    pub(crate) tokens: TokenArgs,
    /// Scale every vector to length 1
    #[arg(long)]
    pub(crate) normalize: bool,
    /// Keep the first N numbers of every vector (for models that were trained so)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) dim: Option<u32>,
    /// Stop when more records than this are rejected
    #[arg(long, value_name = "N")]
    pub(crate) max_errors: Option<u64>,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
}

const EMBED_FORMATS: &str = "\
INPUT may hold one text a line (--from lines), JSON lines of {\"id\", \"text\"} (--from texts-jsonl), or a corpus \
(`corpus formats` lists them). Ids are the numbers of lines (FILE:LINE with several inputs), the ids of records, \
DIALOGUE#TURN, or those of dialogues. OUT keeps the order: .npy with OUT.ids.txt beside it, .safetensors \
(`embeddings`, and `ids` as UTF-8 with a line feed between), .jsonl ({\"id\", \"embedding\"}), .arrow (id, embedding).";

/// What a transformer is to do otherwise than its files say.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Encoder")]
pub(crate) struct TokenArgs {
    /// How the tokens of a text become one vector, instead of the model's way
    #[arg(long, value_enum, value_name = "POOLING")]
    pub(crate) token_pooling: Option<TokenPoolingArg>,
    /// Which layers are pooled: last, a number (0 is the embeddings), or first-last=0.4,0.6
    #[arg(long, default_value_t, hide_default_value = true, value_name = "LAYERS", value_parser = parsed::<Layers>)]
    pub(crate) layers: Layers,
    /// Tokens a text or a window of a dialogue may have
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TokenPoolingArg {
    /// The first token
    Cls,
    /// The mean of all
    Mean,
    /// The greatest of each column
    Max,
    /// The sum over the root of their number
    MeanSqrtLen,
    /// The mean, later ones weighing more
    WeightedMean,
    /// The last token
    LastToken,
}

impl From<TokenPoolingArg> for PoolingMode {
    fn from(pooling: TokenPoolingArg) -> Self {
        match pooling {
            TokenPoolingArg::Cls => PoolingMode::Cls,
            TokenPoolingArg::Mean => PoolingMode::Mean,
            TokenPoolingArg::Max => PoolingMode::Max,
            TokenPoolingArg::MeanSqrtLen => PoolingMode::MeanSqrtLen,
            TokenPoolingArg::WeightedMean => PoolingMode::WeightedMean,
            TokenPoolingArg::LastToken => PoolingMode::LastToken,
        }
    }
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Encoder")]
pub(crate) struct EncoderArgs {
    /// The model: a folder, or a name
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// In which numbers it computes
    #[arg(long, value_enum, value_name = "PRECISION", default_value = "auto")]
    pub(crate) precision: PrecisionArg,
    /// Where it computes: auto, cpu, cuda, cuda:1, metal
    #[arg(long, default_value_t, value_name = "DEVICE", value_parser = parsed::<DeviceChoice>)]
    pub(crate) device: DeviceChoice,
    /// One of the model's prompts, put in front of every text
    #[arg(long, value_name = "NAME")]
    pub(crate) prompt: Option<String>,
    /// What a dialogue is to the encoder
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) dialogue_mode: Option<DialogueModeArg>,
    /// How the parts of a dialogue become one vector
    #[arg(long, value_enum, value_name = "POOLING")]
    pub(crate) pooling: Option<PoolingArg>,
}

impl EncoderArgs {
    pub(crate) fn given(&self) -> Given {
        Given {
            prompt: self.prompt.clone(),
            mode: self.dialogue_mode.map(Into::into),
            pooling: self.pooling.map(Into::into),
        }
    }

    /// How a transformer is to run.
    pub(crate) fn settings(&self, precision: Option<Precision>, tokens: &TokenArgs) -> Settings {
        Settings {
            device: self.device,
            precision,
            pooling: tokens.token_pooling.map(Into::into),
            layers: tokens.layers.clone(),
            max_tokens: tokens.max_tokens,
            ..Settings::default()
        }
    }

    /// `None` is the encoder's own choice.
    pub(crate) fn precision(&self) -> Option<Precision> {
        match self.precision {
            PrecisionArg::Auto => None,
            PrecisionArg::F32 => Some(Precision::F32),
            PrecisionArg::Bf16 => Some(Precision::Bf16),
            PrecisionArg::F16 => Some(Precision::F16),
            PrecisionArg::Int16 => Some(Precision::Int16),
            PrecisionArg::Int8 => Some(Precision::Int8),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PrecisionArg {
    /// The fastest that loses next to nothing
    Auto,
    /// 32-bit floating point
    F32,
    /// 16-bit floating point with the range of f32
    Bf16,
    /// 16-bit floating point; GPUs only
    F16,
    /// 16-bit fixed point
    Int16,
    /// 8-bit fixed point
    Int8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DialogueModeArg {
    /// One sequence; windows of whole turns where it is longer than the model takes
    Sequence,
    /// The mean of the vectors of its utterances
    Utterances,
}

impl From<DialogueModeArg> for DialogueMode {
    fn from(mode: DialogueModeArg) -> Self {
        match mode {
            DialogueModeArg::Sequence => DialogueMode::Sequence,
            DialogueModeArg::Utterances => DialogueMode::Utterances,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PoolingArg {
    /// The mean of all
    Mean,
    /// The sum, over the speakers, of the mean of each one's parts
    Interlocutors,
}

impl From<PoolingArg> for DialoguePooling {
    fn from(pooling: PoolingArg) -> Self {
        match pooling {
            PoolingArg::Mean => DialoguePooling::Mean,
            PoolingArg::Interlocutors => DialoguePooling::Interlocutors,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OneOf {
    /// Every text, or every turn
    Utterances,
    /// Every dialogue as a whole
    Dialogues,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnyOf {
    /// Every utterance
    Utterances,
    /// Every dialogue as a whole
    Dialogues,
    /// Each of them
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum VectorTarget {
    /// NumPy, with the ids in a text file beside it
    Npy,
    /// The tensors `embeddings` and `ids`
    Safetensors,
    /// One object a line
    Jsonl,
    /// Arrow IPC
    Arrow,
}

impl From<VectorTarget> for embeddings::Target {
    fn from(target: VectorTarget) -> Self {
        match target {
            VectorTarget::Npy => embeddings::Target::Npy,
            VectorTarget::Safetensors => embeddings::Target::Safetensors,
            VectorTarget::Jsonl => embeddings::Target::Jsonl,
            VectorTarget::Arrow => embeddings::Target::Arrow,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct EncodeArgs {
    /// What gets vectors; what the index has already if not given, and both where it has none
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) of: Option<AnyOf>,
    #[command(flatten)]
    pub(crate) encoder: EncoderArgs,
    /// Make all vectors anew with another model or other options; the old ones stay in use until that is done
    #[arg(long)]
    pub(crate) replace: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CorpusCommand {
    /// Count what files, or an index, hold
    Stats {
        /// Files and folders; without any, the index is counted
        paths: Vec<PathBuf>,
        #[command(flatten)]
        read: ReadArgs,
    },
    /// Show dialogues of an index
    Show {
        /// Dialogue ids, or utterance ids (DIALOGUE#TURN)
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// Write the dialogues of an index
    Export(WriteArgs),
    /// Turn files of any format into another, without an index
    Convert {
        /// Files and folders; `-` is standard input
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
        #[command(flatten)]
        read: ReadArgs,
        #[command(flatten)]
        write: WriteArgs,
        #[command(flatten)]
        clean: CleanArgs,
    },
    /// Split files, or an index, into parts by a seeded draw on each dialogue's id
    Split {
        /// Files and folders; without any, the index is split
        paths: Vec<PathBuf>,
        #[command(flatten)]
        read: ReadArgs,
        /// The parts and their shares
        #[arg(long, default_value = "train=0.8,dev=0.1,test=0.1", value_name = "NAME=SHARE,…", value_parser = parsed::<Parts>)]
        parts: Parts,
        /// The folder for one JSONL file a part
        #[arg(short, long, value_name = "FOLDER")]
        output: PathBuf,
    },
    /// Print the JSON Schema of turnwise's own format
    Schema,
    /// List the formats that can be read
    Formats,
}

#[derive(Debug, Args)]
pub(crate) struct WriteArgs {
    /// The file; `-` is standard output
    #[arg(short, long, default_value = "-", value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// The format to write
    #[arg(long, value_enum, default_value = "jsonl", value_name = "FORMAT")]
    pub(crate) to: TargetArg,
    /// Only dialogues that fit, such as 'domain=banking and turns>=6'
    #[arg(long, value_name = "EXPRESSION", value_parser = parsed::<Filter>)]
    pub(crate) filter: Option<Filter>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum TargetArg {
    /// turnwise's own: one dialogue a line
    Jsonl,
    /// One turn a row
    Csv,
    /// Chat-completion messages, one dialogue a line
    Messages,
    /// Speaker: text
    Transcript,
}

impl From<TargetArg> for Target {
    fn from(target: TargetArg) -> Self {
        match target {
            TargetArg::Jsonl => Target::Jsonl,
            TargetArg::Csv => Target::Csv,
            TargetArg::Messages => Target::Messages,
            TargetArg::Transcript => Target::Transcript,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// Dialogue ids
    #[arg(required_unless_present = "filter")]
    pub(crate) ids: Vec<String>,
    /// All dialogues that fit, such as 'source=old or time<2020-01-01'
    #[arg(long, value_name = "EXPRESSION", conflicts_with = "ids", value_parser = parsed::<Filter>)]
    pub(crate) filter: Option<Filter>,
    /// Tell how many it would be and delete nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IndexCommand {
    /// Take in what came since the last time, or build it anew if it is lost
    Build,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the settings in force
    Show {
        /// And where each comes from
        #[arg(long)]
        origin: bool,
    },
    /// Write a turnwise.toml with every setting explained
    Init,
}
