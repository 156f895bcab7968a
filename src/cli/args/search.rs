//! Arguments of `turnwise search`, `similar`, `analyze` and `index`.

use std::{fmt, path::PathBuf, str::FromStr};

use clap::{Arg, Args, Subcommand, ValueEnum};

use super::{at_least_one, parse_value};
use turnwise_core::error::Error;
use turnwise_corpus::{Role, filter::Filter};
use turnwise_index::dense::Builder;
use turnwise_search::{
    FusionMethod, FusionOptions, Group, HitKind, Mode, Rerank, RerankMethod, SearchRequest,
};
use turnwise_text::{Analyzer, AnalyzerChoice};

#[derive(Debug, Args)]
#[command(after_help = SYNTAX, subcommand_negates_reqs = true, disable_help_subcommand = true)]
#[command(override_usage = SEARCH_USAGE)]
pub(crate) struct SearchArgs {
    #[command(subcommand)]
    pub(crate) command: Option<SearchCommand>,
    /// Query: keywords, or a sentence with the meaning that you look for
    ///
    /// A query is plain text; punctuation has no special meaning unless --syntax is given.
    #[arg(required_unless_present_any = ["context", "turns", "queries"])]
    pub(crate) query: Option<String>,
    /// File with the turns before the query; `-` is standard input
    ///
    /// The file contains one dialogue in any format that `ingest` reads, or one turn per line. Without QUERY, the
    /// last turn is the query.
    #[arg(long, value_name = "FILE", conflicts_with = "turns")]
    pub(crate) context: Option<PathBuf>,
    /// Turn before the query; repeat for several turns, in order
    ///
    /// The search prefers hits that follow similar turns. To ask about something that was said elsewhere, write a query
    /// that can be understood alone. Names and dates count only in the query. Without QUERY, the last turn is the query.
    ///
    /// Example: turnwise search -i chats --turn "I sent it back" "where is my refund"
    #[arg(long = "turn", value_name = "TEXT")]
    pub(crate) turns: Vec<String>,
    /// Weight of a context turn (--turn, --context), relative to the turn after it
    ///
    /// With 0.5, each turn counts half as much as the turn after it.
    #[arg(long, value_name = "0..1", default_value_t = 0.5)]
    pub(crate) decay: f32,
    /// What to search for
    #[arg(long, value_enum, value_name = "UNIT", default_value = "utterances")]
    pub(crate) of: HitKind,
    /// Parse the query as an expression with operators, such as '+refund -parcel'
    ///
    /// The end of this help lists the operators.
    #[arg(long)]
    pub(crate) syntax: bool,
    /// File of queries, one per line
    ///
    /// A line is a query text or a JSON request, such as {"id": "q7", "query": "where is my refund", "k": 100}. The keys
    /// of a request are `id` [default: the line number] and those of `POST /v1/search`, which docs/serving.md describes.
    /// The command-line options are the defaults of each request. The results are printed as JSON lines, in the order of
    /// the queries.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["query", "context", "turns"])]
    pub(crate) queries: Option<PathBuf>,
    /// With --queries: print a TREC run instead of JSON lines, with NAME as its tag
    #[arg(long, value_name = "NAME", requires = "queries")]
    pub(crate) run: Option<String>,
    #[command(flatten)]
    pub(crate) how: QueryArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SearchCommand {
    /// Choose the fusion method and its weights by queries with known relevant results
    ///
    /// Chooses the combination with the highest MAP.
    ///
    /// To search for the word "tune", write `turnwise search -- tune`.
    Tune(TuneArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    /// File of queries with the IDs of their relevant results, as JSON lines; required except with --reset
    ///
    /// Example of a line: {"query": "where is my refund", "relevant": ["billing-001#3"]}
    #[arg(value_name = "FILE", required_unless_present = "reset")]
    pub(crate) labeled: Option<PathBuf>,
    /// Save the best method and weights as the defaults of the index
    ///
    /// They are saved only if they are better than the current defaults. To test this, a method and weights are chosen on
    /// one half of the queries; they must have a higher MAP than the defaults on the other half. Without --save, the method
    /// and weights are only printed.
    #[arg(long)]
    pub(crate) save: bool,
    /// Remove the saved method and weights, and use the built-in defaults again
    #[arg(long, alias = "forget", conflicts_with_all = ["save", "labeled"])]
    pub(crate) reset: bool,
}

#[derive(Debug, Args)]
#[command(mut_args(describe_for_similar))]
pub(crate) struct SimilarArgs {
    /// ID of an utterance (billing-001#3), to find utterances, or of a dialogue (billing-001), to find dialogues
    #[arg(required_unless_present = "dialogue", conflicts_with = "dialogue")]
    pub(crate) id: Option<String>,
    /// Find dialogues similar to the one in FILE, in any format that `ingest` reads; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) dialogue: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) how: QueryArgs,
}

/// Replaces the help text of an option that has a different meaning in `turnwise similar`. Returns other options
/// unchanged.
fn describe_for_similar(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "rerank" => arg
            .help("Rerank the top hits; only `exact` works here")
            .long_help(
                "Rerank the top hits; only `exact` works here\n\n\
                 `exact` computes the cosines of the top hits again. The scores of a local index are already exact; those \
                 of Milvus (--engine) can be approximate. The other methods need the text of a query.",
            )
,
        _ => arg,
    }
}

/// Arguments of `turnwise respond`.
#[derive(Debug, Args)]
#[command(after_help = RESPOND_EXAMPLES)]
pub(crate) struct RespondArgs {
    /// Last turn of the conversation: the one to answer
    ///
    /// Without it, the last turn of --context or --turn is answered.
    pub(crate) turn: Option<String>,
    /// File with the turns of the conversation; `-` is standard input
    ///
    /// The file contains one dialogue in any format that `ingest` reads, or one turn per line.
    #[arg(long, value_name = "FILE", conflicts_with = "turns")]
    pub(crate) context: Option<PathBuf>,
    /// Earlier turn of the conversation; repeat for several turns, in order
    #[arg(long = "turn", value_name = "TEXT")]
    pub(crate) turns: Vec<String>,
    /// Selector that chooses the replies: the folder of a run of `turnwise train selector`, or a cross-encoder
    ///
    /// It reads the whole conversation together with each reply. Without a selector, the replies have the order of the
    /// search, and the texts of --candidates that of their cosines with the conversation.
    #[arg(long, value_name = "MODEL")]
    pub(crate) selector: Option<String>,
    /// Choose among the texts of FILE, one per line, instead of the turns of the index
    ///
    /// Blank and repeated lines are skipped. In JSON output, `candidate` is the number of the line, starting at 0. With
    /// --selector, no index is needed.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["filter", "role", "mode"])]
    pub(crate) candidates: Option<PathBuf>,
    /// Maximum number of replies
    #[arg(short, default_value_t = 5, value_name = "N")]
    pub(crate) k: usize,
    /// Only answers by speakers with this role, such as agent
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<Role>,
    /// Only answers to turns that match a filter (`turnwise search --help` describes filters)
    #[arg(long, value_name = "FILTER", value_parser = parse_value::<Filter>)]
    pub(crate) filter: Option<Filter>,
    /// Search mode [default: hybrid if the index has vectors, otherwise bm25]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) mode: Option<Mode>,
    /// Weight of a context turn, relative to the turn after it
    #[arg(long, value_name = "0..1", default_value_t = 0.5)]
    pub(crate) decay: f32,
}

const RESPOND_EXAMPLES: &str = "\
Examples:
  turnwise respond -i chats \"my parcel never arrived\" --role agent
  turnwise respond -i chats --context conversation.json --selector runs/replies
  turnwise respond -i chats --turn \"hi\" \"my card was stolen\" --candidates macros.txt --selector runs/replies";

/// Options of `turnwise search` and `turnwise similar`.
#[derive(Debug, Args)]
pub(crate) struct QueryArgs {
    /// Search mode [default: hybrid when the index has vectors, else bm25]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) mode: Option<Mode>,
    /// Maximum number of hits, at most 100,000
    #[arg(short, default_value_t = 10, value_name = "N", value_parser = at_least_one)]
    pub(crate) k: usize,
    /// Number of hits to skip
    ///
    /// For pages of results: with -k 10, `--offset 10` shows the second page.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) offset: usize,
    /// Only hits that match a filter, such as 'role=user and domain=billing and time>=2026-01-01'
    ///
    /// For the syntax of filters, see the end of `turnwise search --help`.
    #[arg(long, value_name = "EXPRESSION", value_parser = parse_value::<Filter>)]
    pub(crate) filter: Option<Filter>,
    /// Only hits in the dialogues of a thread, such as all conversations of one customer
    ///
    /// ID is the metadata value `thread` of the dialogues. With --filter, hits must match both. `turnwise corpus show --thread ID`
    /// prints the dialogues.
    #[arg(long, value_name = "ID")]
    pub(crate) thread: Option<String>,
    /// Group the hits: show only the best hit of each dialogue or of each thread [default: no grouping]
    ///
    /// The hit also shows how many other turns of the group are among the candidates (--candidates). A dialogue without a
    /// thread counts as a thread of its own.
    #[arg(long, value_enum, value_name = "UNIT")]
    pub(crate) group: Option<Group>,
    /// Number of turns to show before and after each utterance found
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) window: usize,
    /// Minimum score of a hit; the scale depends on --mode and --fusion
    ///
    /// dense: the cosine, from -1 to 1. bm25: the BM25 score, which has no upper limit. hybrid with context or weighted
    /// fusion: the weighted sum, usually between 0 and 2. hybrid with rrf: at most about 0.02 with the defaults. With
    /// --rerank, the score of the reranking. --explain shows how a score was computed.
    #[arg(long, value_name = "SCORE")]
    pub(crate) min_score: Option<f32>,
    /// Minimum percentile of a hit, from 0 to 100
    ///
    /// The percentile is the percentage of random pairs of texts in the index whose cosine is lower than that of the
    /// query and the hit. Needs an index with vectors, and does not work with --mode bm25.
    #[arg(long, value_name = "PERCENT")]
    pub(crate) min_percentile: Option<f64>,
    /// Compare the query with all vectors instead of using the vector graph (HNSW)
    ///
    /// Slower, but finds all nearest vectors. The graph finds nearly all of them. Does not work with --mode bm25.
    #[arg(long)]
    pub(crate) exact: bool,
    /// Show how the score of each hit was computed
    ///
    /// Prints the cosine, the BM25 score of each term, the ranks in both lists, and the time of each step.
    #[arg(long)]
    pub(crate) explain: bool,
    #[command(flatten)]
    pub(crate) ranking: RankingArgs,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Fusion and ranking")]
pub(crate) struct RankingArgs {
    /// How hybrid search combines the dense and BM25 scores [default: context for utterances, weighted for dialogues]
    ///
    /// `search tune --save` stores other defaults for this option and the weights in the index. If you give this option or a
    /// weight, none of the stored defaults is used.
    #[arg(long, value_enum, value_name = "METHOD")]
    pub(crate) fusion: Option<FusionMethod>,
    /// With --fusion rrf: constant k of reciprocal rank fusion [default: 60]
    ///
    /// The score is the sum of weight / (k + rank) over the dense and the BM25 list. A larger k reduces the
    /// advantage of the top ranks.
    #[arg(long, value_name = "N")]
    pub(crate) rrf_k: Option<f32>,
    /// Weight of the dense results in hybrid search [default: 1]
    #[arg(long, value_name = "WEIGHT")]
    pub(crate) dense_weight: Option<f32>,
    /// Weight of the BM25 results in hybrid search [default: 0.5 for utterances, 1.5 for dialogues]
    ///
    /// With --fusion weighted for utterances, with rrf, and for items similar to a given one, the default is 0.3. Use a higher
    /// value for queries with names and numbers.
    #[arg(long, value_name = "WEIGHT")]
    pub(crate) bm25_weight: Option<f32>,
    /// Score to add if the query names a speaker of the dialogue [default: 0.2]
    ///
    /// It is added once more if the hit is an utterance of this speaker. Not used by --fusion rrf, and for utterances only by
    /// context.
    #[arg(long, value_name = "SCORE")]
    pub(crate) speaker_weight: Option<f32>,
    /// Score to add if the query names a date [default: 0.2]
    ///
    /// It is added to turns that were said on this date, and to turns that mention it. "Last Tuesday", said on Monday,
    /// 8 May 2023, mentions 2 May 2023. For dialogues, it is added to those with a turn on this date. Not used by --fusion
    /// rrf, and for utterances only by context.
    #[arg(long, value_name = "SCORE")]
    pub(crate) date_weight: Option<f32>,
    /// With --mode hybrid: number of hits to take from each of the two lists, dense and BM25
    ///
    /// More hits are taken if they are needed, for example for a large -k.
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub(crate) candidates: usize,
    /// Rerank the top hits by a second score
    ///
    /// maxsim, maxsim-static and matching compute the vectors of the hits' tokens, and add a score of these vectors to the
    /// score of the search. They work only for utterances.
    ///
    /// exact sorts the top hits by their cosines. To find hits that the graph missed, use the flag --exact.
    ///
    /// selector:MODEL sorts them by the score of a selector, which reads the query, the turns before it and the hit
    /// together. MODEL is the folder of a run of `turnwise train selector`, or a cross-encoder of sentence-transformers.
    ///
    /// [possible values: exact, maxsim, maxsim-static, matching, selector:MODEL]
    #[arg(long, value_name = "METHOD", value_parser = parse_value::<RerankChoice>)]
    pub(crate) rerank: Option<RerankChoice>,
    /// Number of top hits to rerank
    ///
    /// The hits after them keep their order.
    #[arg(long, default_value_t = 50, value_name = "N", requires = "rerank")]
    pub(crate) rerank_top: usize,
    /// Weight of the score that --rerank adds to the score of the search; not used by exact and selector
    #[arg(long, default_value_t = 0.5, value_name = "WEIGHT", requires = "rerank")]
    pub(crate) rerank_weight: f32,
}

const SEARCH_USAGE: &str = "\
turnwise search [OPTIONS] <QUERY>
       turnwise search [OPTIONS] --turn <TEXT> [--turn <TEXT>]... [QUERY]
       turnwise search [OPTIONS] --context <FILE> [QUERY]
       turnwise search [OPTIONS] --queries <FILE>
       turnwise search tune [OPTIONS] <FILE>";

const SYNTAX: &str = "\
Filters (--filter), such as 'role=user and (turns>=6 or meta.channel=phone)':
  id                     ID of the dialogue
  corpus, source         name of the corpus (`ingest --source`)
  thread                 thread of the dialogue, the same as meta.thread
  title, language, domain
                         of the dialogue
  intent                 of the turn or of its dialogue: one of them must match
  role, speaker, text    of the turn
  time                   of the turn, else of its dialogue, such as 2026-01-31 or 2026-01-31T12:00:00Z
  turns                  number of turns of the dialogue
  turn                   number of the turn in its dialogue, from 1
  length                 length of the text in characters
  meta.KEY               other metadata of the turn or of its dialogue: one of them must match
Operators are = != < <= > >= and ~ (contains, ignoring case). Combine conditions with and, or, not and parentheses. \
With --of dialogues, a condition on a field of a turn is met if one of the turns meets it; several conditions can be met \
by different turns. Also with --of dialogues, meta.KEY is only the metadata of the dialogue; time is that of the dialogue, or of its first turn \
with a time if the dialogue has none; length is that of all turns together.

Query syntax (--syntax):
  +word                  the word is required
  -word                  the word is excluded
  \"several words\"        phrase
  \"some words\"~2         phrase with up to two other words in between
  word^2                 the word counts twice as much
  AND, OR, NOT, ( )      combine parts
  dialogue:ID            search in this dialogue only
  turn:[1 TO 3]          search in turns 1 to 3 only
Parts that cannot be parsed are ignored, with a warning.";

/// Reranking method, and the model of the method `selector`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RerankChoice {
    /// A method without a model of its own.
    Method(RerankMethod),
    /// Name or folder of a selector.
    Selector(String),
}

impl RerankChoice {
    fn method(&self) -> RerankMethod {
        match self {
            RerankChoice::Method(method) => *method,
            RerankChoice::Selector(_) => RerankMethod::Selector,
        }
    }

    /// Returns the name or folder of the selector; `None` for the other methods.
    pub(crate) fn selector(&self) -> Option<&str> {
        match self {
            RerankChoice::Method(_) => None,
            RerankChoice::Selector(model) => Some(model),
        }
    }
}

impl FromStr for RerankChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.split_once(':') {
            Some(("selector", model)) if !model.is_empty() => Ok(RerankChoice::Selector(model.to_owned())),
            _ if text == "selector" || text == "selector:" => Err(Error::input(
                "the method `selector` needs a model: selector:MODEL",
            )
            .with_hint("MODEL is the folder of a run of `turnwise train selector`, or a cross-encoder")),
            _ => RerankMethod::from_str(text, false).map(RerankChoice::Method).map_err(|_| {
                let names = RerankMethod::value_variants().iter().filter_map(|m| m.to_possible_value());
                let names: Vec<String> = names.map(|name| name.get_name().to_owned()).collect();
                Error::unknown_name("reranking method", text, names.iter().map(String::as_str))
            }),
        }
    }
}

impl fmt::Display for RerankChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RerankChoice::Method(method) => {
                let value = method.to_possible_value();
                f.write_str(value.as_ref().map_or("", |value| value.get_name()))
            }
            RerankChoice::Selector(model) => write!(f, "selector:{model}"),
        }
    }
}

impl RankingArgs {
    /// Returns the name or folder of the selector that reranks the hits.
    pub(crate) fn selector(&self) -> Option<&str> {
        self.rerank.as_ref().and_then(RerankChoice::selector)
    }

    /// Returns a search request with these options and no query.
    pub(crate) fn request(&self) -> SearchRequest {
        SearchRequest {
            candidates: self.candidates,
            fusion: self.fusion(),
            rerank: self.rerank.as_ref().map(|choice| Rerank {
                by: choice.method(),
                top: self.rerank_top,
                weight: self.rerank_weight,
            }),
            ..SearchRequest::default()
        }
    }

    /// Returns the settings for combining lexical and dense scores; `None` if no option sets any of them. Settings that
    /// are not given have the built-in defaults, not the saved values.
    fn fusion(&self) -> Option<FusionOptions> {
        let options = FusionOptions {
            method: self.fusion,
            k: self.rrf_k,
            dense: self.dense_weight,
            bm25: self.bm25_weight,
            speaker: self.speaker_weight,
            date: self.date_weight,
        };
        Some(options).filter(|options| *options != FusionOptions::default())
    }
}

impl QueryArgs {
    /// Returns a search request with these options and no query.
    pub(crate) fn request(&self) -> SearchRequest {
        SearchRequest {
            mode: self.mode,
            k: self.k,
            offset: self.offset,
            exact: self.exact,
            filter: self.filter.clone(),
            thread: self.thread.clone(),
            group: self.group,
            window: self.window,
            min_score: self.min_score,
            min_percentile: self.min_percentile,
            explain: self.explain,
            ..self.ranking.request()
        }
    }
}

fn analyzer_help() -> String {
    format!(
        "ANALYZER is {}.\n\n`auto` detects the main language of the texts, and selects mixed-1 with stemming in this \
         language. Without a clear main language, it selects mixed-1.",
        Analyzer::names()
    )
}

#[derive(Debug, Args)]
#[command(after_help = analyzer_help())]
pub(crate) struct AnalyzeArgs {
    /// Text to split into tokens; `-` is standard input
    pub(crate) text: String,
    /// Analyzer, such as mixed-1+stem-en; `auto` detects the language [default: that of the index]
    ///
    /// Without an index (-i), the default is mixed-1.
    #[arg(long, value_name = "ANALYZER", value_parser = parse_value::<AnalyzerChoice>)]
    pub(crate) analyzer: Option<AnalyzerChoice>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IndexCommand {
    /// Update the lexical index and the vector graphs with new and changed dialogues
    ///
    /// Keeps what is up to date; rebuilds a lexical index or graph that is missing or damaged. Graphs need vectors: run
    /// `turnwise encode` first.
    Build(IndexBuildArgs),
    /// Erase deleted and replaced dialogues from disk
    ///
    /// This frees disk space; `index build` and `index rebuild` do not. Copies the other dialogues to new files, which
    /// needs space for a second copy. Searches continue meanwhile.
    Compact,
    /// Rebuild the lexical index and the vector graphs from scratch
    ///
    /// Unlike `index build`, discards the existing ones. Dialogues and vectors do not change, so nothing is encoded.
    Rebuild(IndexBuildArgs),
    /// Show the size and the settings of each part of an index, and which parts are out of date
    ///
    /// `turnwise stats` shows statistics of the dialogues.
    Info,
}

#[derive(Debug, Args)]
#[command(after_help = analyzer_help())]
pub(crate) struct IndexBuildArgs {
    /// Implementation that builds the vector graphs
    #[arg(long, value_enum, value_name = "BUILDER", default_value = "native")]
    pub(crate) graph: Builder,
    /// Analyzer, such as mixed-1+stem-en; `auto` detects the language [default: keep the current analyzer]
    ///
    /// A different analyzer rebuilds the lexical index. The language of a new index is detected, unless this option
    /// gives its analyzer.
    #[arg(long, value_name = "ANALYZER", value_parser = parse_value::<AnalyzerChoice>)]
    pub(crate) analyzer: Option<AnalyzerChoice>,
}
