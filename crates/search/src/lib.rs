//! Search over an index.
//!
//! A request is converted to a query. Dense (vector) search and lexical (BM25) search each return a list of
//! candidates. The lists are fused, and the best candidates become the hits.
//!
//! ```no_run
//! use turnwise_search::{Mode, SearchRequest, Searcher};
//!
//! # fn main() -> turnwise_core::Result<()> {
//! let searcher = Searcher::open("indexes/chats")?;
//! let request = SearchRequest {
//!     query: "my parcel never came".into(),
//!     mode: Some(Mode::Bm25),
//!     filter: Some("role=user and time>=2026-01-01".parse()?),
//!     ..SearchRequest::default()
//! };
//! for hit in searcher.search(&request)?.hits {
//!     println!("{:.2} {} {}", hit.score, hit.id, hit.turn.text);
//! }
//! # Ok(())
//! # }
//! ```

pub mod clusters;
mod context;
mod conversation;
mod coverage;
pub mod duplicates;
mod earlier;
mod explanation;
mod facets;
mod find;
mod fuse;
mod hits;
mod narrow;
mod query;
mod reliability;
mod request;
mod rerank;
mod respond;
mod response;
mod scan;
mod speakers;
mod stretch;
#[cfg(test)]
mod tests;
mod threads;
mod titles;
mod tokens;
mod tune;

use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

pub use context::{ContextTerm, DateMatch, EarlierScore, TurnCosine};
pub use coverage::{Coverage, WordShare};
pub use explanation::{ContextExplanation, Explanation, FusionExplanation};
pub use facets::{DEFAULT_FACETS, Facet, FacetValue, Facets};
pub use fuse::{BM25_HALF_SCORE, EARLIER_HALF_SCORE, RankedScore};
pub use request::{
    Fusion, FusionMethod, FusionOptions, Group, HitKind, Mode, Rerank, RerankMethod, SearchRequest,
};
pub use respond::{Replies, Reply, ReplySource, RespondRequest, rank_replies};
pub use response::{Candidates, EffectiveQuery, Hit, Response, SCHEMA, Timings, WeightedText};
pub use scan::statistics;
pub use stretch::Stretch;
pub use tokens::{matching_guided, maxsim};
pub use tune::{LabeledQuery, Quality, Tried, Tuned, Tuning};

use turnwise_core::{Error, Result};
use turnwise_encoder::{Encoder, selector::Selector};
use turnwise_index::{
    dense::DenseReader,
    embedded::Embedded,
    engine::{Engine, View},
    location::Location,
    vectors::Recipe,
};
use turnwise_store::Snapshot;

/// Searcher over a snapshot of an index, or over a remote engine. Any number of threads can share a searcher.
pub struct Searcher {
    engine: Box<dyn Engine>,
    encoder: Option<Arc<dyn Encoder>>,
    selector: Option<Arc<Selector>>,
    tuning: Option<Tuning>,
    reliability: reliability::Measured,
}

impl Searcher {
    /// Opens an index folder. Returns an error if the folder is not an index, or if a file that is needed for opening
    /// is damaged.
    pub fn open(root: impl AsRef<Path>) -> Result<Self> {
        let root = root.as_ref();
        Searcher::over(root, Snapshot::open(root)?)
    }

    /// Creates a searcher for a snapshot of the index in the folder `root`. Uses the tuned defaults of this index.
    pub fn over(root: &Path, snapshot: Snapshot) -> Result<Self> {
        let tuning = Tuning::read(root)?;
        Ok(Searcher { tuning, ..Searcher::of(Box::new(Embedded::over(root, snapshot)?)) })
    }

    /// Opens the index at a location: a folder, or an index on a server.
    pub fn at(location: &dyn Location) -> Result<Self> {
        let tuning = location.folder().map_or(Ok(None), Tuning::read)?;
        Ok(Searcher { tuning, ..Searcher::of(location.open()?) })
    }

    /// Creates a searcher for an engine, with the built-in search defaults.
    pub fn of(engine: Box<dyn Engine>) -> Self {
        Searcher { engine, encoder: None, selector: None, tuning: None, reliability: OnceLock::new() }
    }

    /// Sets the encoder for queries. Returns an error if a different encoder made the vectors of the index, or if the
    /// index has no vectors.
    pub fn with_encoder(mut self, encoder: Arc<dyn Encoder>) -> Result<Self> {
        let recipe = self.recipe()?;
        if encoder.fingerprint() != recipe.fingerprint {
            let message = format!(
                "the vectors in {} were made by a different encoder: the fingerprint of {} was {} and is now {}",
                self.engine.place(),
                recipe.model,
                recipe.fingerprint,
                encoder.fingerprint()
            );
            return Err(Error::input(message).with_hint(self.engine.reencode_hint()));
        }
        self.encoder = Some(encoder);
        Ok(self)
    }

    /// Sets the selector, which reranks hits and selects replies.
    pub fn with_selector(self, selector: Arc<Selector>) -> Self {
        Searcher { selector: Some(selector), ..self }
    }

    fn selector(&self) -> Result<&Selector> {
        self.selector.as_deref().ok_or_else(|| {
            Error::input("there is no selector that could score the texts").with_hint(
                "name one: --rerank selector:DIR on the command line, or `turnwise serve --selector DIR`; `turnwise train \
                 selector` creates one",
            )
        })
    }

    /// Returns the engine.
    pub fn engine(&self) -> &dyn Engine {
        self.engine.as_ref()
    }

    /// Returns the local index, or an error if the engine is remote. The error message names `what` as the unsupported
    /// operation.
    pub fn embedded(&self, what: &str) -> Result<&Embedded> {
        self.engine.local(what)
    }

    /// Returns the reader of the vectors. Returns `None` if the index has no vectors or the engine is remote.
    pub fn vectors(&self) -> Option<&DenseReader> {
        self.engine.local("direct access to vectors").ok().and_then(Embedded::dense)
    }

    fn recipe(&self) -> Result<&Recipe> {
        self.engine.recipe().ok_or_else(|| self.engine.no_vectors_error())
    }

    fn encoder(&self) -> Result<&dyn Encoder> {
        self.encoder.as_deref().ok_or_else(|| {
            Error::input("a dense search needs the encoder that made the vectors")
                .with_hint("open the encoder and pass it to the searcher, or use the bm25 mode")
        })
    }

    /// Returns the search mode for a request: the requested mode, if there is one. Otherwise, a query expression is
    /// searched lexically. For any other request, the mode is hybrid if the index has both vectors and a lexical index.
    /// If the index has only vectors, the mode is dense. If it has only a lexical index, the mode is bm25.
    pub fn mode(&self, request: &SearchRequest) -> Result<Mode> {
        self.mode_in(self.engine.view().as_ref(), request)
    }

    fn mode_in(&self, view: &dyn View, request: &SearchRequest) -> Result<Mode> {
        if let Some(mode) = request.mode {
            return Ok(mode);
        }
        if request.syntax {
            return Ok(Mode::Bm25);
        }
        let wants_vectors = request.exact
            || request.rerank.is_some()
            || request.min_percentile.is_some()
            || !request.context.is_empty();
        if !wants_vectors && self.engine.rows(query::kind_of(request, view)?) == 0 {
            return Ok(Mode::Bm25);
        }
        match self.engine.check_lexical() {
            Ok(()) => Ok(Mode::Hybrid),
            // If the lexical index is not built yet, search only the vectors. The response contains a warning about
            // this. If the lexical index is damaged, return the error.
            Err(Error::Input { .. } | Error::Unavailable { .. }) => Ok(Mode::Dense),
            Err(e) => Err(e),
        }
    }
}
