//! Arguments of `turnwise search`, `similar`, `analyze` and `index`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::parse_value;
use turnwise_corpus::filter::Filter;
use turnwise_index::dense::Builder;
use turnwise_search::{By, Fusion, Group, Method, Mode, Of, Rerank, SearchRequest};
use turnwise_text::Analyzer;

#[derive(Debug, Args)]
#[command(after_help = SYNTAX, subcommand_negates_reqs = true, disable_help_subcommand = true)]
pub(crate) struct SearchArgs {
    #[command(subcommand)]
    pub(crate) command: Option<SearchCommand>,
    /// Query: keywords, or a sentence with a similar meaning
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
    /// Without QUERY, the last turn is the query.
    ///
    /// Example: turnwise search -i chats --turn "I sent it back" "where is my refund"
    #[arg(long = "turn", value_name = "TEXT")]
    pub(crate) turns: Vec<String>,
    /// Weight of a context turn relative to the turn after it
    ///
    /// With the default of 0.5, each turn counts half as much as the next one. The weights apply to dense search.
    #[arg(long, value_name = "0..1", default_value_t = 0.5)]
    pub(crate) decay: f32,
    /// What to search for
    #[arg(long, value_enum, value_name = "UNIT", default_value = "utterances")]
    pub(crate) of: Of,
    /// Parse the query as an expression (see the syntax below)
    #[arg(long)]
    pub(crate) syntax: bool,
    /// File of queries to answer, one per line
    ///
    /// A line is a query or a request in JSON. The command-line options apply to every line that does not set its
    /// own. The results are JSON lines.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["query", "context", "turns"])]
    pub(crate) queries: Option<PathBuf>,
    /// With --queries: print a TREC run with this name instead of JSON lines
    #[arg(long, value_name = "NAME", requires = "queries")]
    pub(crate) run: Option<String>,
    #[command(flatten)]
    pub(crate) how: QueryArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SearchCommand {
    /// Tune the fusion weights on queries with known relevant results
    ///
    /// To search for the word itself, use `turnwise search -- tune`.
    Tune(TuneArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    /// JSON lines like {"query": "where is my refund", "relevant": ["billing-001#3"]}
    #[arg(value_name = "FILE", required_unless_present = "forget")]
    pub(crate) labelled: Option<PathBuf>,
    /// Save the best weights as the default of the index
    ///
    /// They are saved only if they also beat the current default on queries that were not used to choose them.
    #[arg(long)]
    pub(crate) save: bool,
    /// Remove the weights that --save has stored
    #[arg(long, conflicts_with_all = ["save", "labelled"])]
    pub(crate) forget: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SimilarArgs {
    /// ID of an utterance (billing-001#3) or of a dialogue (billing-001)
    #[arg(required_unless_present = "dialogue", conflicts_with = "dialogue")]
    pub(crate) id: Option<String>,
    /// File with one dialogue, in any format that `ingest` reads; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) dialogue: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) how: QueryArgs,
}

/// Options common to all kinds of search.
#[derive(Debug, Args)]
pub(crate) struct QueryArgs {
    /// Search mode [default: hybrid when the index has vectors, else bm25]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) mode: Option<Mode>,
    /// Maximum number of hits
    #[arg(short, default_value_t = 10, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub(crate) k: usize,
    /// Number of hits to skip
    #[arg(long, default_value_t = 0, value_name = "N", allow_negative_numbers = true)]
    pub(crate) offset: usize,
    /// Filter hits, such as 'role=user and domain=billing and time>=2026-01-01'
    ///
    /// `turnwise search --help` describes the syntax at its end.
    #[arg(long, value_name = "EXPRESSION", value_parser = parse_value::<Filter>)]
    pub(crate) filter: Option<Filter>,
    /// Group the hits, so that each dialogue appears at most once
    #[arg(long, value_enum, value_name = "UNIT")]
    pub(crate) group: Option<Group>,
    /// Number of turns to show before and after each hit
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) window: usize,
    /// Minimum score of a hit
    #[arg(long, value_name = "SCORE", allow_negative_numbers = true)]
    pub(crate) min_score: Option<f32>,
    /// Minimum similarity percentile of a hit, from 0 to 100
    ///
    /// The percentile is the share of random pairs in the corpus that are less similar to each other than the hit
    /// is to the query. Needs vectors.
    #[arg(long, value_name = "PERCENT")]
    pub(crate) min_percentile: Option<f64>,
    /// Score all vectors instead of using the approximate graph
    ///
    /// Slower, but never misses a nearest neighbor.
    #[arg(long)]
    pub(crate) exact: bool,
    /// Show how the score of each hit was computed
    #[arg(long)]
    pub(crate) explain: bool,
    /// How to combine the dense and BM25 scores [default: weighted]
    ///
    /// Weights saved with `search tune --save` change the default. They are ignored if this option, --rrf-k,
    /// --dense-weight or --bm25-weight is given.
    #[arg(long, value_enum, value_name = "METHOD", help_heading = "Fusion and ranking")]
    pub(crate) fusion: Option<Method>,
    /// Constant k of reciprocal rank fusion [default: 60]
    ///
    /// The score is the sum of weight / (k + rank) over both lists. A larger k reduces the advantage of the top
    /// ranks.
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Fusion and ranking")]
    pub(crate) rrf_k: Option<f32>,
    /// Weight of the dense results [default: 1]
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, help_heading = "Fusion and ranking")]
    pub(crate) dense_weight: Option<f32>,
    /// Weight of the BM25 results [default: 0.3]
    ///
    /// Use a higher value, such as 1, for queries with names and numbers.
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, help_heading = "Fusion and ranking")]
    pub(crate) bm25_weight: Option<f32>,
    /// Minimum number of candidates from each list
    #[arg(long, default_value_t = 100, value_name = "N", help_heading = "Fusion and ranking")]
    pub(crate) candidates: usize,
    /// Rerank the top hits
    #[arg(long, value_enum, value_name = "METHOD", help_heading = "Fusion and ranking")]
    pub(crate) rerank: Option<By>,
    /// Number of top hits to rerank
    #[arg(
        long,
        default_value_t = 50,
        value_name = "N",
        requires = "rerank",
        help_heading = "Fusion and ranking"
    )]
    pub(crate) rerank_top: usize,
}

const SYNTAX: &str = "\
A filter compares fields (id, corpus, title, language, domain, intent, role, speaker, text, time, turns, turn, length, \
meta.KEY) with = != < <= > >= or ~ (contains), joined by and, or, not and parentheses.

With --syntax: +word is required, -word is excluded, \"several words\" is a phrase, \"some words\"~2 allows up to two \
words in between, word^2 doubles the weight, AND, OR, NOT and parentheses combine, dialogue:ID and turn:[1 TO 3] limit the \
search. Parts that cannot be parsed are ignored with a warning.";

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("must be a positive integer".to_owned()),
        Ok(n) => Ok(n),
    }
}

impl QueryArgs {
    /// Fusion settings, if any of them was given. The others have the built-in defaults, not those saved by tuning.
    fn fusion(&self) -> Option<Fusion> {
        let numbers = [self.rrf_k, self.dense_weight, self.bm25_weight];
        if self.fusion.is_none() && numbers == [None; 3] {
            return None;
        }
        let default = Fusion::default();
        Some(Fusion {
            method: self.fusion.unwrap_or(default.method),
            k: self.rrf_k.unwrap_or(default.k),
            dense: self.dense_weight.unwrap_or(default.dense),
            bm25: self.bm25_weight.unwrap_or(default.bm25),
        })
    }

    /// Search request with these options and no query.
    pub(crate) fn request(&self) -> SearchRequest {
        SearchRequest {
            mode: self.mode,
            k: self.k,
            offset: self.offset,
            exact: self.exact,
            filter: self.filter.clone(),
            group: self.group,
            window: self.window,
            min_score: self.min_score,
            min_percentile: self.min_percentile,
            candidates: self.candidates,
            fusion: self.fusion(),
            rerank: self.rerank.map(|by| Rerank { by, top: self.rerank_top }),
            explain: self.explain,
            ..SearchRequest::default()
        }
    }
}

fn analyzer_help() -> String {
    format!("ANALYZER is {}.", Analyzer::names())
}

#[derive(Debug, Args)]
#[command(after_help = analyzer_help())]
pub(crate) struct AnalyzeArgs {
    /// Text to analyze; `-` is standard input
    pub(crate) text: String,
    /// Analyzer, such as mixed-1 or mixed-1+stem-en [default: the analyzer of the index]
    #[arg(long, value_name = "ANALYZER", value_parser = parse_value::<Analyzer>)]
    pub(crate) analyzer: Option<Analyzer>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IndexCommand {
    /// Update the search indexes with new and changed records
    ///
    /// Builds a search index that is missing or damaged from scratch.
    Build(IndexBuildArgs),
    /// Erase deleted and replaced records from disk
    Compact,
    /// Rebuild the search indexes from scratch
    Rebuild(IndexBuildArgs),
    /// Show the parts of an index: size, settings, and parts that are out of date
    Info,
}

#[derive(Debug, Args)]
#[command(after_help = analyzer_help())]
pub(crate) struct IndexBuildArgs {
    /// Graph implementation, if the index has vectors
    #[arg(long, value_enum, value_name = "BUILDER", default_value = "native")]
    pub(crate) graph: Builder,
    /// Analyzer, such as mixed-1+stem-en [default: keep the current analyzer]
    #[arg(long, value_name = "ANALYZER", value_parser = parse_value::<Analyzer>)]
    pub(crate) analyzer: Option<Analyzer>,
}
