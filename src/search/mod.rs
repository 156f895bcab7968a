//! Searching: a request becomes a query, the query candidates by meaning and by words, the candidates one list, and the
//! best of it hits.
//!
//! ```no_run
//! use turnwise::search::{Mode, SearchRequest, Searcher};
//!
//! # fn main() -> turnwise::Result<()> {
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

mod batch;
pub mod clusters;
pub mod duplicates;
mod explain;
mod facets;
mod filtered;
mod find;
mod fuse;
mod hits;
pub mod late;
mod query;
mod request;
mod rerank;
mod respond;
mod response;
mod statistics;
#[cfg(test)]
mod tests;
mod tune;
mod tuning;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

pub use explain::{Explanation, Fused};
pub use facets::{Facet, FacetValue, Facets, USUAL};
pub use fuse::{HALF, Place};
pub use request::{By, Fusion, Group, Method, Mode, Of, Rerank, SearchRequest};
pub use respond::{Replies, Reply, RespondRequest, Said};
pub use response::{Candidates, Effective, Hit, Response, SCHEMA, Timings, Weighted};
pub use statistics::statistics;
pub use tune::{Labelled, Quality, Tried, Tuned};
pub use tuning::Tuning;

use filtered::Filtered;

use crate::{
    encoder::Encoder,
    error::{Error, Result},
    index::{
        dense::DenseReader,
        lexical::Lexical,
        vectors::{Kind, VectorReader},
    },
    store::Snapshot,
};

/// An index as of one moment, ready to be searched by any number of threads.
pub struct Searcher {
    root: PathBuf,
    snapshot: Snapshot,
    /// Why there is none is told where one is needed.
    lexical: Result<Lexical>,
    dense: Option<DenseReader>,
    encoder: Option<Arc<dyn Encoder>>,
    tuning: Option<Tuning>,
    /// What was worked out for filters, the last first.
    filters: Mutex<Vec<Arc<Filtered>>>,
}

impl Searcher {
    /// Opens an index.
    pub fn open(root: impl AsRef<Path>) -> Result<Self> {
        let root = root.as_ref();
        Searcher::over(root, Snapshot::open(root)?)
    }

    /// Opens what a snapshot of an index sees.
    pub fn over(root: &Path, snapshot: Snapshot) -> Result<Self> {
        let dense = DenseReader::open(root, &snapshot)?;
        Ok(Searcher {
            root: root.to_owned(),
            lexical: Lexical::open_at(root, &snapshot),
            dense,
            snapshot,
            encoder: None,
            tuning: Tuning::read(root)?,
            filters: Mutex::default(),
        })
    }

    /// With the encoder that made the index's vectors; another is refused.
    pub fn with_encoder(mut self, encoder: Arc<dyn Encoder>) -> Result<Self> {
        let recipe = self.dense()?.vectors().recipe();
        if encoder.fingerprint() != recipe.fingerprint {
            return Err(Error::Input {
                message: format!(
                    "the vectors in {} were made by another encoder: {} was {} then and is {} now",
                    self.root.display(),
                    recipe.model,
                    recipe.fingerprint,
                    encoder.fingerprint()
                ),
                hint: Some(format!(
                    "`turnwise encode -i {} --replace` makes them anew with what is there now",
                    self.root.display()
                )),
            });
        }
        self.encoder = Some(encoder);
        Ok(self)
    }

    /// The records that are seen.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The vectors, if there are any.
    pub fn vectors(&self) -> Option<&DenseReader> {
        self.dense.as_ref()
    }

    fn dense(&self) -> Result<&DenseReader> {
        self.dense.as_ref().ok_or_else(|| VectorReader::none_yet(&self.root))
    }

    fn lexical(&self) -> Result<&Lexical> {
        match &self.lexical {
            Ok(lexical) => Ok(lexical),
            // Opened once more, for an error of one's own.
            Err(_) => Lexical::open_at(&self.root, &self.snapshot).and_then(|_| {
                Err(Error::Unavailable {
                    message: format!("the lexical index of {} came just now", self.root.display()),
                    hint: Some("ask again".to_owned()),
                })
            }),
        }
    }

    fn encoder(&self) -> Result<&dyn Encoder> {
        self.encoder.as_deref().ok_or_else(|| Error::Input {
            message: "a search by meaning needs the encoder that made the vectors".to_owned(),
            hint: Some("open it and give it to the searcher, or search by words".to_owned()),
        })
    }

    /// By what a request is answered: by both where both are there, unless it says otherwise.
    pub fn mode(&self, request: &SearchRequest) -> Result<Mode> {
        if let Some(mode) = request.mode {
            return Ok(mode);
        }
        if request.syntax {
            return Ok(Mode::Bm25);
        }
        let kind = query::kind_of(request, &self.snapshot)?;
        let wants_vectors = request.exact
            || request.rerank.is_some()
            || request.min_percentile.is_some()
            || !request.context.is_empty();
        let any = self.dense.as_ref().is_some_and(|dense| dense.vectors().rows(kind) > 0);
        match (any || wants_vectors, &self.lexical) {
            (false, _) => Ok(Mode::Bm25),
            (true, Ok(_)) => Ok(Mode::Hybrid),
            // That words are not there yet is told with the answer; that they are lost is no answer.
            (true, Err(Error::Input { .. } | Error::Unavailable { .. })) => Ok(Mode::Dense),
            (true, Err(_)) => self.lexical().map(|_| Mode::Hybrid),
        }
    }

    /// What cannot be found yet, and what takes long, in words.
    fn warnings(&self, request: &SearchRequest, mode: Mode, kind: Kind) -> Vec<String> {
        let mut warnings = Vec::new();
        let root = self.root.display();
        if request.mode.is_none()
            && mode == Mode::Dense
            && let Err(e) = &self.lexical
        {
            warnings.push(format!(
                "nothing is looked for by its words: {e}; `turnwise index build -i {root}` changes that"
            ));
        }
        if mode != Mode::Dense
            && let Ok(lexical) = &self.lexical
        {
            if !lexical.is_current(&self.snapshot) {
                warnings.push(format!(
                    "the search index is behind the records; `turnwise index build -i {root}` brings it up to date"
                ));
            } else if lexical.tail() > LONG_LEXICAL_TAIL {
                warnings.push(format!(
                    "{} utterances had to be taken into memory before they could be searched by words; `turnwise index build \
                     -i {root}` takes them in once for all",
                    lexical.tail()
                ));
            }
        }
        if mode != Mode::Bm25
            && let Some(dense) = &self.dense
        {
            let counted = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
            let without = dense.without(kind);
            if without > 0 {
                warnings.push(format!(
                    "{} cannot be found by meaning yet; `turnwise encode -i {root}` and then `turnwise index build -i {root}` \
                     change that",
                    counted(without, kind.name().trim_end_matches('s'))
                ));
            }
            if dense.tail() > LONG_TAIL {
                warnings.push(format!(
                    "{} have to be looked at one by one; `turnwise index build -i {root}` makes that faster",
                    counted(dense.tail() as u64, "dialogue")
                ));
            }
        }
        warnings
    }
}

/// So many utterances are taken into memory without it being worth a word.
const LONG_LEXICAL_TAIL: u64 = 50_000;
/// So many dialogues are looked at one by one without it being worth a word.
const LONG_TAIL: usize = 10_000;
