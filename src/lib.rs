//! A search engine for conversations.
//!
//! turnwise reads dialogue corpora in many formats, stores them in a crash-safe index, and finds dialogues and single
//! turns by keywords (BM25) and by meaning (vectors).
//!
//! [`Index`] is the main type: it adds dialogues, encodes them, and searches. The modules are:
//!
//! - [`corpus`]: dialogues, and reading and writing them in many formats
//! - [`encoder`]: models that encode texts as vectors
//! - [`search`]: search requests, hits, topics and near-duplicates
//! - [`train`]: training of encoders without labels
//! - [`evaluate`]: evaluation of rankings
//! - `serve` (feature `serve`): the HTTP server
//!
//! The folder `examples/` of the repository contains small example programs.
//!
//! ```
//! use turnwise::{Index, search::SearchRequest};
//!
//! # fn main() -> turnwise::Result<()> {
//! # let folder = std::env::temp_dir().join(format!("turnwise-lib-doc-{}", std::process::id()));
//! let index = Index::open_or_create(&folder)?;
//! index.add(turnwise::samples::dialogues()?)?;
//!
//! let request = SearchRequest { query: "the parcel never came".into(), k: 3, ..SearchRequest::default() };
//! for hit in index.searcher()?.search(&request)?.hits {
//!     println!("{:.2} {} {}", hit.score, hit.id, hit.turn.text);
//! }
//! # std::fs::remove_dir_all(&folder).ok();
//! # Ok(())
//! # }
//! ```
//!
//! [`train::run()`] trains an encoder on dialogues without labels. It writes the model to the folder of the run:
//!
//! ```no_run
//! use turnwise::train::{self, ObjectiveName, Recipe, RunOptions};
//!
//! # fn main() -> turnwise::Result<()> {
//! let (model, corpus) = ("models/all-MiniLM-L6-v2".to_owned(), vec!["chats/".into()]);
//! let recipe = Recipe::new(ObjectiveName::Responses, model, corpus);
//! // `()` ignores progress and messages; implement `train::RunObserver` to receive them.
//! let (outcome, _) = train::run(recipe, &RunOptions::new("runs/chats"), &())?;
//! println!("the model of step {} is in runs/chats/model", outcome.kept);
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
mod facade;
pub mod samples;

pub use facade::{Added, Index};
pub use turnwise_core::{
    Error, Result,
    ids::{DialogueId, TurnNo, UtteranceId},
};

/// Dialogues, and reading and writing them in many formats.
///
/// ```
/// use turnwise::corpus::Reader;
///
/// # fn main() -> turnwise::Result<()> {
/// # let file = std::env::temp_dir().join(format!("turnwise-corpus-doc-{}.csv", std::process::id()));
/// # std::fs::write(&file, "id,speaker,text\n1,ann,my card is gone\n1,bo,I am blocking it\n").ok();
/// let mut turns = 0;
/// let problems = Reader::default().each_dialogue(&[file.clone()], &mut |_| Ok(()), &mut |dialogue| {
///     turns += dialogue.turns.len();
///     Ok(())
/// })?;
/// assert_eq!((turns, problems.rejected), (2, 0));
/// # std::fs::remove_file(&file).ok();
/// # Ok(())
/// # }
/// ```
pub mod corpus {
    pub use turnwise_core::error::Reject;
    pub use turnwise_corpus::{
        Dialogue, Metadata, Role, Time, Turn,
        filter::Filter,
        formats::{Format, ReadOptions, all as formats, by_name as format},
        reader::{Problems, ReadEvent, Reader},
        writers::{ExportFormat, Writer},
    };
    pub use turnwise_store::ingest::{IngestOptions, Ingested, Tally};
}

/// Models that encode texts as vectors.
///
/// [`open`](encoder::open) opens a model folder in the layout of sentence-transformers.
/// [`fit_tfidf`](encoder::fit_tfidf) fits a TF-IDF encoder on your own texts, without a neural network.
pub mod encoder {
    pub use turnwise_encoder::{
        DeviceChoice, DialogueMode, DialogueOptions, DialoguePooling, EncodeStats, Encoded, Encoder,
        Fingerprint, Precision, TextOptions, TokenVectors, Vectors,
        open::open,
        statics::{TfidfSettings, TfidfSvd, fit_tfidf},
        transformer::{Settings, Tokens},
    };
    pub use turnwise_index::{
        dense::Built,
        vectors::{EncodeProgress, Recipe},
    };
}

/// Search requests, hits, topics and near-duplicates.
pub mod search {
    pub use turnwise_search::{
        Candidates, EffectiveQuery, Explanation, Facet, FacetValue, Facets, Fusion, FusionExplanation,
        FusionMethod, Group, Hit, HitKind, Mode, RankedScore, Replies, Reply, ReplySource, Rerank,
        RerankMethod, RespondRequest, Response, SearchRequest, Searcher, Timings, Tuning, WeightedText,
        clusters::{Cluster, ClusterOptions, Clusters},
        duplicates::{DuplicateOptions, Duplicates},
    };
}

/// Training of encoders without labels.
pub mod train {
    pub use turnwise_train::{
        Outcome, RunObserver, RunOptions,
        recipe::{DevTask, ObjectiveName, Recipe},
        run,
        run::{FinishedRun, Gain, Progress, Stage},
        sweep,
    };
}

/// Evaluation of rankings with the measures of trec_eval.
///
/// ```
/// use turnwise::evaluate::Ranking;
///
/// // The flags say whether the document at each rank is relevant, best rank first.
/// let ranking = Ranking::of_flags([true, false, true]);
/// assert_eq!(ranking.reciprocal_rank(), 1.0);
/// ```
pub mod evaluate {
    pub use turnwise_eval::{
        significance::{bootstrap, randomization_test},
        trec::{
            Evaluation, Measure, Options, Qrels, Run, evaluate, parse_measures, read_qrels, read_run,
            write_qrels, write_run,
        },
    };
    pub use turnwise_measures::{
        correlation::{kendall, pearson, spearman},
        ranking::Ranking,
    };
}

/// The HTTP server.
#[cfg(feature = "serve")]
pub mod serve {
    pub use turnwise_index::{embedded::Folder, location::Location};
    pub use turnwise_serve::{App, BoundServer, Keys, Limits, Options, ServerHooks, Tls, bind};
}

/// The Rust example of the README, compiled and run as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
