//! [`Index`]: the main type for programs that use turnwise as a library.

use std::path::{Path, PathBuf};

use turnwise_core::{
    Error, Result,
    ids::{DialogueId, UtteranceId},
};
use turnwise_corpus::{Dialogue, walk};
use turnwise_encoder::{Encoder, ahead::Options, transformer::Tokens};
use turnwise_index::{
    dense::{self, BuildOptions},
    lexical::Lexical,
    vectors::{EncodeProgress, EncodeTargets, Mode as VectorMode, Recipe, VectorReader, VectorWriter, fill},
};
use turnwise_search::{
    HitKind, Mode, Response, SearchRequest, Searcher,
    clusters::{ClusterOptions, Clusters, clusters},
};
use turnwise_store::{
    Prepared, PutOutcome, Snapshot, Store,
    ingest::{IngestControl, IngestOptions, Ingested, ingest},
};

/// Number of dialogues that are flushed to the disk together.
const BATCH: usize = 1_000;
/// Text that describes this process in the lock file of an index. If another process tries to write, its error shows
/// this text.
const WRITER: &str = "a program that uses turnwise as a library";
/// Number of texts that are encoded together.
const ENCODE_BATCH: usize = 4_096;

/// An index in a folder on this machine.
///
/// [`add`](Index::add) and [`ingest`](Index::ingest) write dialogues, [`encode`](Index::encode) computes their vectors,
/// and [`search`](Index::search) or a [`Searcher`] finds them. Data is on the disk when a method returns. Only one
/// process can write at a time, but any number can read.
///
/// ```
/// use turnwise::{DialogueId, Index, corpus::{Dialogue, Role}, search::SearchRequest};
///
/// # fn main() -> turnwise::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("turnwise-index-doc-{}", std::process::id()));
/// let index = Index::open_or_create(&folder)?;
/// let mut dialogue = Dialogue::new(DialogueId::new("call-17")?);
/// dialogue.push("Ann", Role::User, "my card is gone");
/// dialogue.push("Bo", Role::Agent, "I am blocking it now");
/// index.add([dialogue])?;
///
/// let request = SearchRequest { query: "lost card".into(), ..SearchRequest::default() };
/// let hits = index.search(&request)?.hits;
/// assert_eq!(hits[0].id, "call-17#1");
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Index {
    root: PathBuf,
}

/// Outcome of [`Index::add`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Added {
    /// Number of added dialogues: those with a new id.
    pub added: u64,
    /// Number of dialogues that replaced a stored dialogue with the same id and different content.
    pub replaced: u64,
    /// Number of dialogues that the index already contained with the same id and content.
    pub unchanged: u64,
}

impl Index {
    /// Opens an index.
    ///
    /// # Errors
    ///
    /// [`Error::NoIndex`] if the folder contains no index.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self> {
        let root = root.into();
        Snapshot::open(&root)?;
        Ok(Index { root })
    }

    /// Opens the index in a folder. If the folder contains no index, creates an empty one.
    pub fn open_or_create(root: impl Into<PathBuf>) -> Result<Self> {
        let root = root.into();
        Store::open_or_create(&root, WRITER)?.close()?;
        Ok(Index { root })
    }

    /// Returns the folder of the index.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Returns a snapshot: a read-only view of the stored dialogues. Later changes are not visible in it.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::open(&self.root)
    }

    /// Returns the dialogue with this id; `None` if the index does not contain it.
    pub fn get(&self, id: &DialogueId) -> Result<Option<Dialogue>> {
        self.snapshot()?.get(id)
    }

    /// Adds dialogues and makes them searchable by keywords. A dialogue replaces a stored dialogue with the same id.
    ///
    /// # Errors
    ///
    /// [`Error::Data`] for a dialogue without text, with too many turns, or with turn numbers that do not ascend. The
    /// dialogues before the invalid one are stored, but not yet searchable by keywords.
    pub fn add(&self, dialogues: impl IntoIterator<Item = Dialogue>) -> Result<Added> {
        let mut store = Store::open(&self.root, WRITER)?;
        let mut outcome = Added::default();
        let write = || -> Result<()> {
            for mut dialogue in dialogues {
                dialogue.check().map_err(|why| Error::data(format!("{}: {why}", dialogue.id)))?;
                match store.put(&Prepared::new(&dialogue)?)? {
                    PutOutcome::Added => outcome.added += 1,
                    PutOutcome::Replaced => outcome.replaced += 1,
                    PutOutcome::Unchanged => outcome.unchanged += 1,
                }
                if store.pending() >= BATCH {
                    store.commit(None)?;
                }
            }
            Ok(())
        };
        // Also commit after an error, to keep the dialogues before the invalid one.
        let written = write();
        let committed = store.commit(None);
        written.and(committed)?;
        store.close()?;
        self.index_keywords()?;
        Ok(outcome)
    }

    /// Reads files and folders in any known format, adds their dialogues, and makes them searchable by keywords.
    pub fn ingest(&self, paths: &[PathBuf], options: &IngestOptions) -> Result<Ingested> {
        let plan = walk::plan(paths, None)?;
        let mut store = Store::open(&self.root, WRITER)?;
        let never = std::sync::atomic::AtomicBool::new(false);
        let (progress, acknowledged, resumed) = (&mut |_: &_| (), &mut |_: &_| (), &mut |_| ());
        let control = IngestControl { stop: &never, progress, acknowledged, resumed };
        let ingested = ingest(&mut store, plan, options, control);
        store.close()?;
        let ingested = ingested?;
        self.index_keywords()?;
        Ok(ingested)
    }

    /// Deletes a dialogue. Returns false if the index does not contain it.
    pub fn delete(&self, id: &DialogueId) -> Result<bool> {
        let mut store = Store::open(&self.root, WRITER)?;
        let deleted = store.delete(id).and_then(|existed| store.commit(None).map(|()| existed));
        store.close()?;
        let existed = deleted?;
        self.index_keywords()?;
        Ok(existed)
    }

    /// Encodes every utterance and every dialogue that has no vector yet. If the existing vectors are from a different
    /// encoder, encodes everything and replaces them.
    pub fn encode(&self, encoder: &dyn Encoder) -> Result<EncodeProgress> {
        let options = Options::default();
        let recipe = Recipe::of(encoder, encoder.name(), "auto", &Tokens::default(), &options);
        let before = VectorReader::open(&self.root)?;
        let mode = match before.is_some_and(|reader| reader.recipe().fingerprint != encoder.fingerprint()) {
            true => VectorMode::Replace,
            false => VectorMode::Continue,
        };
        let snapshot = self.snapshot()?;
        let mut writer = VectorWriter::open(&self.root, &recipe, mode, WRITER)?;
        let wanted = EncodeTargets { utterances: true, dialogues: true, chunk: ENCODE_BATCH };
        let filled = fill(&snapshot, &mut writer, encoder, &wanted, &options, &|| false, &mut |_| ())?;
        writer.finish()?;
        Ok(filled)
    }

    /// Builds HNSW graphs (approximate nearest-neighbor graphs) over the vectors, to make dense searches faster.
    /// Returns `None` if the index has no vectors.
    pub fn build(&self) -> Result<Option<dense::Built>> {
        dense::build(&self.root, &self.snapshot()?, &BuildOptions::default(), WRITER, &|| false)
    }

    /// Searches by keywords (BM25). If the request has `like`, the id of a stored item, searches for items similar to
    /// that item instead.
    ///
    /// For many requests, open the index once with [`searcher`](Index::searcher). A dense or hybrid search for a text
    /// also needs [`Searcher::with_encoder`].
    ///
    /// # Errors
    ///
    /// [`Error::Input`] for a text query with an option that needs an encoder: a mode other than BM25, `exact`,
    /// `rerank` or `min_percentile`.
    pub fn search(&self, request: &SearchRequest) -> Result<Response> {
        let mut request = request.clone();
        let is_text = request.like.is_none() && request.dialogue.is_none();
        let needs_vectors = request.exact || request.rerank.is_some() || request.min_percentile.is_some();
        if is_text && !needs_vectors {
            request.mode = request.mode.or(Some(Mode::Bm25));
        }
        self.searcher()?.search(&request)
    }

    /// Finds the `k` items most similar to a stored item. If `id` is an utterance id (`call-17#1`), finds utterances;
    /// if it is a dialogue id (`call-17`), finds dialogues.
    pub fn similar(&self, id: &str, k: usize) -> Result<Response> {
        let kind = if id.parse::<UtteranceId>().is_ok() { HitKind::Utterances } else { HitKind::Dialogues };
        let request = SearchRequest { like: Some(id.to_owned()), k, of: kind, ..SearchRequest::default() };
        self.search(&request)
    }

    /// Clusters the dialogues into `k` topics. With `None`, the number of topics is chosen automatically.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] if the index has no vectors.
    pub fn topics(&self, k: Option<usize>) -> Result<Clusters> {
        let missing = || Error::input(format!("{} has no vectors", self.root.display()));
        let vectors = VectorReader::open(&self.root)?
            .ok_or_else(|| missing().with_hint("Index::encode creates them"))?;
        let options = ClusterOptions { k, ..ClusterOptions::default() };
        clusters(&self.snapshot()?, &vectors, &options, &|| false)
    }

    /// Returns a searcher over the current state of the index. Dense and hybrid searches for a text also need the
    /// encoder ([`Searcher::with_encoder`]).
    pub fn searcher(&self) -> Result<Searcher> {
        Searcher::open(&self.root)
    }

    fn index_keywords(&self) -> Result<()> {
        Lexical::update(None, &self.root, &self.snapshot()?, &|| false, &mut |_| ()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_encoder::statics::{TfidfSettings, fit_tfidf};

    #[test]
    fn a_text_query_uses_bm25_although_the_index_has_vectors() {
        let dir = tempfile::tempdir().unwrap();
        let index = Index::open_or_create(dir.path().join("x")).unwrap();
        let dialogues = crate::samples::dialogues().unwrap();
        let texts = dialogues.iter().flat_map(|d| &d.turns).map(|turn| turn.text.clone());
        let encoder = fit_tfidf(texts, &TfidfSettings { dim: 16, ..TfidfSettings::default() }).unwrap();
        index.add(dialogues).unwrap();
        index.encode(&encoder).unwrap();
        let request = SearchRequest { query: "the parcel never came".into(), ..SearchRequest::default() };
        let found = index.search(&request).unwrap();
        assert_eq!((found.mode, found.hits.is_empty()), (Mode::Bm25, false));
        assert!(index.search(&SearchRequest { exact: true, ..request }).is_err());
        assert_eq!(index.similar("deliveries-001", 3).unwrap().hits.len(), 3);
    }
}
