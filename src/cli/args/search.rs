//! Searching by words, and what it searches in.

use clap::{Args, Subcommand, ValueEnum};

use super::parsed;
use crate::text::Analyzer;

#[derive(Debug, Args)]
#[command(after_help = SYNTAX)]
pub(crate) struct SearchArgs {
    /// What to look for
    pub(crate) query: String,
    /// What is found
    #[arg(long, value_enum, value_name = "WHAT", default_value = "utterances")]
    pub(crate) of: SearchOf,
    /// How it is found
    #[arg(long, value_enum, value_name = "HOW", default_value = "bm25")]
    pub(crate) mode: SearchMode,
    /// Look at all vectors, whatever it takes (with --mode dense)
    #[arg(long)]
    pub(crate) exact: bool,
    /// How many hits
    #[arg(short, default_value_t = 10, value_name = "N")]
    pub(crate) k: usize,
    /// Show so many turns before and after each hit
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) window: usize,
    /// Read the query as an expression (below), not as words
    #[arg(long)]
    pub(crate) syntax: bool,
}

const SYNTAX: &str = "\
With --syntax: +word must be there, -word must not, \"several words\" in this order, \"some words\"~2 with up to two \
between, word^2 counts twice, AND, OR, NOT and parentheses, dialogue:ID, turn:[1 TO 3]. What cannot be understood is \
left out with a warning. Without --syntax no sign has a meaning.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SearchMode {
    /// By the query's words
    Bm25,
    /// By its meaning: the vectors nearest to its vector (`encode` makes them)
    Dense,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GraphBuilder {
    /// Ours
    Native,
    /// The crate hnsw_rs
    #[value(name = "hnsw_rs")]
    HnswRs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SearchOf {
    /// Single turns
    Utterances,
    /// Dialogues as a whole, each with the turn that fits best
    Dialogues,
}

fn analyzers() -> String {
    format!("ANALYZER is {}.", Analyzer::names())
}

#[derive(Debug, Args)]
#[command(after_help = analyzers())]
pub(crate) struct AnalyzeArgs {
    /// The text; `-` is standard input
    pub(crate) text: String,
    /// The analyzer, such as mixed-1 or mixed-1+stem-en; that of the index if not given
    #[arg(long, value_name = "ANALYZER", value_parser = parsed::<Analyzer>)]
    pub(crate) analyzer: Option<Analyzer>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IndexCommand {
    /// Take in what came since the last time, or build it anew if it is lost
    Build(IndexBuildArgs),
    /// Drop what was deleted or replaced from the bytes of the index
    Compact,
    /// Make the search indexes anew, whatever state they are in
    Rebuild(IndexBuildArgs),
    /// Show the parts of the index: their size, what made them, what is behind
    Info,
}

#[derive(Debug, Args)]
#[command(after_help = analyzers())]
pub(crate) struct IndexBuildArgs {
    /// What builds the graphs over the vectors, if there are vectors
    #[arg(long, value_enum, value_name = "BUILDER", default_value = "native")]
    pub(crate) graph: GraphBuilder,
    /// Build it with this analyzer, such as mixed-1+stem-en; it keeps the one it has if not given
    #[arg(long, value_name = "ANALYZER", value_parser = parsed::<Analyzer>)]
    pub(crate) analyzer: Option<Analyzer>,
}
