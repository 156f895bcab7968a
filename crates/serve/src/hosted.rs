//! An index that is served: open all the time, and opened anew beside what is in use when it has changed.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    thread,
    time::{Duration, Instant},
};

use super::{
    app::Opened,
    batching::Batching,
    metrics::Metrics,
    problem::{Outcome, Problem},
    source::{ChangeToken, Place, Source},
};
use turnwise_core::error::{Error, Result};
use turnwise_encoder::Encoder;
use turnwise_index::vectors::Recipe;

/// Whoever knows where models are, and how an index is brought up to what was written to it.
pub trait ServerHooks: Send + Sync {
    /// Opens the encoder that made the vectors of what lies at a place.
    fn encoder(&self, recipe: &Recipe, place: &str) -> Result<Arc<dyn Encoder>>;

    /// Makes what came searchable, by words and by meaning; what stands in the way is told to whoever looks after the server.
    fn derive(&self, index: &Path);

    /// The report of the benchmarks that were run here, as a page; `None` if there were none.
    fn report(&self) -> Result<Option<String>>;
}

/// A model that is missing is looked for this often.
const AGAIN: Duration = Duration::from_secs(5);
/// No more than this part of the time goes into opening what changes all the time.
const SHARE: u32 = 10;
/// Seconds after which who asked for what is out of reach may come again.
const COME_AGAIN: u32 = 2;

pub(super) struct Hosted {
    pub(super) name: String,
    pub(super) source: Box<dyn Source>,
    hooks: Arc<dyn ServerHooks>,
    metrics: Arc<Metrics>,
    /// Held by the one request that writes.
    pub(super) writing: Arc<tokio::sync::Mutex<()>>,
    /// Whether something came that was not made searchable yet, and whether somebody does that.
    deriving: Mutex<Deriving>,
    now: RwLock<Arc<Opened>>,
    /// Why it is out of reach, when it last was looked for.
    away: RwLock<Option<Problem>>,
    /// Held by the one who opens anew.
    turn: Mutex<Turn>,
}

#[derive(Default)]
struct Deriving {
    wanted: bool,
    running: bool,
}

struct Turn {
    /// As it was when it was opened; `None` if that is not known.
    change_token: Option<ChangeToken>,
    looked: Instant,
    /// When, and how long it took.
    opened: (Instant, Duration),
    /// The encoder that is in use, and what it was opened for.
    encoder: Option<Known>,
}

/// An encoder that is open.
struct Known {
    /// What it was opened for.
    recipe: Recipe,
    encoder: Arc<dyn Encoder>,
    /// The same, for queries.
    batching: Arc<dyn Encoder>,
}

impl Hosted {
    pub(super) fn open(
        name: String,
        place: Place,
        hooks: Arc<dyn ServerHooks>,
        metrics: Arc<Metrics>,
    ) -> Result<Self> {
        let begun = Instant::now();
        let mut encoder = None;
        let source = place.source();
        // What is not brought to where it is searched yet has no change_token; opening it does that.
        let change_token = source.change_token().ok();
        let opened = opened(source.as_ref(), hooks.as_ref(), &metrics, &mut encoder)?;
        let now = Instant::now();
        Ok(Hosted {
            name,
            source,
            hooks,
            metrics,
            writing: Arc::default(),
            deriving: Mutex::default(),
            now: RwLock::new(Arc::new(opened)),
            away: RwLock::default(),
            turn: Mutex::new(Turn { change_token, looked: now, opened: (now, begun.elapsed()), encoder }),
        })
    }

    /// As it is now. Who holds it goes on with it, whatever is opened meanwhile.
    pub(super) fn now(&self) -> Arc<Opened> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why it is out of reach, if it is.
    pub(super) fn away(&self) -> Option<Problem> {
        self.away.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// As it is now, for a request; what is known to be out of reach is not waited for.
    pub(super) fn at_hand(&self) -> Outcome<Arc<Opened>> {
        match self.away() {
            Some(problem) => Err(problem),
            None => Ok(self.now()),
        }
    }

    /// Opens it anew if it has changed, but not all the time; gives whether it did. What cannot be opened leaves what is there.
    pub(super) fn follow(&self) -> Result<bool> {
        let mut turn = self.turn();
        let (when, took) = turn.opened;
        if when.elapsed() < took * SHARE || turn.looked.elapsed() < self.source.pause() {
            return Ok(false);
        }
        let model_missing = self.now().without_encoder.is_some() && when.elapsed() >= AGAIN;
        // An error tells that what is open may be of no use any more.
        let change_token = self.source.change_token().ok();
        turn.looked = Instant::now();
        if change_token.is_some()
            && change_token == turn.change_token
            && !model_missing
            && self.away().is_none()
        {
            return Ok(false);
        }
        self.reopen(&mut turn, change_token).map(|()| true)
    }

    /// Opens it anew, for somebody who has changed it and wants to see that.
    pub(super) fn changed(&self) -> Result<()> {
        let mut turn = self.turn();
        let change_token = self.source.change_token().ok();
        self.reopen(&mut turn, change_token)
    }

    fn reopen(&self, turn: &mut Turn, change_token: Option<ChangeToken>) -> Result<()> {
        let begun = Instant::now();
        let opened = opened(self.source.as_ref(), self.hooks.as_ref(), &self.metrics, &mut turn.encoder);
        turn.opened = (Instant::now(), begun.elapsed());
        let away = match &opened {
            // Files that are open can be read on, whatever became of their folder.
            Err(e) if self.source.folder().is_none() => Some(out_of_reach(e)),
            _ => None,
        };
        *self.away.write().unwrap_or_else(PoisonError::into_inner) = away;
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(opened?);
        turn.change_token = change_token;
        Ok(())
    }

    /// Makes what came searchable, beside everything else; what comes meanwhile is taken up next.
    pub(super) fn derive(self: &Arc<Self>) {
        let Some(folder) = self.source.folder().map(Path::to_owned) else { return };
        let lock = |hosted: &Hosted| -> bool {
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
        let begun = thread::Builder::new().name("deriving".to_owned()).spawn(move || {
            while lock(&hosted) {
                hosted.hooks.derive(&folder);
                let _ = hosted.changed();
            }
        });
        if begun.is_err() {
            self.deriving.lock().unwrap_or_else(PoisonError::into_inner).running = false;
        }
    }

    /// With its name in the place of where it lies: that is nobody's business who asks over the network.
    pub(super) fn hidden(&self, problem: Problem) -> Problem {
        self.source.places().iter().fold(problem, |problem, place| problem.calling(place, &self.name))
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// That an engine cannot be asked just now, for whatever reason.
fn out_of_reach(e: &Error) -> Problem {
    let problem = Problem::unavailable(e.to_string());
    let problem = match e.hint() {
        Some(hint) => problem.hint(hint),
        None => problem,
    };
    Problem { again: Some(COME_AGAIN), ..problem }
}

/// Opens an index, with its encoder if that is to be had: without it words can be searched all the same.
fn opened(
    source: &dyn Source,
    hooks: &dyn ServerHooks,
    metrics: &Arc<Metrics>,
    known: &mut Option<Known>,
) -> Result<Opened> {
    let searcher = source.open()?;
    let Some(recipe) = searcher.engine().recipe().cloned() else {
        return Ok(Opened::new(searcher, None, None));
    };
    if known.as_ref().is_none_or(|known| known.recipe != recipe) {
        match know(recipe, &searcher.engine().place(), hooks, metrics) {
            Ok(new) => *known = Some(new),
            Err(e) => {
                *known = None;
                return Ok(Opened::new(searcher, None, Some(e)));
            }
        }
    }
    match known {
        None => Ok(Opened::new(searcher, None, None)),
        Some(Known { encoder, batching, .. }) => {
            Ok(Opened::new(searcher.with_encoder(batching.clone())?, Some(encoder.clone()), None))
        }
    }
}

fn know(recipe: Recipe, place: &str, hooks: &dyn ServerHooks, metrics: &Arc<Metrics>) -> Result<Known> {
    let encoder = hooks.encoder(&recipe, place)?;
    let counted = metrics.clone();
    let batching = Batching::new(encoder.clone(), move |queries| counted.encoded_together(queries))?;
    Ok(Known { recipe, encoder, batching: Arc::new(batching) })
}
