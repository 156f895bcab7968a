//! An index that is served: open all the time, and opened anew beside what is in use when its files have changed.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    thread,
    time::{Duration, Instant, SystemTime},
};

use super::{app::Opened, batching::Batching, metrics::Metrics, repeated};
use crate::{encoder::Encoder, error::Result, index::vectors::Recipe, search::Searcher, store::Snapshot};

/// Whoever knows where models are, and how an index is brought up to what was written to it.
pub trait Keeper: Send + Sync {
    /// Opens the encoder that made an index's vectors.
    fn encoder(&self, recipe: &Recipe, index: &Path) -> Result<Arc<dyn Encoder>>;

    /// Makes what came searchable, by words and by meaning; what stands in the way is told to whoever looks after the server.
    fn derive(&self, index: &Path);

    /// The report of the benchmarks that were run here, as a page; `None` if there were none.
    fn report(&self) -> Result<Option<String>>;
}

/// A model that is missing is looked for this often.
const AGAIN: Duration = Duration::from_secs(5);
/// No more than this part of the time goes into opening what changes all the time.
const SHARE: u32 = 10;

pub(super) struct Hosted {
    pub(super) name: String,
    pub(super) root: PathBuf,
    keeper: Arc<dyn Keeper>,
    metrics: Arc<Metrics>,
    /// Held by the one request that writes.
    pub(super) writing: Arc<tokio::sync::Mutex<()>>,
    /// Whether something came that was not made searchable yet, and whether somebody does that.
    deriving: Mutex<Deriving>,
    now: RwLock<Arc<Opened>>,
    /// Held by the one who opens anew.
    turn: Mutex<Turn>,
}

#[derive(Default)]
struct Deriving {
    wanted: bool,
    running: bool,
}

struct Turn {
    stamp: Stamp,
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

/// The files of an index, as far as they tell that it changed.
#[derive(Debug, PartialEq)]
struct Stamp(Vec<(PathBuf, u64, Option<SystemTime>)>);

impl Stamp {
    fn of(root: &Path) -> Self {
        let mut files = Vec::new();
        collect(root, 0, &mut files);
        files.sort();
        Stamp(files)
    }
}

fn collect(folder: &Path, depth: usize, files: &mut Vec<(PathBuf, u64, Option<SystemTime>)>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.filter_map(|entry| entry.ok()) {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        // sled's files are the writer's own, and locks and answers tell nothing.
        if name.starts_with("records") || name.contains("lock") || name == repeated::FILE {
            continue;
        }
        match entry.metadata() {
            Ok(data) if data.is_dir() && depth < 2 => collect(&entry.path(), depth + 1, files),
            Ok(data) if data.is_file() => files.push((entry.path(), data.len(), data.modified().ok())),
            _ => {}
        }
    }
}

impl Hosted {
    pub(super) fn open(
        name: String,
        root: PathBuf,
        keeper: Arc<dyn Keeper>,
        metrics: Arc<Metrics>,
    ) -> Result<Self> {
        let begun = Instant::now();
        let mut encoder = None;
        let stamp = Stamp::of(&root);
        let opened = opened(&root, keeper.as_ref(), &metrics, &mut encoder)?;
        Ok(Hosted {
            name,
            root,
            keeper,
            metrics,
            writing: Arc::default(),
            deriving: Mutex::default(),
            now: RwLock::new(Arc::new(opened)),
            turn: Mutex::new(Turn { stamp, opened: (Instant::now(), begun.elapsed()), encoder }),
        })
    }

    /// As it is now. Who holds it goes on with it, whatever is opened meanwhile.
    pub(super) fn now(&self) -> Arc<Opened> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens it anew if its files have changed, but not all the time; gives whether it did. What cannot be opened leaves what
    /// is there.
    pub(super) fn follow(&self) -> Result<bool> {
        let mut turn = self.turn();
        let (when, took) = turn.opened;
        let model_missing = self.now().without_encoder.is_some() && when.elapsed() >= AGAIN;
        if when.elapsed() < took * SHARE {
            return Ok(false);
        }
        let stamp = Stamp::of(&self.root);
        if stamp == turn.stamp && !model_missing {
            return Ok(false);
        }
        self.reopen(&mut turn, stamp).map(|()| true)
    }

    /// Opens it anew, for somebody who has changed it and wants to see that.
    pub(super) fn changed(&self) -> Result<()> {
        let mut turn = self.turn();
        let stamp = Stamp::of(&self.root);
        self.reopen(&mut turn, stamp)
    }

    fn reopen(&self, turn: &mut Turn, stamp: Stamp) -> Result<()> {
        let begun = Instant::now();
        let opened = opened(&self.root, self.keeper.as_ref(), &self.metrics, &mut turn.encoder);
        turn.opened = (Instant::now(), begun.elapsed());
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(opened?);
        turn.stamp = stamp;
        Ok(())
    }

    /// Makes what came searchable, beside everything else; what comes meanwhile is taken up next.
    pub(super) fn derive(self: &Arc<Self>) {
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
                hosted.keeper.derive(&hosted.root);
                let _ = hosted.changed();
            }
        });
        if begun.is_err() {
            self.deriving.lock().unwrap_or_else(PoisonError::into_inner).running = false;
        }
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens an index, with its encoder if that is to be had: without it words can be searched all the same.
fn opened(
    root: &Path,
    keeper: &dyn Keeper,
    metrics: &Arc<Metrics>,
    known: &mut Option<Known>,
) -> Result<Opened> {
    let searcher = Searcher::over(root, Snapshot::open(root)?)?;
    let Some(recipe) = searcher.vectors().map(|dense| dense.vectors().recipe().clone()) else {
        return Ok(Opened::new(searcher, None, None));
    };
    if known.as_ref().is_none_or(|known| known.recipe != recipe) {
        match know(recipe, root, keeper, metrics) {
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

fn know(recipe: Recipe, root: &Path, keeper: &dyn Keeper, metrics: &Arc<Metrics>) -> Result<Known> {
    let encoder = keeper.encoder(&recipe, root)?;
    let counted = metrics.clone();
    let batching = Batching::new(encoder.clone(), move |queries| counted.encoded_together(queries))?;
    Ok(Known { recipe, encoder, batching: Arc::new(batching) })
}
