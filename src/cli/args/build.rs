//! Arguments of `turnwise bench build`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{
    EncoderArgs, InputArgs, ReadArgs, TokenArgs, at_least_one, encoder::describe_for_benchmarks, parse_value,
};
use turnwise_corpus::Role;
use turnwise_eval::{
    build::{CandidateSelection, Published},
    rank::Terms,
};

#[derive(Debug, Subcommand)]
pub(crate) enum BuildCommand {
    /// Build a test set for `bench sr` from sentences with intents
    ///
    /// The file has the format of DialogueCSE's select.txt.
    Sr {
        #[command(flatten)]
        labeled: SentencesArgs,
        /// Output file; `-` is standard output
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Method of choosing the candidates of each sentence
        #[arg(long, alias = "recipe", value_enum, value_name = "SELECTION", default_value = "text")]
        candidate_selection: CandidateSelection,
        /// How BM25 splits a sentence into terms (see TERMS in `bench sr --help`)
        #[arg(long, value_name = "TERMS", default_value_t, value_parser = parse_value::<Terms>)]
        terms: Terms,
    },
    /// Build a test set for `bench dsts`: pairs of sentences for people to score
    ///
    /// The file has the format of DialogueCSE's sts.txt, with `?` as the score. Replace each `?` with a number,
    /// such as 1 (different) to 5 (same meaning). Separate the scores of several people by commas; `bench dsts`
    /// uses their median.
    ///
    /// A pair is a sentence and one of the ten sentences nearest to it. All rankers contribute equally many pairs. If the
    /// sentences have intents, pairs of sentences with the same intent count as one more ranker and get an equal share. The
    /// pairs are shuffled.
    #[command(mut_args(describe_for_benchmarks))]
    Dsts {
        #[command(flatten)]
        labeled: SentencesArgs,
        /// Output file; `-` is standard output
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Also write to FILE which ranker found each pair, one line per pair
        ///
        /// Do not show this file to the people who score the pairs.
        #[arg(long, alias = "key", value_name = "FILE")]
        pair_sources: Option<PathBuf>,
        /// Number of pairs to build
        #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = at_least_one)]
        pairs: usize,
        /// Ranker that finds the nearest sentences (see `bench sr --help`); repeatable
        #[arg(short, long = "ranker", value_name = "RANKER", default_values = ["bm25", "model"])]
        rankers: Vec<String>,
        #[command(flatten)]
        encoder: EncoderArgs,
        #[command(flatten)]
        tokens: TokenArgs,
    },
    /// Build a test set for `bench dialogues`
    ///
    /// Keeps the dialogues with exactly one domain. If --paper names a training set, such as sgd/train, all
    /// dialogues are kept.
    #[command(alias = "dial")]
    Dialogues {
        #[command(flatten)]
        input: InputArgs,
        /// Output file (JSON lines); `-` is standard output
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Check the number of dialogues and domains against a data set of the dial2vec paper
        ///
        /// SET is bitod, doc2dial, metalwoz, multiwoz, self-dialogue or sgd, followed by /train, /dev or /test,
        /// such as sgd/dev. Exits with code 1 if the number of dialogues differs, or if there are more
        /// domains than in the paper.
        #[arg(long, value_name = "SET", value_parser = parse_value::<Published>)]
        paper: Option<Published>,
    },
    /// Build a test set for `bench response` from dialogues
    ///
    /// A turn becomes a sample if it has enough turns before it (--context) and its speaker differs from that of
    /// the turn before it. The turn is the right response; the wrong responses are random turns of other dialogues,
    /// except for hard negatives (--hard-negatives).
    Response {
        #[command(flatten)]
        input: InputArgs,
        /// Output file (JSON lines); `-` is standard output
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Number of candidate responses per sample, including the right one
        #[arg(long, alias = "of", value_name = "N", default_value_t = 10)]
        candidates: usize,
        /// Number of wrong responses that answer turns similar to the last turn of the context
        ///
        /// `respond` suggests such answers, too. They are harder to tell from the right response than random turns,
        /// and some may also be right. The similarity is BM25. Random turns replace missing answers.
        #[arg(long, value_name = "N", default_value_t = 0)]
        hard_negatives: usize,
        /// Minimum number of turns before the response
        #[arg(long, value_name = "N", default_value_t = 2)]
        context: usize,
        /// Only responses by speakers with this role, such as agent
        ///
        /// The wrong responses have this role, too.
        #[arg(long, value_name = "ROLE")]
        role: Option<Role>,
        /// Maximum number of samples, drawn at random (--seed) [default: all]
        #[arg(long, value_name = "N", value_parser = at_least_one)]
        samples: Option<usize>,
        /// Remove the names of the context's speakers from all candidates
        ///
        /// Otherwise, a name alone can identify the right response.
        #[arg(long)]
        strip_names: bool,
    },
}

/// Options that select the sentences of a test set.
#[derive(Debug, Args)]
pub(crate) struct SentencesArgs {
    /// Sentences with intents, or dialogues
    ///
    /// Sentences: a .csv with the columns text and category, a tab-separated file of text and intent, or a folder
    /// with the files seq.in (one sentence per line) and label (the intent of each). Dialogues: files in any
    /// format that `ingest` reads; the intents are those of the turns (or their acts, see --label).
    #[arg(value_name = "LABELED")]
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
    /// Label of a turn to use as its intent, if the input is dialogues
    #[arg(long, value_enum, value_name = "LABEL", default_value = "intent")]
    pub(crate) label: LabelArg,
    /// Use a random sample of N sentences [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) sentences: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabelArg {
    /// Intent of the turn
    Intent,
    /// Dialogue act without arguments, such as `request` for `request(city)`; skips turns with several acts
    Act,
}
