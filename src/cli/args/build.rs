//! Arguments of `turnwise bench build`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{EncoderArgs, ReadArgs, TokenArgs, bench::at_least_one, parse_value};
use turnwise_eval::{
    build::{Published, Recipe},
    rank::Terms,
};

#[derive(Debug, Subcommand)]
pub(crate) enum BuildCommand {
    /// Build a semantic retrieval set, like select.txt, from sentences with intents
    Sr {
        #[command(flatten)]
        labelled: SentencesArgs,
        /// Output file; `-` is standard output
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// How to choose the candidates of each sentence
        #[arg(long, value_enum, value_name = "RECIPE", default_value = "text")]
        recipe: Recipe,
        /// Terms that BM25 counts (see TERMS in `bench sr --help`)
        #[arg(long, value_name = "TERMS", default_value_t, value_parser = parse_value::<Terms>)]
        terms: Terms,
    },
    /// Build a sentence similarity set, like sts.txt, for people to score
    ///
    /// Each ranker contributes an equal share of pairs of neighbors. If the sentences have intents, another share
    /// has pairs of the same intent. The pairs are shuffled. Replace each `?` with a score, or with several scores
    /// separated by commas; the median counts.
    Dsts {
        #[command(flatten)]
        labelled: SentencesArgs,
        /// Output file; `-` is standard output
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Also write how each pair was found, one line per pair
        ///
        /// Do not show this file to the people who score.
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        /// Number of pairs
        #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = at_least_one)]
        pairs: usize,
        /// Ranker that finds the neighbors (see `bench sr --help`); repeatable
        #[arg(short, long = "ranker", value_name = "RANKER", default_values = ["bm25", "model"])]
        rankers: Vec<String>,
        #[command(flatten)]
        encoder: EncoderArgs,
        #[command(flatten)]
        tokens: TokenArgs,
    },
    /// Build a set for `bench dialogues`: the dialogues with exactly one domain
    Dial {
        /// Files and folders of dialogues, in any format that `ingest` reads
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
        #[command(flatten)]
        read: ReadArgs,
        /// Output file (JSON lines); `-` is standard output
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Check the sizes against this set of the dial2vec paper
        ///
        /// SET is bitod, doc2dial, metalwoz, multiwoz, self-dialogue or sgd, followed by /train, /dev or /test,
        /// such as sgd/dev. Exits with code 1 if the sizes differ.
        #[arg(long, value_name = "SET", value_parser = parse_value::<Published>)]
        paper: Option<Published>,
    },
    /// Build a response selection set from dialogues
    ///
    /// Each turn becomes a sample: the turn is the right response, and turns from elsewhere are the wrong ones.
    Response {
        /// Files and folders of dialogues, in any format that `ingest` reads
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
        #[command(flatten)]
        read: ReadArgs,
        /// Output file; `-` is standard output
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Number of candidate responses per sample, including the right one
        #[arg(long, value_name = "N", default_value_t = 10)]
        of: usize,
        /// Minimum number of turns before a response
        #[arg(long, value_name = "N", default_value_t = 2)]
        context: usize,
        /// Remove names of the context's speakers from the responses
        ///
        /// Otherwise the name alone can identify the right response.
        #[arg(long)]
        strip_names: bool,
    },
}

/// Source of the sentences, with or without intents.
#[derive(Debug, Args)]
pub(crate) struct SentencesArgs {
    /// Sentences with intents, or dialogues
    ///
    /// Sentences: a .csv with the columns text and category, a tab-separated file of text and intent, or a folder
    /// with seq.in and label. Dialogues: files in any format that `ingest` reads; their turns may have intents.
    #[arg(value_name = "LABELED")]
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
    /// Label of an utterance, if the input is dialogues
    #[arg(long, value_enum, value_name = "LABEL", default_value = "intent")]
    pub(crate) label: LabelArg,
    /// Use a random sample of N sentences
    #[arg(long, value_name = "N")]
    pub(crate) sentences: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabelArg {
    /// The intent of the turn
    Intent,
    /// The dialogue act without its arguments: `request(city)` is `request`. Only turns with one act are used
    Act,
}
