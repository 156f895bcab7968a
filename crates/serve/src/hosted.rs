//! Indexes that are served. An index stays open and is reloaded after a change. Requests that already run continue with
//! the old state.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    thread,
    time::{Duration, Instant},
};

use super::{
    app::OpenIndex,
    batching::BatchingEncoder,
    metrics::Metrics,
    problem::{Outcome, Problem},
    stored_responses::IdempotentResponses,
};
use turnwise_core::error::{Error, Result};
use turnwise_encoder::{Encoder, selector::Selector};
use turnwise_index::{
    location::{ChangeToken, Location},
    vectors::Recipe,
};
use turnwise_search::Searcher;

/// Callbacks from the server to the program that embeds it. They open models, update indexes and create the benchmark
/// report.
pub trait ServerHooks: Send + Sync {
    /// Opens the encoder that made the vectors of an index. `recipe` describes how the vectors were made. `place` is
    /// the path or address of the index, for messages.
    fn encoder(&self, recipe: &Recipe, place: &str) -> Result<Arc<dyn Encoder>>;

    /// Returns the selector, which reranks hits and selects replies. `None` if there is none.
    fn selector(&self) -> Option<Arc<Selector>> {
        None
    }

    /// Makes new records in the index folder `index` searchable: updates the lexical index and the vectors. Reports
    /// errors to the operator of the server.
    fn derive(&self, index: &Path);

    /// Returns the benchmark report as HTML. Returns `None` if no benchmarks were run.
    fn report(&self) -> Result<Option<String>>;
}

/// Minimum time between two attempts to open a missing model.
const MODEL_INTERVAL: Duration = Duration::from_secs(5);
/// Minimum time between two reloads, as a multiple of the duration of the last reload. The factor 10 means that
/// reloading takes at most about a tenth of the total time.
const SHARE: u32 = 10;
/// Value of the Retry-After header for an unavailable engine, in seconds.
const RETRY_AFTER: u32 = 2;

/// An index that the server serves under a name.
pub(super) struct HostedIndex {
    pub(super) name: String,
    pub(super) location: Box<dyn Location>,
    /// Stored responses to requests with an idempotency key.
    pub(super) responses: IdempotentResponses,
    hooks: Arc<dyn ServerHooks>,
    metrics: Arc<Metrics>,
    /// Lock that a write request holds, so that only one request writes at a time.
    pub(super) writing: Arc<tokio::sync::Mutex<()>>,
    deriving: Mutex<Deriving>,
    current: RwLock<Arc<OpenIndex>>,
    /// Error response to send if the engine is remote and was unavailable at the last attempt to reload; otherwise
    /// `None`.
    unavailable: RwLock<Option<Problem>>,
    /// State of reloading. It is locked during a reload, so that only one reload runs at a time.
    reload: Mutex<Reload>,
}

/// State of the thread that makes new records searchable.
#[derive(Default)]
struct Deriving {
    /// Whether records were written since the thread last started its work. If so, the thread repeats the work.
    wanted: bool,
    running: bool,
}

/// State of reloading an index.
struct Reload {
    /// Change token that the index had when it was opened. `None` if the token could not be read. If the current token
    /// is different, the index was changed.
    change_token: Option<ChangeToken>,
    /// Time of the last check for a change.
    checked: Instant,
    /// Time and duration of the last reload.
    opened: (Instant, Duration),
    /// Encoder of the open index. `None` if the index has no vectors or the encoder could not be opened.
    encoder: Option<OpenEncoder>,
}

/// An encoder that stays open while the index is reloaded.
struct OpenEncoder {
    /// Description of the vectors for which `encoder` was opened.
    recipe: Recipe,
    encoder: Arc<dyn Encoder>,
    /// Wrapper around `encoder` that encodes the queries of concurrent requests in batches.
    batching: Arc<dyn Encoder>,
}

impl HostedIndex {
    pub(super) fn open(
        name: String,
        location: Box<dyn Location>,
        hooks: Arc<dyn ServerHooks>,
        metrics: Arc<Metrics>,
    ) -> Result<Self> {
        let started = Instant::now();
        let mut encoder = None;
        // Ignore an error here: a Milvus collection has no change token until it is loaded, and `open_index` loads it.
        let change_token = location.change_token().ok();
        let opened = open_index(location.as_ref(), hooks.as_ref(), &metrics, &mut encoder)?;
        let now = Instant::now();
        Ok(HostedIndex {
            name,
            responses: location
                .folder()
                .map_or_else(IdempotentResponses::in_memory, IdempotentResponses::in_folder),
            location,
            hooks,
            metrics,
            writing: Arc::default(),
            deriving: Mutex::default(),
            current: RwLock::new(Arc::new(opened)),
            unavailable: RwLock::default(),
            reload: Mutex::new(Reload {
                change_token,
                checked: now,
                opened: (now, started.elapsed()),
                encoder,
            }),
        })
    }

    /// Returns the current state of the index. The returned state stays usable after a reload.
    pub(super) fn current(&self) -> Arc<OpenIndex> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the error response to send if the engine is unavailable. Returns `None` if the engine is available.
    pub(super) fn unavailable(&self) -> Option<Problem> {
        self.unavailable.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the current state of the index. If its engine is unavailable, returns the error response to send.
    pub(super) fn available(&self) -> Outcome<Arc<OpenIndex>> {
        match self.unavailable() {
            Some(problem) => Err(problem),
            None => Ok(self.current()),
        }
    }

    /// Reloads the index if it was changed, or if its model or engine was unavailable. Does nothing if the last reload
    /// or the last check was too recent. Returns whether the index was reloaded. If reloading fails, keeps the old
    /// state.
    pub(super) fn follow(&self) -> Result<bool> {
        let mut reload = self.reload();
        let (when, took) = reload.opened;
        if when.elapsed() < took * SHARE || reload.checked.elapsed() < self.location.poll_interval() {
            return Ok(false);
        }
        let model_missing = self.current().without_encoder.is_some() && when.elapsed() >= MODEL_INTERVAL;
        // If the change token cannot be read, the open state may be unusable, and the index is reloaded.
        let change_token = self.location.change_token().ok();
        reload.checked = Instant::now();
        if change_token.is_some()
            && change_token == reload.change_token
            && !model_missing
            && self.unavailable().is_none()
        {
            return Ok(false);
        }
        self.reopen(&mut reload, change_token).map(|()| true)
    }

    /// Reloads the index. Must be called after this server has changed the index.
    pub(super) fn changed(&self) -> Result<()> {
        let mut reload = self.reload();
        let change_token = self.location.change_token().ok();
        self.reopen(&mut reload, change_token)
    }

    fn reopen(&self, reload: &mut Reload, change_token: Option<ChangeToken>) -> Result<()> {
        let started = Instant::now();
        let opened =
            open_index(self.location.as_ref(), self.hooks.as_ref(), &self.metrics, &mut reload.encoder);
        reload.opened = (Instant::now(), started.elapsed());
        let unavailable = match &opened {
            // A local index stays available, because open files remain readable even if their folder was removed.
            Err(e) if self.location.folder().is_none() => Some(engine_unavailable(e)),
            _ => None,
        };
        *self.unavailable.write().unwrap_or_else(PoisonError::into_inner) = unavailable;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(opened?);
        reload.change_token = change_token;
        Ok(())
    }

    /// Starts a thread that makes new records of an index folder searchable. If the thread already runs, it repeats its
    /// work once when it is done. Does nothing for a remote engine.
    pub(super) fn derive(self: &Arc<Self>) {
        let Some(folder) = self.location.folder().map(Path::to_owned) else { return };
        let next = |hosted: &HostedIndex| -> bool {
            let mut state = hosted.deriving.lock().unwrap_or_else(PoisonError::into_inner);
            state.running = std::mem::take(&mut state.wanted);
            state.running
        };
        {
            let mut state = self.deriving.lock().unwrap_or_else(PoisonError::into_inner);
            state.wanted = true;
            if std::mem::replace(&mut state.running, true) {
                return;
            }
        }
        let hosted = self.clone();
        let started = thread::Builder::new().name("deriving".to_owned()).spawn(move || {
            while next(&hosted) {
                hosted.hooks.derive(&folder);
                let _ = hosted.changed();
            }
        });
        if started.is_err() {
            self.deriving.lock().unwrap_or_else(PoisonError::into_inner).running = false;
        }
    }

    /// Replaces the paths and addresses of the index in an error response with the index name, so that clients do not
    /// see the paths and addresses.
    pub(super) fn hidden(&self, problem: Problem) -> Problem {
        self.location
            .places()
            .iter()
            .fold(problem, |problem, place| problem.replacing_path(place, &self.name))
    }

    fn reload(&self) -> MutexGuard<'_, Reload> {
        self.reload.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates the error response for a remote engine that could not be opened. It asks the client to retry.
fn engine_unavailable(e: &Error) -> Problem {
    Problem { hint: e.hint(), retry_after: Some(RETRY_AFTER), ..Problem::unavailable(e.to_string()) }
}

/// Opens an index and the encoder that made its vectors. Uses the encoder in `known` if it has the same recipe as the
/// vectors; otherwise, opens an encoder and stores it in `known`. If the encoder cannot be opened, only lexical search
/// works.
fn open_index(
    location: &dyn Location,
    hooks: &dyn ServerHooks,
    metrics: &Arc<Metrics>,
    known: &mut Option<OpenEncoder>,
) -> Result<OpenIndex> {
    let searcher = Searcher::at(location)?;
    let searcher = match hooks.selector() {
        Some(selector) => searcher.with_selector(selector),
        None => searcher,
    };
    let Some(recipe) = searcher.engine().recipe().cloned() else {
        return Ok(OpenIndex::new(searcher, None, None));
    };
    if known.as_ref().is_none_or(|known| known.recipe != recipe) {
        match open_encoder(recipe, &searcher.engine().place(), hooks, metrics) {
            Ok(new) => *known = Some(new),
            Err(e) => {
                *known = None;
                return Ok(OpenIndex::new(searcher, None, Some(e)));
            }
        }
    }
    match known {
        None => Ok(OpenIndex::new(searcher, None, None)),
        Some(OpenEncoder { encoder, batching, .. }) => {
            Ok(OpenIndex::new(searcher.with_encoder(batching.clone())?, Some(encoder.clone()), None))
        }
    }
}

/// Opens the encoder that `recipe` describes, and starts the thread that encodes queries in batches.
fn open_encoder(
    recipe: Recipe,
    place: &str,
    hooks: &dyn ServerHooks,
    metrics: &Arc<Metrics>,
) -> Result<OpenEncoder> {
    let encoder = hooks.encoder(&recipe, place)?;
    let counted = metrics.clone();
    let batching = BatchingEncoder::new(encoder.clone(), move |queries| counted.encoded_together(queries))?;
    Ok(OpenEncoder { recipe, encoder, batching: Arc::new(batching) })
}
