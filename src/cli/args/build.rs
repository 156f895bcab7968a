//! Making the sets of the papers' tasks.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{EncoderArgs, ReadArgs, TokenArgs, bench::at_least_one, parsed};
use turnwise_eval::{
    build::{Published, Recipe},
    rank::Terms,
};

#[derive(Debug, Subcommand)]
pub(crate) enum BuildCommand {
    /// Semantic retrieval: sentences with intents become a file as select.txt
    Sr {
        #[command(flatten)]
        labelled: SentencesArgs,
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
    /// Similarity of sentences: pairs for people to score, in a file as sts.txt
    ///
    /// In equal parts neighbours by each ranker and, where sentences have intents, two of one intent; in an order drawn by
    /// chance. Write a number in the place of each `?`, or several with commas between them, of which the median counts.
    Dsts {
        #[command(flatten)]
        labelled: SentencesArgs,
        /// The file to write (- is standard output)
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// How each pair was found, line by line, into this file: not for those who score
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        /// How many pairs
        #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = at_least_one)]
        pairs: usize,
        /// By whom sentences are near (see the rankers of `bench sr`)
        #[arg(short, long = "ranker", value_name = "RANKER", default_values = ["bm25", "model"])]
        rankers: Vec<String>,
        #[command(flatten)]
        encoder: EncoderArgs,
        #[command(flatten)]
        tokens: TokenArgs,
    },
    /// Dialogue retrieval, relatedness and categorization: the dialogues of one domain, as many as dial2vec's paper has
    Dial {
        /// Files and folders, in any format that can be ingested
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
        #[command(flatten)]
        read: ReadArgs,
        /// The file to write, as JSON lines (- is standard output)
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Which of the paper's sets it is: its sizes are asserted, and exit code 1 tells that they differ (bitod, doc2dial,
        /// metalwoz, multiwoz, self-dialogue or sgd, with /train, /dev or /test)
        #[arg(long, value_name = "SET", value_parser = parsed::<Published>)]
        paper: Option<Published>,
    },
    /// Response selection: every turn of dialogues among others that were said elsewhere
    Response {
        /// Files and folders, in any format that can be ingested
        #[arg(required = true, value_name = "PATH")]
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

/// Sentences, with their intents or without.
#[derive(Debug, Args)]
pub(crate) struct SentencesArgs {
    /// A .csv with columns text and category, lines of text and intent with a tab between them, a folder with seq.in and
    /// label; or dialogues in any format that can be ingested, whose turns may have intents
    #[arg(value_name = "LABELLED")]
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
    /// What labels what is said in dialogues
    #[arg(long, value_enum, value_name = "LABEL", default_value = "intent")]
    pub(crate) label: LabelArg,
    /// Draw so many of the sentences
    #[arg(long, value_name = "N")]
    pub(crate) sentences: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabelArg {
    /// What somebody wants: the turn's intent
    Intent,
    /// What it does: its dialogue act without what that is about (`request(city)` is `request`), of turns that have one
    Act,
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
