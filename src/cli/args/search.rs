//! Searching, and what it searches in.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::parsed;
use turnwise_corpus::filter::Filter;
use turnwise_index::dense::Builder;
use turnwise_search::{By, Fusion, Group, Method, Mode, Of, Rerank, SearchRequest};
use turnwise_text::Analyzer;

#[derive(Debug, Args)]
#[command(after_help = SYNTAX, subcommand_negates_reqs = true, disable_help_subcommand = true)]
pub(crate) struct SearchArgs {
    #[command(subcommand)]
    pub(crate) command: Option<SearchCommand>,
    /// What to look for: words, or a sentence that is like what you mean
    #[arg(required_unless_present_any = ["context", "turns", "queries"])]
    pub(crate) query: Option<String>,
    /// What was said before the query: a file with one dialogue, or with a turn a line (- is standard input); without
    /// QUERY its last turn is the query
    #[arg(long, value_name = "FILE", conflicts_with = "turns")]
    pub(crate) context: Option<PathBuf>,
    /// A turn that was said before the query, in order; without QUERY the last one is the query
    #[arg(long = "turn", value_name = "TEXT")]
    pub(crate) turns: Vec<String>,
    /// How much less each turn of the context counts than the one after it
    #[arg(long, value_name = "0..1", default_value_t = 0.5)]
    pub(crate) decay: f32,
    /// What is found
    #[arg(long, value_enum, value_name = "WHAT", default_value = "utterances")]
    pub(crate) of: SearchOf,
    /// Read the query as an expression (below), not as words
    #[arg(long)]
    pub(crate) syntax: bool,
    /// Answer every line of a file: a query, or a request as JSON; the options given here are those of all
    #[arg(long, value_name = "FILE", conflicts_with_all = ["query", "context", "turns"])]
    pub(crate) queries: Option<PathBuf>,
    /// Print a TREC run under this name instead of JSON lines (with --queries)
    #[arg(long, value_name = "NAME", requires = "queries")]
    pub(crate) run: Option<String>,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SearchCommand {
    /// Find the weights that rank best what is known to be relevant (to look for the word, write `search -- tune`)
    Tune(TuneArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    /// A file of lines like {"query": "where is my refund", "relevant": ["billing-001#3"]}
    #[arg(required_unless_present = "forget")]
    pub(crate) labelled: Option<PathBuf>,
    /// Let searches of this index rank like the best of those tried, unless they say otherwise
    #[arg(long)]
    pub(crate) save: bool,
    /// Forget what --save has kept
    #[arg(long, conflicts_with_all = ["save", "labelled"])]
    pub(crate) forget: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SimilarArgs {
    /// The id of an utterance (billing-001#3) or of a dialogue (billing-001)
    #[arg(required_unless_present = "dialogue", conflicts_with = "dialogue")]
    pub(crate) id: Option<String>,
    /// A file with one dialogue, in any format that can be read (- is standard input)
    #[arg(long, value_name = "FILE")]
    pub(crate) dialogue: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// What all ways of searching have in common.
#[derive(Debug, Args)]
pub(crate) struct HowArgs {
    /// By what it is found; by both where there are vectors, if not given
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) mode: Option<SearchMode>,
    /// How many hits
    #[arg(short, default_value_t = 10, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub(crate) k: usize,
    /// Leave out so many hits before the first
    #[arg(long, default_value_t = 0, value_name = "N", allow_negative_numbers = true)]
    pub(crate) offset: usize,
    /// Only what fits, such as 'role=user and domain=billing and time>=2026-01-01'
    #[arg(long, value_name = "EXPRESSION", value_parser = parsed::<Filter>)]
    pub(crate) filter: Option<Filter>,
    /// At most one hit for each dialogue
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) group: Option<GroupBy>,
    /// Show so many turns before and after each hit
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) window: usize,
    /// Only hits with at least this score
    #[arg(long, value_name = "SCORE", allow_negative_numbers = true)]
    pub(crate) min_score: Option<f32>,
    /// Only hits that are nearer to the query than so many percent of random pairs are to each other
    #[arg(long, value_name = "PERCENT")]
    pub(crate) min_percentile: Option<f64>,
    /// Look at all vectors, whatever it takes
    #[arg(long)]
    pub(crate) exact: bool,
    /// Tell of each hit how it came to its place
    #[arg(long)]
    pub(crate) explain: bool,
    /// How the list by meaning and the list by words become one: weighted, if neither this nor the next three are given and
    /// `search tune --save` has kept nothing else
    #[arg(long, value_enum, value_name = "HOW", help_heading = "Fusion and ranking")]
    pub(crate) fusion: Option<FusionBy>,
    /// For reciprocal ranks: how little the first places stand out (60)
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Fusion and ranking")]
    pub(crate) rrf_k: Option<f32>,
    /// What the list by meaning weighs (1)
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, help_heading = "Fusion and ranking")]
    pub(crate) dense_weight: Option<f32>,
    /// What the list by words weighs (0.3)
    #[arg(long, value_name = "WEIGHT", allow_negative_numbers = true, help_heading = "Fusion and ranking")]
    pub(crate) bm25_weight: Option<f32>,
    /// How many of each list are looked at, at least
    #[arg(long, default_value_t = 100, value_name = "N", help_heading = "Fusion and ranking")]
    pub(crate) candidates: usize,
    /// Bring the best into another order
    #[arg(long, value_enum, value_name = "BY", help_heading = "Fusion and ranking")]
    pub(crate) rerank: Option<RerankBy>,
    /// How many of the best
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

With --syntax: +word must be there, -word must not, \"several words\" in this order, \"some words\"~2 with up to two \
between, word^2 counts twice, AND, OR, NOT and parentheses, dialogue:ID, turn:[1 TO 3]. What cannot be understood is \
left out with a warning. Without --syntax no sign has a meaning.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SearchMode {
    /// By both, fused
    Hybrid,
    /// By its meaning: the vectors nearest to its vector (`encode` makes them)
    Dense,
    /// By its words
    Bm25,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupBy {
    /// Each dialogue once, with its best turn
    Dialogue,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FusionBy {
    /// The cosine and the BM25 score, brought to 0…1, weighted and summed
    Weighted,
    /// Reciprocal ranks
    Rrf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RerankBy {
    /// The cosine of the vectors themselves
    Exact,
    /// For each token of the query the nearest one of the hit, in the mean
    Maxsim,
    /// DialogueCSE's matching-guided embedding: the hit as a response to the context and the query
    Matching,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("nothing would be found; 1 is the least".to_owned()),
        Ok(n) => Ok(n),
        Err(_) => Err("it is no number from 1 on".to_owned()),
    }
}

impl HowArgs {
    /// The fusion, if anything is said of it; of what is not said it has what suits most, whatever the index was tuned to.
    fn fusion(&self) -> Option<Fusion> {
        let numbers = [self.rrf_k, self.dense_weight, self.bm25_weight];
        if self.fusion.is_none() && numbers == [None; 3] {
            return None;
        }
        let unsaid = Fusion::default();
        Some(Fusion {
            method: match self.fusion {
                Some(FusionBy::Rrf) => Method::Rrf,
                Some(FusionBy::Weighted) => Method::Weighted,
                None => unsaid.method,
            },
            k: self.rrf_k.unwrap_or(unsaid.k),
            dense: self.dense_weight.unwrap_or(unsaid.dense),
            bm25: self.bm25_weight.unwrap_or(unsaid.bm25),
        })
    }

    /// The request for what these are the options of.
    pub(crate) fn request(&self) -> SearchRequest {
        SearchRequest {
            mode: self.mode.map(|mode| match mode {
                SearchMode::Hybrid => Mode::Hybrid,
                SearchMode::Dense => Mode::Dense,
                SearchMode::Bm25 => Mode::Bm25,
            }),
            k: self.k,
            offset: self.offset,
            exact: self.exact,
            filter: self.filter.clone(),
            group: self.group.map(|GroupBy::Dialogue| Group::Dialogue),
            window: self.window,
            min_score: self.min_score,
            min_percentile: self.min_percentile,
            candidates: self.candidates,
            fusion: self.fusion(),
            rerank: self.rerank.map(|by| Rerank {
                by: match by {
                    RerankBy::Exact => By::Exact,
                    RerankBy::Maxsim => By::Maxsim,
                    RerankBy::Matching => By::Matching,
                },
                top: self.rerank_top,
            }),
            explain: self.explain,
            ..SearchRequest::default()
        }
    }
}

impl From<SearchOf> for Of {
    fn from(of: SearchOf) -> Self {
        match of {
            SearchOf::Utterances => Of::Utterances,
            SearchOf::Dialogues => Of::Dialogues,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GraphBuilder {
    /// Ours
    Native,
    /// The crate hnsw_rs
    #[value(name = "hnsw_rs")]
    HnswRs,
}

impl From<GraphBuilder> for Builder {
    fn from(builder: GraphBuilder) -> Self {
        match builder {
            GraphBuilder::Native => Builder::Native,
            GraphBuilder::HnswRs => Builder::HnswRs,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SearchOf {
    /// Single turns
    Utterances,
    /// Dialogues as a whole, each with the turn that fits best
    Dialogues,
}

fn analyzers() -> String {
    format!("ANALYZER is {}.", Analyzer::names())
}

#[derive(Debug, Args)]
#[command(after_help = analyzers())]
pub(crate) struct AnalyzeArgs {
    /// The text; `-` is standard input
    pub(crate) text: String,
    /// The analyzer, such as mixed-1 or mixed-1+stem-en; that of the index if not given
    #[arg(long, value_name = "ANALYZER", value_parser = parsed::<Analyzer>)]
    pub(crate) analyzer: Option<Analyzer>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum IndexCommand {
    /// Take in what came since the last time, or build it anew if it is lost
    Build(IndexBuildArgs),
    /// Drop what was deleted or replaced from the bytes of the index
    Compact,
    /// Make the search indexes anew, whatever state they are in
    Rebuild(IndexBuildArgs),
    /// Show the parts of the index: their size, what made them, what is behind
    Info,
}

#[derive(Debug, Args)]
#[command(after_help = analyzers())]
pub(crate) struct IndexBuildArgs {
    /// What builds the graphs over the vectors, if there are vectors
    #[arg(long, value_enum, value_name = "BUILDER", default_value = "native")]
    pub(crate) graph: GraphBuilder,
    /// Build it with this analyzer, such as mixed-1+stem-en; it keeps the one it has if not given
    #[arg(long, value_name = "ANALYZER", value_parser = parsed::<Analyzer>)]
    pub(crate) analyzer: Option<Analyzer>,
}
