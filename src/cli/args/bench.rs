//! Arguments of `turnwise bench` and `turnwise eval`.

use std::path::PathBuf;

use clap::{Arg, Args, Subcommand};

use super::{
    BuildCommand, EncoderArgs, InputArgs, ReadArgs, SearchRanker, TokenArgs, at_least_one,
    encoder::describe_for_benchmarks, parse_value, search_ranker::describe_for_memory,
};
use turnwise_corpus::Role;
use turnwise_eval::{
    recipe::Paper,
    tasks::{
        AdHoc, DialogueRetrieval, Memory, Profile, ResponseSelection, SemanticRetrieval, Similarity, TaskSpec,
    },
};
use turnwise_index::dense::Builder;
use turnwise_search::{HitKind, Mode};

/// Subcommands of `turnwise bench`.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    #[command(flatten)]
    Task(TaskCommand),
    /// Measure suggested replies: how similar they are to the true ones
    ///
    /// Asks for replies to each context of the samples, as `turnwise respond` does, first without a selector, then with each
    /// --selector. Compares the suggestions with the right response of the sample: `same words` is the share of suggestions
    /// with the same words (ignoring case and punctuation), `word F1` the F1 score of the words, and `cosine` the cosine of
    /// the vectors by the encoder of the index. The measures are those of the first suggestion (@1) and of the best of the
    /// first k (@5). The random baseline draws replies from the index at random.
    ///
    /// A dialogue is never answered by itself: if the index contains the dialogue of a sample, its turns are not suggested.
    /// Do not use dialogues with which a selector was trained.
    ///
    /// Example: turnwise bench respond samples.jsonl -i chats --role agent --selector runs/replies
    Respond(RespondBenchArgs),
    /// Measure approximate nearest-neighbor search: recall and speed
    ///
    /// Builds a vector graph (HNSW) with each setting. Reports recall, queries per second, latency, build time and
    /// memory.
    Ann(AnnArgs),
    /// Measure the speed of ingesting, encoding, indexing and searching
    ///
    /// Uses a temporary index, which is removed at the end.
    ///
    /// Example: turnwise bench throughput chats.jsonl
    Throughput(ThroughputArgs),
    /// Run a quick self-test on the sample dialogues
    ///
    /// Runs each part of turnwise once, in less than a minute. Downloads the default model if it is missing. Exits with code 1 if a result is not as expected.
    Smoke {
        /// Folder for the output; its previous contents are removed
        #[arg(long, value_name = "FOLDER", default_value = "benchmark-results/smoke")]
        folder: PathBuf,
    },
    /// Build a test set for a task
    #[command(subcommand)]
    Build(BuildCommand),
    /// List the recipes and the data that they need
    ///
    /// A recipe describes a benchmark, such as one table of a paper: the task, the rankers and the expected numbers.
    List(RecipeArgs),
    /// Run recipes, by name or file, and print the results
    Run {
        /// Names of recipes, or recipe files (.toml)
        #[arg(required = true, value_name = "RECIPE")]
        names: Vec<String>,
        #[command(flatten)]
        place: PlaceArgs,
        #[command(flatten)]
        run: RunArgs,
    },
    /// Run recipes and compare the results with the papers' numbers
    ///
    /// Exits with code 1 if a result differs from the number that its recipe expects. The tolerance is `within` in the recipe,
    /// by default 0.1 percentage points. Recipes without their data are skipped. If no recipe has its data, exits with code 2.
    ///
    /// Example: turnwise bench reproduce --paper dial2vec --data data --report dial2vec.html
    Reproduce {
        #[command(flatten)]
        recipes: RecipeArgs,
        /// Also write a report to FILE (.md or .html); repeatable
        ///
        /// The HTML report is a single file that includes all plots.
        #[arg(long, value_name = "FILE")]
        report: Vec<PathBuf>,
        #[command(flatten)]
        run: RunArgs,
    },
    /// Write a report of all saved results: tables of the papers, curves, 2D maps of dialogues, and speed
    Report {
        /// Folder with the saved results
        #[arg(long, value_name = "FOLDER", default_value = "benchmark-results")]
        results: PathBuf,
        /// Report file (.md or .html); repeatable
        ///
        /// The HTML report is a single file that includes all plots.
        #[arg(short, long, value_name = "FILE", default_value = "benchmarks.html")]
        output: Vec<PathBuf>,
    },
    /// Compare two results query by query
    ///
    /// Prints the means of A and B for each measure, and the difference B − A with its 95% confidence interval (bootstrap) and
    /// its p-value (paired randomization test).
    Compare {
        /// First result file (the baseline), from the folder of results
        a: PathBuf,
        /// Second result file, of the same task and data
        b: PathBuf,
    },
}

/// The tasks: one subcommand for each variant of [`TaskSpec`].
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Semantic retrieval (DialogueCSE): find sentences with the same intent
    ///
    /// Reads a file in the format of DialogueCSE's select.txt, which lists candidates for each sentence. Ranks these
    /// candidates; those with the same intent as the sentence are relevant. Reports MAP and MRR.
    Sr(TaskArgs<SemanticRetrieval>),
    /// Sentence similarity (D-STS, from DialogueCSE): compare similarities with human scores
    ///
    /// Reads a file in the format of DialogueCSE's sts.txt. Reports Spearman, Pearson and Kendall correlation.
    Dsts(TaskArgs<Similarity>),
    /// Dialogue retrieval, relatedness and domain categorization (dial2vec)
    ///
    /// Dialogues of the same domain are relevant to each other; every dialogue must have exactly one domain.
    /// Reports MAP and MRR for retrieval, and purity, NMI, ARI and accuracy for categorization (clustering). For
    /// relatedness, reports the Spearman correlation between the cosines of pairs of dialogues and their labels: 1 for the
    /// same domain, 0 for different domains.
    #[command(mut_args(show_profile))]
    Dialogues {
        #[command(flatten)]
        args: TaskArgs<DialogueRetrieval>,
        #[command(flatten)]
        read: ReadArgs,
    },
    /// Response selection: find the right response among several candidates
    ///
    /// Reports R@1, R@2, R@5 and MRR.
    Response(TaskArgs<ResponseSelection>),
    /// Ad-hoc retrieval on a folder in BEIR format
    ///
    /// Searches the whole corpus for each query. Reports nDCG@10, MAP, R@100 and MRR.
    Adhoc(TaskArgs<AdHoc>),
    /// Search in long conversations (LoCoMo): find the turns that answer a question
    ///
    /// Builds an index for each conversation, as `turnwise ingest` does, in a temporary folder. Searches with each question.
    /// The ranker `search` has the options of `turnwise search`. By default, three rankers are compared: hybrid, lexical
    /// and dense search.
    ///
    /// Reports the recall of the evidence (R@5, R@10: the mean share of a question's turns among the first hits), hit@5 (the
    /// share of questions with at least one of their turns among the first five hits), and MRR (of the first of their
    /// turns, among 100 hits). `session R@5` and `session R@10` are the recall of the dialogues that contain the evidence,
    /// in the order of their best turns. The values are over all questions and by category, with 95% bootstrap intervals.
    ///
    /// Example: turnwise bench memory locomo10.json --bm25-weight 1
    #[command(mut_args(describe_for_memory))]
    Memory {
        #[command(flatten)]
        args: TaskArgs<Memory>,
        #[command(flatten)]
        read: ReadArgs,
        #[command(flatten)]
        search: SearchRanker,
    },
}

/// Makes the option `--profile` visible in the help. Returns other options unchanged.
fn show_profile(arg: Arg) -> Arg {
    if arg.get_id() == "profile" { arg.hide(false) } else { arg }
}

impl TaskCommand {
    /// Splits the arguments into the task, the options of the run, and the options for reading dialogues.
    pub(crate) fn split(self) -> (TaskSpec, BenchArgs, ReadArgs) {
        let (task, how) = match self {
            TaskCommand::Sr(args) => (TaskSpec::Sr(args.task), args.how),
            TaskCommand::Dsts(args) => (TaskSpec::Dsts(args.task), args.how),
            TaskCommand::Dialogues { args, read } => {
                let task = DialogueRetrieval { profile: args.how.profile, ..args.task };
                return (TaskSpec::Dialogues(task), args.how, read);
            }
            TaskCommand::Response(args) => (TaskSpec::Response(args.task), args.how),
            TaskCommand::Adhoc(args) => (TaskSpec::Adhoc(args.task), args.how),
            TaskCommand::Memory { mut args, read, search } => {
                search.apply(&mut args.how.rankers);
                return (TaskSpec::Memory(args.task), args.how, read);
            }
        };
        (task, how, ReadArgs::default())
    }
}

/// A task with its data, and the options of the run.
#[derive(Debug, Args)]
pub(crate) struct TaskArgs<T: Args> {
    #[command(flatten)]
    task: T,
    #[command(flatten)]
    how: BenchArgs,
}

/// Options that set the folders of the benchmark recipes and of their data.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// Folder that contains the data of the recipes
    #[arg(long, value_name = "FOLDER", default_value = "data")]
    pub(crate) data: PathBuf,
    /// Use the recipes in this folder instead of the included ones
    #[arg(long, value_name = "FOLDER")]
    pub(crate) recipes: Option<PathBuf>,
}

/// Options that select benchmark recipes.
#[derive(Debug, Args)]
pub(crate) struct RecipeArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Only recipes of this paper: dialoguecse, dial2vec or response-selection; repeatable
    #[arg(long, value_name = "PAPER", value_parser = parse_value::<Paper>)]
    pub(crate) paper: Vec<Paper>,
    /// Only recipes whose name contains TEXT; repeatable
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = RANKERS)]
pub(crate) struct BenchArgs {
    /// Ranker to evaluate (see the list at the end); repeatable
    #[arg(short, long = "ranker", value_name = "RANKER", default_values = ["bm25", "model"])]
    pub(crate) rankers: Vec<String>,
    /// Follow the text of the dial2vec paper, or the code released with it
    // Only `bench dialogues` uses and shows this option. The other tasks accept and ignore it.
    #[arg(long, value_enum, value_name = "PROFILE", default_value = "paper", hide = true)]
    pub(crate) profile: Profile,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// Arguments of `turnwise bench respond`.
#[derive(Debug, Args)]
pub(crate) struct RespondBenchArgs {
    #[command(flatten)]
    pub(crate) samples: ResponseSelection,
    /// Selector to evaluate; repeatable
    ///
    /// The folder of a run of `turnwise train selector`, or a cross-encoder.
    #[arg(long = "selector", value_name = "MODEL")]
    pub(crate) selectors: Vec<String>,
    /// Number of suggestions
    #[arg(short, value_name = "N", default_value_t = 5, value_parser = at_least_one)]
    pub(crate) k: usize,
    /// Only answers by speakers with this role, such as agent
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<Role>,
    /// Search mode [default: hybrid if the index has vectors, otherwise bm25]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) mode: Option<Mode>,
    /// Weight of a context turn, relative to the turn after it
    #[arg(long, value_name = "0..1", default_value_t = 0.5)]
    pub(crate) decay: f32,
    /// Also write the suggestions to FILE, as JSON lines
    ///
    /// A line has the keys id, ranker, context (list of texts), reply (the true one) and suggestions (list of texts).
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Folder for the results
    #[arg(long, value_name = "FOLDER", default_value = "benchmark-results")]
    pub(crate) results: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct AnnArgs {
    /// NumPy file (.npy) of vectors to search [default: the vectors of the index given by -i]
    #[arg(long, value_name = "FILE")]
    pub(crate) vectors: Option<PathBuf>,
    /// NumPy file of query vectors [default: hold out some of the vectors]
    #[arg(long, value_name = "FILE", requires = "vectors")]
    pub(crate) query_vectors: Option<PathBuf>,
    /// Number of vectors to hold out as queries, at most a tenth of the vectors
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub(crate) queries: usize,
    /// Which vectors of the index to use
    #[arg(long, value_enum, value_name = "UNIT", default_value = "utterances")]
    pub(crate) of: HitKind,
    /// Number of nearest neighbors to search for
    #[arg(short, value_name = "N", default_value_t = 10, value_parser = at_least_one)]
    pub(crate) k: usize,
    /// Sizes of the candidate list during a search (HNSW's ef), comma-separated; each one is measured
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = at_least_one,
          default_values_t = [10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384])]
    pub(crate) ef: Vec<usize>,
    /// Graph implementation; repeatable
    #[arg(long = "graph", value_enum, value_name = "BUILDER", default_value = "native")]
    pub(crate) graphs: Vec<Builder>,
    /// Neighbors per vector in the graph (HNSW's M), comma-separated; each one is measured
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "16")]
    pub(crate) m: Vec<usize>,
    /// Size of the candidate list while building the graph (HNSW's efConstruction)
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub(crate) ef_construction: usize,
    /// Store the vectors of the graph file in 16-bit precision instead of 32-bit; their 8-bit codes do not change
    #[arg(long)]
    pub(crate) half: bool,
    /// Folder for the results
    #[arg(long, value_name = "FOLDER", default_value = "benchmark-results")]
    pub(crate) results: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ThroughputArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Number of utterances to use as queries
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = at_least_one)]
    pub(crate) queries: usize,
    /// Folder for the results
    #[arg(long, value_name = "FOLDER", default_value = "benchmark-results")]
    pub(crate) results: PathBuf,
    #[command(flatten)]
    pub(crate) encoder: EncoderArgs,
    #[command(flatten)]
    pub(crate) tokens: TokenArgs,
}

/// Options of a benchmark run, for all rankers.
#[derive(Debug, Args)]
#[command(mut_args(describe_for_benchmarks))]
pub(crate) struct RunArgs {
    /// Folder for the results
    #[arg(long, value_name = "FOLDER", default_value = "benchmark-results")]
    pub(crate) results: PathBuf,
    /// Compute the result again, even if it is already saved
    ///
    /// By default, a saved result is used if data, ranker and options are the same.
    #[arg(long)]
    pub(crate) rerun: bool,
    /// Number of runs, each with a different seed
    ///
    /// The seeds are consecutive and start at --seed. With several runs, the mean and the standard deviation are
    /// reported.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) seeds: u64,
    /// Also write rankings and judgments in TREC format to this folder
    ///
    /// `turnwise eval` and trec_eval read these files.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) export: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) encoder: EncoderArgs,
    #[command(flatten)]
    pub(crate) tokens: TokenArgs,
}

const RANKERS: &str = "\
Rankers:
  model, model:NAME      cosine similarity of vectors; without NAME, the model given by --model
  bm25, bm25:TERMS       BM25
  tfidf, tfidf:TERMS     TF-IDF
  tfidf-svd, tfidf-svd:DIMENSIONS, tfidf-svd:DIMENSIONS:TERMS
                         TF-IDF, reduced by truncated SVD to DIMENSIONS (default 128)
  hybrid, hybrid:NAME    weighted sum of the model and BM25, as in `turnwise search`
  maxsim, maxsim:NAME    the model's top 50, reranked by MaxSim: for each query token, the cosine of the
                         most similar token of the candidate, averaged
  matching, matching:NAME
                         the model's top 50, reranked by DialogueCSE's matching-guided similarity
  selector:MODEL         a selector (`turnwise train selector`) or a cross-encoder; only in `bench response`;
                         selector:MODEL+last-3 reads the last three turns of a context, and
                         selector:MODEL+last-512-tokens its last 512 tokens
  lda, lda:TOPICS        LDA (default of TOPICS: the number of classes in the data; without classes, 50)
  vectors:FILE.npy       your own vectors, one row per text or dialogue in the order of the data; for
                         `bench response` and `bench adhoc`, one row per document, then one per query
  random                 random order
  search, 'search OPTIONS'
                         only in `bench memory`: `turnwise search` in an index; OPTIONS are --mode, --fusion,
                         --rrf-k, --dense-weight, --bm25-weight, --candidates, --rerank and --rerank-top

`model` and `model:NAME` can be followed by modifiers, such as model+utterances+last-3:
  +center                subtract the mean of all vectors
  +white                 whiten the vectors
  +utterances            vector of a dialogue: encode each utterance and pool (--dialogue-mode utterances)
  +interlocutors         vector of a dialogue: the mean of each speaker's tokens, summed over the speakers
  +first-speaker         vector of a dialogue: mean of the first speaker's tokens
  +other-speakers        vector of a dialogue: mean of the other speakers' tokens
                         (after +utterances, these three use the vectors of the utterances instead)
  +last-N                use only the last N turns of a dialogue or context
  +cls, +mean            vector of a text: that of the first token, or the mean of all tokens

TERMS is an analyzer of `turnwise analyze` (for bm25 and tfidf, mixed-1 by default) or one of:
  pairs                  words (Chinese: single characters) and their bigrams
  letters                single characters and their bigrams
  scikit                 words of at least two characters and their bigrams, as in scikit-learn with
                         ngram_range=(1, 2)
tfidf-svd without TERMS is the encoder that `turnwise model fit` makes, fitted on the texts of the benchmark.

`--precision auto` means f32 for all rankers except `search`, which uses the precision of `turnwise ingest`.";

/// Arguments of `turnwise eval`. They have the names and meanings of trec_eval's options.
#[derive(Debug, Args)]
#[command(after_help = MEASURES)]
pub(crate) struct EvalArgs {
    /// File of relevance judgments: one `query 0 document grade` per line (TREC), or tab-separated (BEIR)
    pub(crate) qrels: PathBuf,
    /// File of the run (search results): one `query Q0 document rank score tag` per line
    pub(crate) run: PathBuf,
    /// Measure to print (see the list at the end); repeatable
    #[arg(short, long = "measure", value_name = "MEASURE", default_value = "official")]
    pub(crate) measures: Vec<String>,
    // trec_eval also uses -q for this option. The global option --quiet also has -q; because this option has the same
    // clap id, it replaces --quiet here.
    /// Also print the measures of each query; in this command, -q does not mean --quiet
    #[arg(id = "quiet", short = 'q', long = "per-query")]
    pub(crate) per_query: bool,
    /// Average over all judged queries; queries that are missing from the run count as 0
    ///
    /// By default, only queries that are in both files count.
    #[arg(short, long)]
    pub(crate) complete: bool,
    /// Minimum grade at which a document counts as relevant
    #[arg(short, long, value_name = "GRADE", default_value_t = 1)]
    pub(crate) level: i32,
}

const MEASURES: &str = "\
Measures without a cutoff: map, gm_map, Rprec, bpref, recip_rank, ndcg, num_q, num_ret, num_rel, num_rel_ret.

Measures with cutoffs: P, recall, ndcg_cut, map_cut, success, iprec_at_recall. Append the cutoffs, such as P.5,10 or \
iprec_at_recall.0.10. Without cutoffs, those of trec_eval are used.

`official` is the default set of measures of trec_eval.";
