//! [`Index`]: an index as one value, for programs that use turnwise as a library.

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
    vectors::{EncodeProgress, EncodeTargets, Mode, Recipe, VectorReader, VectorWriter, fill},
};
use turnwise_search::{
    HitKind, Response, SearchRequest, Searcher,
    clusters::{ClusterOptions, Clusters, clusters},
};
use turnwise_store::{
    Prepared, PutOutcome, Snapshot, Store,
    ingest::{IngestControl, IngestOptions, Ingested, ingest},
};

/// Number of dialogues that are written and flushed to the disk together.
const BATCH: usize = 1_000;
/// The name that other processes see while this one writes.
const WRITER: &str = "a program that uses turnwise as a library";
/// Number of texts that are encoded together.
const ENCODE_BATCH: usize = 4_096;

/// An index in a folder on this machine.
///
/// Records are written by [`add`](Index::add) and [`ingest`](Index::ingest), get vectors by [`encode`](Index::encode),
/// and are found through a [`Searcher`]. Data is on the disk when a method returns. One process may write at a time;
/// any number may read meanwhile.
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

/// The outcome of [`Index::add`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Added {
    /// Number of dialogues added, with a new id.
    pub added: u64,
    /// Number of dialogues that replaced one with the same id and different content.
    pub replaced: u64,
    /// Number of dialogues that the index already contained with the same content.
    pub unchanged: u64,
}

impl Index {
    /// Opens an index.
    ///
    /// # Errors
    ///
    /// [`Error::NoIndex`] if the folder holds no index.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self> {
        let root = root.into();
        Snapshot::open(&root)?;
        Ok(Index { root })
    }

    /// Opens an index, or creates an empty one.
    pub fn open_or_create(root: impl Into<PathBuf>) -> Result<Self> {
        let root = root.into();
        Store::open_or_create(&root, WRITER)?.close()?;
        Ok(Index { root })
    }

    /// The folder of the index.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Returns a snapshot of the records. Later changes are not visible in it.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::open(&self.root)
    }

    /// Returns the dialogue with this id; `None` if the index does not have it.
    pub fn get(&self, id: &DialogueId) -> Result<Option<Dialogue>> {
        self.snapshot()?.get(id)
    }

    /// Adds dialogues and makes them searchable by keywords. A dialogue replaces the one with the same id.
    ///
    /// # Errors
    ///
    /// [`Error::Data`] for a dialogue without text, with too many turns, or with turn numbers that do not ascend. The
    /// dialogues before it are in the index.
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
        // The dialogues before an invalid one are kept.
        let written = write();
        let committed = store.commit(None);
        written.and(committed)?;
        store.close()?;
        self.index_keywords()?;
        Ok(outcome)
    }

    /// Reads files and folders in any known format and adds their dialogues, as `turnwise ingest` does.
    pub fn ingest(&self, paths: &[PathBuf], options: &IngestOptions) -> Result<Ingested> {
        let plan = walk::plan(paths, None)?;
        let mut store = Store::open(&self.root, WRITER)?;
        let never = std::sync::atomic::AtomicBool::new(false);
        let control = IngestControl {
            stop: &never,
            progress: &mut |_| (),
            acknowledged: &mut |_| (),
            resumed: &mut |_| (),
        };
        let ingested = ingest(&mut store, plan, options, control);
        store.close()?;
        let ingested = ingested?;
        self.index_keywords()?;
        Ok(ingested)
    }

    /// Deletes a dialogue. Returns whether it was there.
    pub fn delete(&self, id: &DialogueId) -> Result<bool> {
        let mut store = Store::open(&self.root, WRITER)?;
        let deleted = store.delete(id).and_then(|there| store.commit(None).map(|()| there));
        store.close()?;
        let there = deleted?;
        self.index_keywords()?;
        Ok(there)
    }

    /// Encodes every utterance and every dialogue that has no vector of this encoder yet. If the vectors are of a
    /// different encoder, all of them are replaced.
    pub fn encode(&self, encoder: &dyn Encoder) -> Result<EncodeProgress> {
        let options = Options::default();
        let recipe = Recipe::of(encoder, encoder.name(), "auto", &Tokens::default(), &options);
        let before = VectorReader::open(&self.root)?;
        let mode = match before.map(|reader| reader.recipe().fingerprint != encoder.fingerprint()) {
            Some(true) => Mode::Replace,
            _ => Mode::Continue,
        };
        let snapshot = self.snapshot()?;
        let mut writer = VectorWriter::open(&self.root, &recipe, mode, WRITER)?;
        let wanted = EncodeTargets { utterances: true, dialogues: true, chunk: ENCODE_BATCH };
        let filled = fill(&snapshot, &mut writer, encoder, &wanted, &options, &|| false, &mut |_| ())?;
        writer.finish()?;
        Ok(filled)
    }

    /// Builds HNSW graphs over the vectors, so that a search does not scan all of them. Does nothing if there are no
    /// vectors.
    pub fn build(&self) -> Result<Option<dense::Built>> {
        dense::build(&self.root, &self.snapshot()?, &BuildOptions::default(), WRITER, &|| false)
    }

    /// Searches by keywords, or for what is similar to a stored item (`like`).
    ///
    /// For many requests, and for queries by meaning, keep a [`searcher`](Index::searcher).
    pub fn search(&self, request: &SearchRequest) -> Result<Response> {
        self.searcher()?.search(request)
    }

    /// Finds the `k` utterances or dialogues most similar to a stored one, by its vector. The id is that of a dialogue
    /// (`call-17`) or of an utterance (`call-17#1`).
    pub fn similar(&self, id: &str, k: usize) -> Result<Response> {
        let kind = if id.parse::<UtteranceId>().is_ok() { HitKind::Utterances } else { HitKind::Dialogues };
        let request = SearchRequest { like: Some(id.to_owned()), k, of: kind, ..SearchRequest::default() };
        self.search(&request)
    }

    /// Groups the dialogues by topic. The number of topics is chosen automatically if `k` is `None`.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] if the index has no vectors.
    pub fn topics(&self, k: Option<usize>) -> Result<Clusters> {
        let vectors = VectorReader::open(&self.root)?.ok_or_else(|| Error::Input {
            message: format!("{} has no vectors", self.root.display()),
            hint: Some("Index::encode creates them".to_owned()),
        })?;
        let options = ClusterOptions { k, ..ClusterOptions::default() };
        clusters(&self.snapshot()?, &vectors, &options, &|| false)
    }

    /// Returns a searcher over the current state of the index. For queries by meaning, give it the encoder with
    /// [`Searcher::with_encoder`].
    pub fn searcher(&self) -> Result<Searcher> {
        Searcher::open(&self.root)
    }

    fn index_keywords(&self) -> Result<()> {
        Lexical::update(&self.root, &self.snapshot()?, &|| false, &mut |_| ()).map(drop)
    }
}
