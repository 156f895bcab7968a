//! The arguments, as clap reads them. Commands never see clap; their doc comments here are their help.

mod bench;
mod build;
mod corpus;
mod encoder;
mod eval;
mod migrate;
mod mining;
mod model;
mod search;
#[cfg(feature = "serve")]
mod serve;
mod train;
mod vectors;

use std::{path::PathBuf, str::FromStr};

use clap::{Args, Parser, Subcommand, ValueEnum, builder::styling};

use turnwise_core::error::Error;
use turnwise_corpus::filter::Filter;

pub(crate) use bench::{AnnArgs, BenchCommand, PlaceArgs, RecipeArgs, RunArgs, ThroughputArgs};
pub(crate) use build::{BuildCommand, LabelArg, RecipeArg, SentencesArgs};
pub(crate) use corpus::{CleanArgs, CorpusCommand, IngestArgs, ReadArgs, RejectArgs, WriteArgs};
pub(crate) use encoder::{EncoderArgs, PrecisionArg, TokenArgs};
pub(crate) use eval::EvalArgs;
pub(crate) use migrate::MigrateArgs;
pub(crate) use mining::{ClustersArgs, DuplicatesArgs};
pub(crate) use model::{FitArgs, FitKind, ModelBenchArgs, ModelCommand, PullArgs};
pub(crate) use search::{
    AnalyzeArgs, GraphBuilder, HowArgs, IndexBuildArgs, IndexCommand, SearchArgs, SearchCommand, SearchOf,
    SimilarArgs, TuneArgs,
};
#[cfg(feature = "serve")]
pub(crate) use serve::ServeArgs;
pub(crate) use train::{ListArgs, Preset, Seeds, TrainArgs, TrainCommand, TrainRunArgs};
pub(crate) use vectors::{AnyOf, EmbedArgs, EncodeArgs, OneOf};

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
    /// Search and fill a Milvus in place of an index on this machine: milvus://host:19530/chats
    #[arg(long, global = true, value_name = "ADDRESS", conflicts_with = "index")]
    pub(crate) engine: Option<String>,
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

impl Command {
    /// Whether `--engine` means something to it, or is refused by it with a word of its own.
    pub(crate) fn heeds_engine(&self) -> bool {
        match self {
            Command::Demo
            | Command::Analyze(_)
            | Command::Embed(_)
            | Command::Train(_)
            | Command::Eval(_)
            | Command::Model(_)
            | Command::Doctor
            | Command::Completions { .. }
            | Command::Reference { .. }
            | Command::Man => false,
            Command::Corpus(command) => command.heeds_engine(),
            _ => true,
        }
    }
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
    /// Find utterances or dialogues by their words and their meaning
    Search(SearchArgs),
    /// Find more like an utterance or a dialogue
    Similar(SimilarArgs),
    /// Serve indexes over HTTP, to programs and to people
    #[cfg(feature = "serve")]
    Serve(ServeArgs),
    /// Find what is there more than once, or nearly so
    Duplicates(DuplicatesArgs),
    /// Draw a map of the topics of an index's dialogues
    Clusters(ClustersArgs),
    /// Show the tokens that a text is searched by
    Analyze(AnalyzeArgs),
    /// Turn texts, utterances or dialogues of files into vectors
    Embed(EmbedArgs),
    /// Give the utterances and dialogues of an index their vectors
    Encode(EncodeArgs),
    /// Train an encoder on dialogues, without labels
    Train(Box<TrainArgs>),
    /// Run the papers' tasks
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Judge a run by its judgments, as trec_eval does
    Eval(EvalArgs),
    /// Look at, convert and split corpora
    #[command(subcommand)]
    Corpus(CorpusCommand),
    /// Count what an index holds
    Stats,
    /// Remove dialogues from an index
    Delete(DeleteArgs),
    /// Build, compact and look at what an index is searched by
    #[command(subcommand)]
    Index(IndexCommand),
    /// Check every checksum and count of an index
    Verify {
        /// Measure again what part of the nearest ten the graphs find
        #[arg(long)]
        recall: bool,
    },
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
    /// Move an index to a Milvus, or what is in a Milvus to an index
    ///
    /// Dialogues with their vectors, nothing encoded again. It goes on where it was stopped; nothing is seen at its new place
    /// before it is complete and was read back: counts, checksums of records and vectors, and searches here and there.
    Migrate(MigrateArgs),
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
    /// Write the reference pages of the documentation
    #[command(hide = true)]
    Reference {
        /// Folder to write to
        folder: PathBuf,
    },
}

/// Parses a value; clap shows one text, so the hint goes into it.
fn parsed<T: FromStr<Err = Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|e: Error| match e.hint() {
        Some(hint) => format!("{e} ({hint})"),
        None => e.to_string(),
    })
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
    /// Drop them from the bytes of the index, too, as `index compact` does
    #[arg(long)]
    pub(crate) purge: bool,
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
