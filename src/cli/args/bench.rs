//! Running the papers' tasks.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{EncoderArgs, ReadArgs, TokenArgs, parsed};
use crate::eval::{build::Recipe, rank::Terms, tasks::Profile};

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
        /// As the paper's text has it, or as its released code does
        #[arg(long, value_enum, value_name = "PROFILE", default_value = "paper")]
        profile: ProfileArg,
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
    /// Make the set of a task out of a labelled corpus
    #[command(subcommand)]
    Build(BuildCommand),
    /// List the recipes, which are rows of the papers' tables, and where they look for their data
    List(ReproduceArgs),
    /// Run recipes and tell which numbers hold; exit code 1 where one does not
    Reproduce {
        #[command(flatten)]
        recipes: ReproduceArgs,
        /// Write a report, too: a .md, or a .html with plots that needs nothing else
        #[arg(long, value_name = "FILE")]
        report: Option<PathBuf>,
        #[command(flatten)]
        run: RunArgs,
    },
    /// Compare two results, query by query: difference, interval, probability
    Compare {
        /// A file of results
        a: PathBuf,
        /// Another one of the same task
        b: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum BuildCommand {
    /// Semantic retrieval: sentences with intents become a file as select.txt
    Sr {
        /// A .csv with columns text and category, lines of text and intent with a tab between them, or a folder with seq.in and label
        labelled: PathBuf,
        /// The file to write (- is standard output)
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// How candidates are chosen
        #[arg(long, value_enum, value_name = "RECIPE", default_value = "text")]
        recipe: RecipeArg,
        /// What BM25 takes for words (see the rankers of `bench sr`)
        #[arg(long, value_name = "TERMS", default_value_t, value_parser = parsed::<Terms>)]
        terms: Terms,
    },
    /// Response selection: every turn of dialogues among others that were said elsewhere
    Response {
        /// Files and folders, in any format that can be ingested
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        #[command(flatten)]
        read: ReadArgs,
        /// The file to write (- is standard output)
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// How many responses a sample has, the right one among them
        #[arg(long, value_name = "N", default_value_t = 10)]
        of: usize,
        /// How many turns there are before a response, at least
        #[arg(long, value_name = "N", default_value_t = 2)]
        context: usize,
        /// Take the names of a context's speakers out of the responses, which they would give away
        #[arg(long)]
        strip_names: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecipeArg {
    /// The first 100 by BM25, positive where the intent agrees, at most 30 of these
    Text,
    /// As the published files are: 30 drawn of the same intent, and the first 40 of others by BM25
    Released,
}

impl From<RecipeArg> for Recipe {
    fn from(recipe: RecipeArg) -> Self {
        match recipe {
            RecipeArg::Text => Recipe::Text,
            RecipeArg::Released => Recipe::Released,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ReproduceArgs {
    /// The folder that the data of the recipes lie in
    #[arg(long, value_name = "FOLDER", default_value = "data")]
    pub(crate) data: PathBuf,
    /// The folder of recipes
    #[arg(long, value_name = "FOLDER", default_value = "benchmarks/recipes")]
    pub(crate) recipes: PathBuf,
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
    #[command(flatten)]
    pub(crate) run: RunArgs,
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
    /// Write rankings and judgments in TREC's format into this folder, for other tools
    #[arg(long, value_name = "FOLDER")]
    pub(crate) export: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) encoder: EncoderArgs,
    #[command(flatten)]
    pub(crate) tokens: TokenArgs,
}

const RANKERS: &str = "Rankers: model (that of --model, else the default one) or model:NAME, either with +centre behind it; bm25 \
or bm25:TERMS; tfidf or tfidf:TERMS (TERMS: an analyzer of `turnwise analyze`; pairs, which are words, single letters of \
Chinese, and each two of them; letters, and each two of them; scikit, as scikit-learn has words, and \
each two of them); tfidf-svd, tfidf-svd:DIMENSIONS or tfidf-svd:DIMENSIONS:TERMS; hybrid or hybrid:NAME (the model \
and BM25, weighed as in a search); maxsim or matching (the model's best 50 ranked again token by token, as --rerank of a \
search has it); lda or lda:TOPICS; vectors:FILE.npy (a row for each \
document and, behind them, for each query); random. Models compute in f32 unless --precision says otherwise.";

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
