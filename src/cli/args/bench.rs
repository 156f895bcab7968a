//! Running the papers' tasks.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{BuildCommand, EncoderArgs, GraphBuilder, ReadArgs, SearchOf, TokenArgs, parsed};
use turnwise_eval::{recipe::Paper, tasks::Profile};

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Semantic retrieval (DialogueCSE): a file as select.txt
    Sr {
        /// Lines of id, text, intent, positive ids, negative ids, with tabs between them
        file: PathBuf,
        #[command(flatten)]
        how: BenchArgs,
    },
    /// Similarity of sentences (D-STS, DialogueCSE): a file as sts.txt
    Dsts {
        /// Lines of score, sentence, sentence, with tabs between them
        file: PathBuf,
        /// A file as select.txt, by whose sentences words are weighed, too
        #[arg(long, value_name = "FILE")]
        background: Option<PathBuf>,
        #[command(flatten)]
        how: BenchArgs,
    },
    /// Dialogue retrieval, semantic relatedness and domain categorization (dial2vec): dialogues with a domain each
    Dialogues {
        /// A file or folder, in any format that can be ingested
        path: PathBuf,
        #[command(flatten)]
        read: ReadArgs,
        #[command(flatten)]
        how: BenchArgs,
    },
    /// Response selection: contexts with one right response among several
    Response {
        /// Samples as JSON lines, or lines of label, turns and response with tabs between them
        file: PathBuf,
        #[command(flatten)]
        how: BenchArgs,
    },
    /// Ad-hoc retrieval: a folder as BEIR has it
    Adhoc {
        /// With corpus.jsonl, queries.jsonl and qrels/test.tsv
        folder: PathBuf,
        /// Other judgments, of BEIR or of TREC
        #[arg(long, value_name = "FILE")]
        qrels: Option<PathBuf>,
        #[command(flatten)]
        how: BenchArgs,
    },
    /// How much of the nearest a graph over vectors finds, and how fast: recall, queries a second, latency, building, memory
    Ann(AnnArgs),
    /// How fast an index takes in dialogues, makes their vectors and answers
    Throughput(ThroughputArgs),
    /// Everything once, on the sample dialogues, in under a minute; exit code 1 where something is not as it must be
    Smoke {
        /// A folder for all that it makes; what is in it from before is removed
        #[arg(long, value_name = "FOLDER", default_value = "benchmark-results/smoke")]
        folder: PathBuf,
    },
    /// Make the set of a task out of a labelled corpus
    #[command(subcommand)]
    Build(BuildCommand),
    /// List the recipes, which are tables of the papers, and where they look for their data
    List(RecipeArgs),
    /// Run recipes, by name or file, and print what came
    Run {
        /// The names of recipes, or files (.toml)
        #[arg(required = true, value_name = "RECIPE")]
        names: Vec<String>,
        #[command(flatten)]
        place: PlaceArgs,
        #[command(flatten)]
        run: RunArgs,
    },
    /// Run recipes and tell which numbers hold, and how they stand to the paper's; exit code 1 where one does not hold
    Reproduce {
        #[command(flatten)]
        recipes: RecipeArgs,
        /// Write a report, too: a .md, or a .html with plots that needs nothing else (more than one with more than one)
        #[arg(long, value_name = "FILE")]
        report: Vec<PathBuf>,
        #[command(flatten)]
        run: RunArgs,
    },
    /// Write a report of all results: the papers' tables, curves, maps, speed
    Report {
        /// The folder of results
        #[arg(long, value_name = "FOLDER", default_value = "benchmark-results")]
        results: PathBuf,
        /// A .md, or a .html with plots that needs nothing else (more than one with more than one -o)
        #[arg(short, long, value_name = "FILE", default_value = "benchmarks.html")]
        output: Vec<PathBuf>,
    },
    /// Compare two results, query by query: difference, interval, probability
    Compare {
        /// A file of results
        a: PathBuf,
        /// Another one of the same task
        b: PathBuf,
    },
}

/// Where recipes and their data are.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// The folder that the data of the recipes lie in
    #[arg(long, value_name = "FOLDER", default_value = "data")]
    pub(crate) data: PathBuf,
    /// Recipes of this folder, instead of those that come with turnwise
    #[arg(long, value_name = "FOLDER")]
    pub(crate) recipes: Option<PathBuf>,
}

/// Which recipes.
#[derive(Debug, Args)]
pub(crate) struct RecipeArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Only those of a paper: dialoguecse, dial2vec or response-selection
    #[arg(long, value_name = "PAPER", value_parser = parsed::<Paper>)]
    pub(crate) paper: Vec<Paper>,
    /// Only recipes with this in their name; more than one with more than one --only
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = RANKERS)]
pub(crate) struct BenchArgs {
    /// Who ranks (below); more than one with more than one -r
    #[arg(short, long = "ranker", value_name = "RANKER", default_values = ["bm25", "model"])]
    pub(crate) rankers: Vec<String>,
    /// As the paper's text has it, or as its released code does; that differs for dialogues alone
    #[arg(long, value_enum, value_name = "PROFILE", default_value = "paper")]
    pub(crate) profile: ProfileArg,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AnnArgs {
    /// Vectors to search, in a file of NumPy (.npy); without it those of the index that -i names
    #[arg(long, value_name = "FILE")]
    pub(crate) vectors: Option<PathBuf>,
    /// Queries of their own, in a file of NumPy; without it some of the vectors are taken out and asked for
    #[arg(long, value_name = "FILE", requires = "vectors")]
    pub(crate) query_vectors: Option<PathBuf>,
    /// How many vectors are taken out as queries; at most a tenth of them are
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub(crate) queries: usize,
    /// Which vectors of the index
    #[arg(long, value_enum, value_name = "OF", default_value = "utterances")]
    pub(crate) of: SearchOf,
    /// How many nearest are asked for
    #[arg(short, value_name = "N", default_value_t = 10, value_parser = at_least_one)]
    pub(crate) k: usize,
    /// How many candidates a walk keeps, setting by setting, with commas between them
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = at_least_one,
          default_values_t = [10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384])]
    pub(crate) ef: Vec<usize>,
    /// What links the vectors; both with --graph native --graph hnsw_rs
    #[arg(long = "graph", value_enum, value_name = "BUILDER", default_value = "native")]
    pub(crate) graphs: Vec<GraphBuilder>,
    /// Neighbours of a vector in the graph; more than one with commas between them
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "16")]
    pub(crate) m: Vec<usize>,
    /// Candidates for the neighbours of a new vector
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub(crate) ef_construction: usize,
    /// Keep vectors in 16 bits a number
    #[arg(long)]
    pub(crate) half: bool,
    /// The folder of results
    #[arg(long, value_name = "FOLDER", default_value = "benchmark-results")]
    pub(crate) results: PathBuf,
}

pub(super) fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "this is no number of 1 or more".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct ThroughputArgs {
    /// Files and folders, in any format that can be ingested
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
    /// How many of what is said in them are asked for
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = at_least_one)]
    pub(crate) queries: usize,
    /// The folder of results
    #[arg(long, value_name = "FOLDER", default_value = "benchmark-results")]
    pub(crate) results: PathBuf,
    #[command(flatten)]
    pub(crate) encoder: EncoderArgs,
    #[command(flatten)]
    pub(crate) tokens: TokenArgs,
}

/// How it is run, whoever ranks.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The folder of results
    #[arg(long, value_name = "FOLDER", default_value = "benchmark-results")]
    pub(crate) results: PathBuf,
    /// Do again what has been done
    #[arg(long)]
    pub(crate) rerun: bool,
    /// Do it with so many seeds, from --seed on, and tell mean and deviation over them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) seeds: u64,
    /// Write rankings and judgments in TREC's format into this folder, for other tools
    #[arg(long, value_name = "FOLDER")]
    pub(crate) export: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) encoder: EncoderArgs,
    #[command(flatten)]
    pub(crate) tokens: TokenArgs,
}

const RANKERS: &str = "Rankers: model (that of --model, else the default one) or model:NAME, behind which may stand +centre (the mean of \
all vectors is taken off), +white (they are whitened), +utterances, +interlocutors, +first-speaker or +other-speakers (what the vector of a dialogue is made of), \
+last-N (of a dialogue, or what was said before, the last N turns), \
+cls or +mean (how tokens are pooled); bm25 or bm25:TERMS; tfidf or tfidf:TERMS (TERMS: an analyzer of `turnwise analyze`; pairs, which are words, single letters of \
Chinese, and each two of them; letters, and each two of them; scikit, as scikit-learn has words, and \
each two of them); tfidf-svd, tfidf-svd:DIMENSIONS or tfidf-svd:DIMENSIONS:TERMS (with scikit \
decomposed as scikit-learn does it unasked); hybrid or hybrid:NAME (the model \
and BM25, weighed as in a search); maxsim or matching (the model's best 50 ranked again token by token, as --rerank of a \
search has it); lda or lda:TOPICS; vectors:FILE.npy (a row for each \
document and, behind them, for each query); random. A benchmark is of the model and not of a way to compute it faster: what --precision leaves to the program (auto) \
is f32 here.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProfileArg {
    /// As the text has it
    Paper,
    /// As the released code has it
    Code,
}

impl From<ProfileArg> for Profile {
    fn from(profile: ProfileArg) -> Self {
        match profile {
            ProfileArg::Paper => Profile::Paper,
            ProfileArg::Code => Profile::Code,
        }
    }
}
