//! Indexes that are served. An index stays open and is reloaded after a change; running requests continue on the old state.

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
use turnwise_encoder::Encoder;
use turnwise_index::{
    location::{ChangeToken, Location},
    vectors::Recipe,
};
use turnwise_search::Searcher;

/// Callbacks from the server to the program: they open models, update indexes and make the benchmark report.
pub trait ServerHooks: Send + Sync {
    /// Opens the encoder of an index. `recipe` says how the vectors were made; `place` names the index in messages.
    fn encoder(&self, recipe: &Recipe, place: &str) -> Result<Arc<dyn Encoder>>;

    /// Makes new records of an index folder searchable: updates the lexical index and the vectors. Reports errors to the
    /// operator of the server.
    fn derive(&self, index: &Path);

    /// Benchmark report as HTML; `None` if no benchmarks were run.
    fn report(&self) -> Result<Option<String>>;
}

/// Minimum time between two attempts to open a model that is missing.
const MODEL_INTERVAL: Duration = Duration::from_secs(5);
/// Minimum time between two reloads, as a multiple of the duration of the last reload. Reloading then takes at most
/// about a tenth of the time.
const SHARE: u32 = 10;
/// Value of the Retry-After header for an unavailable engine, in seconds.
const RETRY_AFTER: u32 = 2;

/// An index that the server serves under a name.
pub(super) struct HostedIndex {
    pub(super) name: String,
    pub(super) location: Box<dyn Location>,
    /// Stored responses of requests with an idempotency key.
    pub(super) responses: IdempotentResponses,
    hooks: Arc<dyn ServerHooks>,
    metrics: Arc<Metrics>,
    /// Lock that a write request holds, so that only one writes at a time.
    pub(super) writing: Arc<tokio::sync::Mutex<()>>,
    deriving: Mutex<Deriving>,
    current: RwLock<Arc<OpenIndex>>,
    /// Error response if a remote engine was unavailable at the last attempt to reload; otherwise `None`.
    unavailable: RwLock<Option<Problem>>,
    /// State of reloading. It is locked during a reload, so that only one runs at a time.
    reload: Mutex<Reload>,
}

/// State of the thread that makes new records searchable.
#[derive(Default)]
struct Deriving {
    /// Whether records were written since the thread last started its work.
    wanted: bool,
    running: bool,
}

/// State of reloading an index.
struct Reload {
    /// Change token that the index had when it was opened. A different token means a change. `None` if unreadable.
    change_token: Option<ChangeToken>,
    /// Time of the last check for a change.
    checked: Instant,
    /// Time and duration of the last reload.
    opened: (Instant, Duration),
    /// Encoder of the open state. `None` if the index has no vectors or the encoder could not be opened.
    encoder: Option<OpenEncoder>,
}

/// An encoder that stays open while the index is reloaded.
struct OpenEncoder {
    /// Description of the vectors that `encoder` was opened for.
    recipe: Recipe,
    encoder: Arc<dyn Encoder>,
    /// Wrapper of `encoder` that encodes queries of concurrent requests in batches.
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
        // A Milvus collection has no change token until it is loaded; opening the location loads it.
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

    /// Returns the current state of the index. The state stays usable after a reload.
    pub(super) fn current(&self) -> Arc<OpenIndex> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Error response if the engine is unavailable; otherwise `None`.
    pub(super) fn unavailable(&self) -> Option<Problem> {
        self.unavailable.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the current state of the index, or the error response if its engine is unavailable.
    pub(super) fn available(&self) -> Outcome<Arc<OpenIndex>> {
        match self.unavailable() {
            Some(problem) => Err(problem),
            None => Ok(self.current()),
        }
    }

    /// Reloads the index if it changed, or if its model or engine was unavailable. Does nothing soon after the last
    /// reload or check. Returns true after a reload. After an error, keeps the old state.
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

    /// Reloads the index after a change by this server.
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
            // Open files remain readable even if their folder is gone.
            Err(e) if self.location.folder().is_none() => Some(engine_unavailable(e)),
            _ => None,
        };
        *self.unavailable.write().unwrap_or_else(PoisonError::into_inner) = unavailable;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(opened?);
        reload.change_token = change_token;
        Ok(())
    }

    /// Starts a thread that makes new records of an index folder searchable. If the thread already runs, makes it
    /// repeat its work afterwards. Does nothing for a remote engine.
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

    /// Hides the path or address of the index from clients: replaces it in an error with the index name.
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

/// Error response for a remote engine that could not be opened. It asks the client to retry.
fn engine_unavailable(e: &Error) -> Problem {
    Problem { hint: e.hint(), retry_after: Some(RETRY_AFTER), ..Problem::unavailable(e.to_string()) }
}

/// Opens an index and, unless `known` fits its vectors, an encoder. Without an encoder, only lexical search works.
fn open_index(
    location: &dyn Location,
    hooks: &dyn ServerHooks,
    metrics: &Arc<Metrics>,
    known: &mut Option<OpenEncoder>,
) -> Result<OpenIndex> {
    let searcher = Searcher::at(location)?;
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

/// Opens the encoder that made the vectors (see `recipe`), and starts the thread that batches its queries.
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
