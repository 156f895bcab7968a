//! Ranker of `bench memory`: searches in real indexes, built as `turnwise ingest` builds them.

use std::{
    sync::{Arc, OnceLock},
    time::UNIX_EPOCH,
};

use super::RankerOptions;
use crate::cli::{args::SearchRanker, commands::index, encoders, prelude::*};
use turnwise_core::files;
use turnwise_corpus::Dialogue;
use turnwise_encoder::{Encoder, ahead::Options};
use turnwise_eval::{
    rank::{NOT_FOUND, Pool, Progress, Ranker, Scorer},
    tasks::{MEMORY_DEPTH, MemoryTask},
};
use turnwise_index::{
    dense,
    vectors::{EncodeTargets, Mode as VectorMode, Recipe, VectorWriter, fill},
};
use turnwise_search::{Mode, SearchRequest, Searcher};
use turnwise_store::{Prepared, Snapshot, Store};

/// One index per collection of a task. All rankers of a run share them.
pub(super) struct Indexes<'a> {
    task: &'a MemoryTask,
    encoder: Option<OpenEncoder>,
    context: &'a Context<'a>,
    /// Built when the first ranker needs them, so that a run with saved results builds nothing.
    searchers: OnceLock<Vec<Searcher>>,
    folder: PathBuf,
}

struct OpenEncoder {
    encoder: Arc<dyn Encoder>,
    recipe: Recipe,
    options: Options,
}

impl<'a> Indexes<'a> {
    /// Opens the model if `with_vectors` is true. Builds no index yet.
    pub(super) fn new(
        task: &'a MemoryTask,
        with_vectors: bool,
        options: &RankerOptions<'_>,
        context: &'a Context<'a>,
    ) -> Result<Self> {
        let name = format!("turnwise-bench-memory-{}", std::process::id());
        let folder = files::temporary_path(&std::env::temp_dir().join(name));
        let encoder = with_vectors.then(|| OpenEncoder::open(options, context)).transpose()?;
        Ok(Indexes { task, encoder, context, searchers: OnceLock::new(), folder })
    }

    fn searchers(&self) -> Result<&[Searcher]> {
        if self.searchers.get().is_none() {
            files::remove_folder(&self.folder)?;
            let collections = self.task.collections.iter().enumerate();
            let built =
                collections.map(|(n, dialogues)| self.build(&self.folder.join(n.to_string()), dialogues));
            // Only this thread builds, so the value is not set yet.
            let _ = self.searchers.set(built.collect::<Result<_>>()?);
        }
        self.searchers
            .get()
            .map(Vec::as_slice)
            .ok_or_else(|| Error::Internal("no index was built".to_owned()))
    }

    /// Builds an index with the steps of `turnwise ingest`.
    fn build(&self, root: &Path, dialogues: &[Dialogue]) -> Result<Searcher> {
        let context = self.context;
        let mut store = Store::open_or_create(root, context.command_line)?;
        for dialogue in dialogues {
            signals::check()?;
            store.put(&Prepared::new(dialogue)?)?;
            if store.pending() >= context.settings.batch {
                store.commit(None)?;
            }
        }
        store.commit(None)?;
        store.close()?;
        let snapshot = Snapshot::open(root)?;
        index::update(root, &snapshot, context)?;
        let Some(open) = &self.encoder else { return Searcher::over(root, snapshot) };
        let mut writer = VectorWriter::open(root, &open.recipe, VectorMode::Continue, context.command_line)?;
        let wanted =
            EncodeTargets { utterances: true, dialogues: true, chunk: context.settings.encode_batch };
        let total = Some(dialogues.len() as u64);
        let mut progress = ProgressBar::new(context.printer, "encoding", "dialogues", total);
        let filled = fill(
            &snapshot,
            &mut writer,
            open.encoder.as_ref(),
            &wanted,
            &open.options,
            &signals::stopped,
            &mut |f| {
                progress.set(f.seen, f.seen);
            },
        )?;
        drop(progress);
        writer.finish()?;
        if !filled.complete {
            return Err(Error::Interrupted { hint: None });
        }
        if dense::is_worth_building(root, &snapshot)? {
            index::graphs(root, &snapshot, context)?;
        }
        Searcher::over(root, snapshot)?.with_encoder(open.encoder.clone())
    }
}

impl Drop for Indexes<'_> {
    fn drop(&mut self) {
        drop(self.searchers.take());
        let _ = files::remove_folder(&self.folder);
    }
}

impl OpenEncoder {
    /// Opens the model. As in `turnwise ingest`, the default precision is the fastest one that is accurate enough.
    fn open(options: &RankerOptions<'_>, context: &Context<'_>) -> Result<Self> {
        let name = options.encoder.model.as_deref().unwrap_or(encoders::DEFAULT_MODEL);
        let precision = if encoders::is_static(context, name)? { None } else { options.encoder.precision() };
        let tokens = options.tokens.given();
        let encoder = encoders::open(context, name, &options.encoder.settings(precision, tokens.clone()))?;
        let precision = precision.map_or("auto", |precision| precision.name());
        let options = options.encoder.given().into_options();
        let recipe =
            Recipe::of(encoder.as_ref(), &encoders::absolute_name(name), precision, &tokens, &options);
        Ok(OpenEncoder { encoder: Arc::from(encoder), recipe, options })
    }
}

/// Ranker that searches with the settings of `turnwise search`.
pub(super) struct Searched<'a> {
    indexes: &'a Indexes<'a>,
    name: String,
    request: SearchRequest,
}

impl<'a> Searched<'a> {
    pub(super) fn new(indexes: &'a Indexes<'a>, ranker: &SearchRanker) -> Self {
        let request = SearchRequest { k: MEMORY_DEPTH, window: 0, ..ranker.request() };
        Searched { indexes, name: ranker.to_string(), request }
    }
}

impl Ranker for Searched<'_> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn identity(&self) -> String {
        let request = serde_json::to_string(&self.request).unwrap_or_default();
        let encoder = self.indexes.encoder.as_ref().filter(|_| self.request.mode != Some(Mode::Bm25));
        let encoder = encoder.map_or_else(String::new, |open| {
            format!("{}/{}/{:?}", open.encoder.fingerprint(), open.recipe.precision, open.options)
        });
        // The search itself is measured, so a result of a different build of turnwise is not used.
        format!("search/{request}/{encoder}/{}", program())
    }

    fn prepare<'p>(&'p self, _: &'p Pool, _: &dyn Progress) -> Result<Box<dyn Scorer + 'p>> {
        Ok(Box::new(SearchScorer { searched: self, searchers: self.indexes.searchers()? }))
    }
}

/// Returns the size and the modification time of the program, as text that identifies its build.
pub(super) fn program() -> String {
    let metadata = std::env::current_exe().and_then(std::fs::metadata);
    let changed = |m: &std::fs::Metadata| m.modified().ok()?.duration_since(UNIX_EPOCH).ok();
    metadata.map_or_else(|_| String::new(), |m| format!("{}-{:?}", m.len(), changed(&m).unwrap_or_default()))
}

struct SearchScorer<'a> {
    searched: &'a Searched<'a>,
    searchers: &'a [Searcher],
}

impl Scorer for SearchScorer<'_> {
    /// The score of a document is its negative rank, so that the order is that of the search.
    fn scores(&self, query: usize, documents: &[u32], scores: &mut Vec<f32>) -> Result<()> {
        signals::check()?;
        let Searched { indexes, request, .. } = self.searched;
        let task = indexes.task;
        let question = &task.questions[query];
        let request = SearchRequest {
            query: task.question_text(query).into_owned(),
            filter: question.within.clone(),
            ..request.clone()
        };
        let hits = self.searchers[question.collection].search(&request)?.hits;
        scores.clear();
        scores.resize(documents.len(), NOT_FOUND);
        for (rank, hit) in hits.iter().enumerate() {
            let position = task.document(&hit.id).and_then(|n| documents.binary_search(&n).ok());
            let position = position.ok_or_else(|| {
                Error::Internal(format!("the search for question {} found {}", question.id, hit.id))
            })?;
            scores[position] = -(rank as f32);
        }
        Ok(())
    }
}
