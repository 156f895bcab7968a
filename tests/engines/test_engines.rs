//! The engines that the scenarios run on: a local index and Milvus.

use std::{path::PathBuf, sync::Arc};

use tempfile::TempDir;
use turnwise_core::ids::DialogueId;
use turnwise_corpus::{Dialogue, filter::Filter};
use turnwise_encoder::{Encoder, ahead::Options};
use turnwise_index::{
    lexical::Lexical,
    vectors::{EncodeTargets, Mode, VectorWriter, fill},
};
use turnwise_search::Searcher;
use turnwise_store::{Prepared, PutOutcome, Snapshot, Store};
use turnwise_text::{Analyzer, AnalyzerChoice};

use crate::hashed_words::HashedWords;

/// An engine under test.
pub trait TestEngine: Sync {
    fn name(&self) -> String;
    fn ingest(&self, dialogues: &[Dialogue]) -> Vec<PutOutcome>;
    /// Returns the number of deleted dialogues.
    fn delete(&self, ids: &[DialogueId]) -> u64;
    fn delete_matching(&self, filter: &Filter) -> u64;
    fn searcher(&self) -> Searcher;
}

/// A local index.
pub struct LocalEngine {
    _folder: TempDir,
    root: PathBuf,
}

impl LocalEngine {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        LocalEngine { root: folder.path().join("index"), _folder: folder }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Store) -> T) -> T {
        let mut store = Store::open_or_create(&self.root, "test").unwrap();
        let outcome = change(&mut store);
        store.commit(None).unwrap();
        store.close().unwrap();
        let snapshot = Snapshot::open(&self.root).unwrap();
        // Tantivy counts replaced dialogues in its term statistics until it merges segments, so the index is rebuilt.
        Lexical::remove(&self.root).unwrap();
        // New collections in Milvus have the default analyzer, so the local index must have it, too.
        let analyzer = Some(AnalyzerChoice::Named(Analyzer::default()));
        Lexical::update(analyzer, &self.root, &snapshot, &|| false, &mut |_| {}).unwrap();
        let encoder = HashedWords { salt: 0 };
        let mut writer = VectorWriter::open(&self.root, &encoder.recipe(), Mode::Continue, "test").unwrap();
        let wanted = EncodeTargets { utterances: true, dialogues: true, chunk: 256 };
        let options = Options::default();
        fill(&snapshot, &mut writer, &encoder, &wanted, &options, &|| false, &mut |_| {}).unwrap();
        writer.finish().unwrap();
        outcome
    }
}

impl TestEngine for LocalEngine {
    fn name(&self) -> String {
        "a local index".to_owned()
    }

    fn ingest(&self, dialogues: &[Dialogue]) -> Vec<PutOutcome> {
        self.change(|store| {
            dialogues.iter().map(|d| store.put(&Prepared::new(d).unwrap()).unwrap()).collect()
        })
    }

    fn delete(&self, ids: &[DialogueId]) -> u64 {
        self.change(|store| ids.iter().map(|id| u64::from(store.delete(id).unwrap())).sum())
    }

    fn delete_matching(&self, filter: &Filter) -> u64 {
        let snapshot = Snapshot::open(&self.root).unwrap();
        let ids: Vec<DialogueId> =
            snapshot.dialogues().map(Result::unwrap).filter(|d| filter.matches(d)).map(|d| d.id).collect();
        self.delete(&ids)
    }

    fn searcher(&self) -> Searcher {
        Searcher::open(&self.root).unwrap().with_encoder(encoder()).unwrap()
    }
}

pub fn encoder() -> Arc<dyn Encoder> {
    Arc::new(HashedWords { salt: 0 })
}

/// A collection in Milvus.
#[cfg(feature = "milvus")]
pub struct MilvusEngine {
    pub target: turnwise_milvus::Target,
}

#[cfg(feature = "milvus")]
impl MilvusEngine {
    pub fn writer(&self) -> turnwise_milvus::MilvusWriter {
        let recipe = Some(HashedWords { salt: 0 }.recipe());
        turnwise_milvus::MilvusWriter::open_or_create(
            &self.target,
            Some(Analyzer::default()),
            recipe,
            Some(encoder()),
        )
        .unwrap()
    }
}

#[cfg(feature = "milvus")]
impl TestEngine for MilvusEngine {
    fn name(&self) -> String {
        self.target.to_string()
    }

    fn ingest(&self, dialogues: &[Dialogue]) -> Vec<PutOutcome> {
        use turnwise_store::ingest::DialogueSink;
        let mut writer = self.writer();
        let puts = dialogues.iter().map(|d| writer.put(&Prepared::new(d).unwrap()).unwrap()).collect();
        writer.commit(None).unwrap();
        puts
    }

    fn delete(&self, ids: &[DialogueId]) -> u64 {
        self.writer().delete(ids).unwrap()
    }

    fn delete_matching(&self, filter: &Filter) -> u64 {
        self.writer().delete_matching(filter).unwrap()
    }

    fn searcher(&self) -> Searcher {
        let engine = turnwise_milvus::Milvus::open(&self.target).unwrap();
        Searcher::of(Box::new(engine)).with_encoder(encoder()).unwrap()
    }
}
