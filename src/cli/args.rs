//! Definitions of the command-line arguments (clap). Doc comments in this module are the help texts.

mod bench;
mod build;
mod corpus;
mod encoder;
mod mining;
mod model;
mod search;
mod search_ranker;
#[cfg(feature = "serve")]
mod serve;
mod train;
mod vectors;

use std::{path::PathBuf, str::FromStr};

use clap::{Args, Parser, Subcommand, ValueEnum, builder::styling};

use turnwise_core::error::Error;
use turnwise_corpus::filter::Filter;

pub(crate) use bench::{
    AnnArgs, BenchCommand, EvalArgs, PlaceArgs, RecipeArgs, RespondBenchArgs, RunArgs, ThroughputArgs,
};
pub(crate) use build::{BuildCommand, LabelArg, SentencesArgs};
pub(crate) use corpus::{
    CleanArgs, CorpusCommand, IngestArgs, InputArgs, ReadArgs, RejectArgs, ShowArgs, WriteArgs,
};
pub(crate) use encoder::{EncoderArgs, TokenArgs};
pub(crate) use mining::{ClustersArgs, DuplicatesArgs};
pub(crate) use model::{FitArgs, FitKind, ModelBenchArgs, ModelCommand, PullArgs};
pub(crate) use search::{
    AnalyzeArgs, IndexBuildArgs, IndexCommand, RankingArgs, RespondArgs, SearchArgs, SearchCommand,
    SimilarArgs, TuneArgs,
};
pub(crate) use search_ranker::{SearchRanker, value_name};
#[cfg(feature = "serve")]
pub(crate) use serve::ServeArgs;
pub(crate) use train::{ListArgs, Preset, Seeds, TrainArgs, TrainCommand, TrainRunArgs};
pub(crate) use vectors::{EmbedArgs, EncodeArgs, UnitArg, UnitsArg};

const STYLES: styling::Styles = styling::Styles::styled()
    .header(styling::AnsiColor::Green.on_default().bold())
    .usage(styling::AnsiColor::Green.on_default().bold())
    .literal(styling::AnsiColor::Cyan.on_default().bold())
    .placeholder(styling::AnsiColor::Cyan.on_default());

/// Make conversations searchable.
///
/// turnwise reads dialogues in many formats, stores them in a crash-safe index, and searches whole dialogues and single
/// turns. Lexical search finds keywords; dense search finds texts with a similar meaning by comparing vectors. Run
/// `turnwise demo` to try both on the included sample dialogues.
#[derive(Debug, Parser)]
#[command(name = "turnwise", version, styles = STYLES, max_term_width = 110, propagate_version = false)]
#[command(after_help = EXIT_CODES, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 success, 1 a command such as doctor found a problem, 2 wrong arguments or settings, 3 unusable data in a file, \
4 damaged index, 5 index in use by another process, 6 a resource is unavailable (disk, network, device), \
70 bug in turnwise, 130 interrupted.";

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// Index to use: a name or a path [default: the setting `index`]
    ///
    /// A plain name, such as `chats`, is a folder in the indexes folder (setting `indexes_dir`, ./indexes by
    /// default). A value with a slash, such as `./chats`, is a path. Without this option and without the setting,
    /// commands that need an index stop with an error.
    #[arg(short, long, global = true, value_name = "NAME|PATH")]
    pub(crate) index: Option<String>,
    /// Milvus collection to use instead of a local index; not together with -i
    ///
    /// Takes precedence over the setting `index`.
    ///
    /// For example `milvus://localhost:19530/chats`, or `milvuss://…` for an encrypted connection. The environment
    /// variable TURNWISE_MILVUS_TOKEN holds the credentials: `user:password` or an API key.
    ///
    /// For ingest, search, similar, serve, delete, encode, migrate, corpus show and bench throughput; other commands
    /// do not support it. Needs a turnwise that was built with `--features milvus`.
    #[arg(long, global = true, value_name = "ADDRESS", conflicts_with = "index")]
    pub(crate) engine: Option<String>,
    /// Output format of the results on standard output [default: text]
    ///
    /// Messages, warnings and progress go to standard error, in every format.
    #[arg(long, global = true, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<Format>,
    /// Print results and errors only
    ///
    /// In `turnwise eval`, -q means --per-query, and --quiet does not exist.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print more details on standard error; repeat for more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Do not show progress
    #[arg(long, global = true)]
    pub(crate) no_progress: bool,
    /// Number of threads; 0 means one per core [default: 0]
    #[arg(long, global = true, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Seed of the random number generator [default: 0]
    ///
    /// The seed determines random samples, splits, clusters and training. The same command with the same seed gives the
    /// same results on the same machine.
    #[arg(long, global = true, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Read settings from FILE instead of ./turnwise.toml
    ///
    /// Settings of the user's own file (~/.config/turnwise/config.toml) still apply where FILE does not change them.
    /// `turnwise config show --origin` prints each setting and where its value comes from.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Human-readable text
    Text,
    /// One JSON document
    Json,
    /// One JSON object per line
    Jsonl,
}

impl Command {
    /// Returns whether the command supports `--engine` or refuses the option with its own message. If false, the caller
    /// refuses the option.
    pub(crate) fn handles_engine(&self) -> bool {
        use Command::*;
        match self {
            Demo | Analyze(_) | Embed(_) | Train(_) | Eval(_) | Model(_) => false,
            Doctor { .. } | Completions { .. } | Reference { .. } | Man => false,
            Corpus(command) => command.handles_engine(),
            _ => true,
        }
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        <Format as ValueEnum>::from_str(text, false)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Index the included sample dialogues and run example searches
    ///
    /// Creates the index `demo` in the indexes folder, or uses it again if it exists. Downloads the default model if it
    /// is missing; if this fails, uses vectors by TF-IDF and SVD instead.
    Demo,
    /// Add dialogues from files to an index
    ///
    /// Detects the format of each file; `turnwise corpus formats` lists the formats. Creates the index if it does not
    /// exist. A dialogue whose ID is in the index is replaced if its content changed, and skipped otherwise.
    ///
    /// Also updates the lexical index and computes the vectors of the new dialogues. Uses the model of the existing
    /// vectors; if there are none, the default model, if it is installed. Without a model, only lexical search works
    /// until `turnwise encode` has computed the vectors. New vectors are searchable at once; `turnwise index build`
    /// adds them to the vector graph, so that searches are faster.
    ///
    /// Example: turnwise ingest -i chats exports/
    Ingest(IngestArgs),
    /// Search utterances or dialogues, by keywords and by meaning
    ///
    /// If the index has vectors, combines lexical search (keywords, scored by BM25) and dense search (meaning, by the cosine
    /// of vectors). Otherwise, uses lexical search only.
    ///
    /// Example: turnwise search -i chats "my parcel never arrived" --filter role=user
    Search(SearchArgs),
    /// Find utterances or dialogues similar to a given one
    ///
    /// Example: turnwise similar -i chats billing-001#3
    Similar(SimilarArgs),
    /// Suggest replies to a conversation
    ///
    /// Finds turns of the index that are similar to the last turn of the conversation, and returns the answers that they
    /// got. A selector (--selector) then chooses the answers that fit the whole conversation. With --candidates, chooses
    /// among given texts, such as macros.
    ///
    /// Example: turnwise respond -i chats --context conversation.json --selector runs/replies
    Respond(RespondArgs),
    /// Serve indexes over HTTP: a search page and an API
    ///
    /// The search page is at /ui and the API documentation at /docs. By default, the server accepts connections from
    /// this machine only.
    #[cfg(feature = "serve")]
    Serve(ServeArgs),
    /// Find duplicate and near-duplicate utterances or dialogues
    ///
    /// Compares the vectors of the index; run `turnwise encode` first.
    Duplicates(DuplicatesArgs),
    /// Cluster the dialogues of an index by topic
    ///
    /// Uses the vectors of the dialogues; run `turnwise encode` first.
    Clusters(ClustersArgs),
    /// Show the tokens that an analyzer makes from a text
    ///
    /// Lexical search compares these tokens. Use this command to find out why a word matches or does not match.
    ///
    /// Example: turnwise analyze --analyzer mixed-1+stem-en "two deliveries"
    Analyze(AnalyzeArgs),
    /// Encode texts, utterances or dialogues from files and write the vectors to a file
    ///
    /// Needs no index. To compute the vectors of an index, use `turnwise encode`.
    ///
    /// Example: turnwise embed sentences.txt -o vectors.npy
    Embed(EmbedArgs),
    /// Compute the vectors of an index and store them in it
    ///
    /// Encodes only utterances and dialogues that have no vector yet. You can stop the command at any time; run it
    /// again to continue. To write vectors to a file instead, use `turnwise embed`.
    Encode(EncodeArgs),
    /// Train an encoder on unlabeled dialogues
    Train(Box<TrainArgs>),
    /// Run benchmarks: retrieval, speed, and the papers on DialogueCSE, dial2vec and response selection
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Evaluate a TREC run against relevance judgments, like trec_eval
    ///
    /// Example: turnwise eval qrels.txt run.txt -m map -m ndcg_cut.10
    Eval(EvalArgs),
    /// Inspect, convert and split corpora
    #[command(subcommand)]
    Corpus(CorpusCommand),
    /// Show statistics of the dialogues of an index, and its size on disk
    ///
    /// `turnwise index info` shows the settings of the index and which parts of it are out of date.
    Stats,
    /// Remove dialogues from an index
    ///
    /// Removes the dialogues without asking for confirmation; try --dry-run first. Give IDs or --filter, not both.
    ///
    /// Example: turnwise delete -i chats --filter 'time<2020-01-01' --dry-run
    Delete(DeleteArgs),
    /// Build the lexical index and the vector graphs of an index; compact the index; show its parts
    #[command(subcommand)]
    Index(IndexCommand),
    /// Check an index for damage
    ///
    /// Verifies the checksums and counts of all its parts. Exits with code 4 if the index is damaged; `turnwise
    /// repair` then repairs it.
    Verify {
        /// Also measure the recall@10 of the vector graphs
        ///
        /// Exits with code 1 if the recall is more than 0.5 percentage points lower than when the graph was built.
        #[arg(long)]
        recall: bool,
    },
    /// Repair a damaged index from the data that can still be read
    ///
    /// Changes the index in place; copy its folder first if the data matter.
    ///
    /// Records are stored twice, so a record is lost only if both copies are damaged. Damaged vectors are removed;
    /// `turnwise encode` computes them again.
    Repair,
    /// Back up an index to a new folder
    ///
    /// The copy includes checksums of its files. `turnwise restore` creates an index from it.
    ///
    /// Example: turnwise backup -i chats backups/chats
    Backup {
        /// Folder to create; it must be empty or missing
        #[arg(value_name = "FOLDER")]
        target: PathBuf,
        /// Do not copy the vectors; after a restore, `turnwise encode` computes them again
        #[arg(long)]
        no_vectors: bool,
    },
    /// Create an index from a backup
    ///
    /// -i names the new index. Its folder must be empty or missing: an existing index is never overwritten. The checksums
    /// of the backup are verified.
    ///
    /// Example: turnwise restore -i chats-again backups/chats
    Restore {
        /// Folder written by `turnwise backup`
        #[arg(value_name = "FOLDER")]
        source: PathBuf,
    },
    /// Copy an index to Milvus, or from Milvus to a local index
    ///
    /// Copies dialogues and vectors, without encoding anything again. After an interruption, run the same command
    /// to continue. Before the copy becomes visible, turnwise compares it with the original: the counts, the
    /// checksums of records and vectors, and the results of sample searches.
    ///
    /// Example: turnwise migrate -i chats --to milvus://localhost:19530/chats
    Migrate(MigrateArgs),
    /// Download, import, fit and inspect models
    #[command(subcommand)]
    Model(ModelCommand),
    /// Check this machine and the current folder: processor, device, model, settings, indexes
    Doctor {
        /// Also run a small network on the GPU, and compare its results and its speed with those of the CPU
        ///
        /// Fails if there is no GPU that this build of turnwise can use, or if its results are wrong.
        #[arg(long)]
        gpu: bool,
    },
    /// Show the settings, or create a settings file
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print shell completions
    ///
    /// Example: turnwise completions bash > ~/.local/share/bash-completion/completions/turnwise
    Completions {
        /// Shell to print completions for
        shell: clap_complete::Shell,
    },
    /// Print the man page (roff)
    Man,
    /// Write the reference pages of the documentation
    #[command(hide = true)]
    Reference {
        /// Folder to write to
        folder: PathBuf,
    },
}

/// Parses a value. Appends the hint of an error to its message, because clap shows only one message.
fn parse_value<T: FromStr<Err = Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|e: Error| e.message_and_hint())
}

/// Parses a positive integer.
fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "must be a positive integer".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// IDs of the dialogues to delete
    #[arg(value_name = "ID", required_unless_present = "filter")]
    pub(crate) ids: Vec<String>,
    /// Delete all dialogues that match a filter, such as 'corpus=old or time<2020-01-01'
    ///
    /// For the syntax of filters, see the end of `turnwise search --help`. `corpus` is the name given by `ingest --source`.
    #[arg(long, value_name = "EXPRESSION", conflicts_with = "ids", value_parser = parse_value::<Filter>)]
    pub(crate) filter: Option<Filter>,
    /// Print how many dialogues would be deleted, without deleting them
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Also erase the data from disk
    ///
    /// Without this flag, searches no longer find the deleted dialogues, but their data stays in the files of the
    /// index until you run `turnwise index compact`.
    #[arg(long)]
    pub(crate) purge: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the settings in effect
    Show {
        /// Also print where each value comes from
        #[arg(long)]
        origin: bool,
    },
    /// Create ./turnwise.toml, with a description of every setting
    ///
    /// All settings are commented out, so the file changes nothing until you edit it. Fails if the file exists.
    Init,
}

/// Arguments of `turnwise migrate`.
#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// Destination of the copy
    ///
    /// With -i, the source is a local index, and the destination is a Milvus collection (ADDRESS, such as
    /// milvus://localhost:19530/chats). With --engine, the source is the Milvus collection of --engine, and the
    /// destination is a new local index (INDEX: its name or path).
    #[arg(long, value_name = "ADDRESS|INDEX")]
    pub(crate) to: String,
    /// Replace an existing Milvus collection
    ///
    /// Without this flag, the command refuses to copy to a collection that exists. The old collection stays in use until
    /// the copy is complete. An existing local index is never replaced.
    #[arg(long)]
    pub(crate) replace: bool,
    /// Number of sample searches to run on the original and on the copy, to compare their results
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) samples: usize,
}
