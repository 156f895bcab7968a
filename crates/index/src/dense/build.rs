//! Builds, rebuilds and measures the vector graphs of an index. The old graphs stay searchable during a build.

use std::{fs, path::Path};

use serde::Serialize;

use super::{
    SimilarityDistribution, VectorKeys, folder,
    generation::{self, Dialogues, Generation, GraphStats, Manifest, Utterances, graph_path},
    reader::DenseReader,
};
use crate::vectors::{Kind, VectorReader};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
    ids::{IdKey, Seq, TurnNo},
};
use turnwise_nearest::{
    BuildOptions, Builder, GraphFile, Metric, Points, SearchOptions, measure, write_graph,
};
use turnwise_store::{Snapshot, lock::WriterLock};

const RECALL_QUERIES: usize = 1_000;

/// Result of [`build`] and [`rebuild`].
#[derive(Debug, Clone, Serialize)]
pub struct Built {
    /// True if graphs were built; false if the graphs in use were already up to date.
    pub new: bool,
    /// Manifest of the graphs that are now in use.
    pub manifest: Manifest,
}

/// Builds the graphs of an index, unless the graphs in use are up to date. Returns `None` if the index has no vectors.
/// If the build fails or is canceled, the graphs in use stay unchanged.
pub fn build(
    root: &Path,
    snapshot: &Snapshot,
    options: &BuildOptions,
    command: &str,
    watch: &dyn Progress,
) -> Result<Option<Built>> {
    let _lock = lock(root, command)?;
    let Some(vectors) = VectorReader::open(root)? else { return Ok(None) };
    match current(root, snapshot, &vectors, options) {
        Some(Generation { folder, manifest, .. }) => {
            // Remove old graphs that a crash right after a switch may have left.
            generation::remove_others(root, &folder);
            Ok(Some(Built { new: false, manifest }))
        }
        None => make(root, snapshot, &vectors, options, watch).map(Some),
    }
}

/// Builds the graphs of an index, even if the graphs in use are up to date. Otherwise works like [`build`].
pub fn rebuild(
    root: &Path,
    snapshot: &Snapshot,
    options: &BuildOptions,
    command: &str,
    watch: &dyn Progress,
) -> Result<Option<Built>> {
    let _lock = lock(root, command)?;
    let Some(vectors) = VectorReader::open(root)? else { return Ok(None) };
    make(root, snapshot, &vectors, options, watch).map(Some)
}

fn lock(root: &Path, command: &str) -> Result<WriterLock> {
    WriterLock::acquire_named(root, "graphs.lock", command)
}

fn make(
    root: &Path,
    snapshot: &Snapshot,
    vectors: &VectorReader,
    options: &BuildOptions,
    watch: &dyn Progress,
) -> Result<Built> {
    let parent = folder(root);
    fs::create_dir_all(&parent).at("create", &parent)?;
    let last = generation::all(root).into_iter().map(|(number, _)| number).max().unwrap_or(0);
    let path = parent.join((last + 1).to_string());
    fs::create_dir(&path).at("create", &path)?;
    let manifest = fill(&path, snapshot, vectors, options, watch).inspect_err(|_| {
        // If the removal fails, the next build removes the folder.
        let _ = files::remove_folder(&path);
    })?;
    files::sync_folder(&path)?;
    files::sync_folder(&parent)?;
    generation::switch(root, &(last + 1).to_string())?;
    generation::remove_others(root, &path);
    Ok(Built { new: true, manifest })
}

/// Returns the graphs in use if they are undamaged and were built with these options from this snapshot and these
/// vectors; otherwise `None`.
fn current(
    root: &Path,
    snapshot: &Snapshot,
    vectors: &VectorReader,
    options: &BuildOptions,
) -> Option<Generation> {
    let generation = Generation::open(root).ok()??;
    let m = &generation.manifest;
    let has_options = |graph: &GraphFile| {
        let built = graph.info();
        (built.m, built.ef, built.format) == (options.m, options.ef, options.format)
    };
    let same = m.vectors == set_of(vectors)
        && (m.log.as_str(), m.at) == (snapshot.log_id(), snapshot.end())
        && m.builder == options.builder.name()
        && generation.graphs.iter().all(has_options)
        && Kind::ALL.iter().all(|kind| m.part(*kind).vectors == vectors.rows(*kind) as u64);
    (same && generation.verify().is_ok()).then_some(generation)
}

/// Returns the folder name of the vector set.
pub(super) fn set_of(vectors: &VectorReader) -> String {
    vectors.folder().file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn fill(
    path: &Path,
    snapshot: &Snapshot,
    vectors: &VectorReader,
    options: &BuildOptions,
    watch: &dyn Progress,
) -> Result<Manifest> {
    let keys = keys(snapshot, watch)?;
    let dialogues: Vec<(IdKey, Seq)> = keys.iter().map(|d| (d.id.key(), d.seq)).collect();
    Dialogues::write(path, &dialogues)?;
    // Ids are in descending order, so the last turn of a dialogue comes first.
    let utterances = || {
        let turns = |(dialogue, keys): (usize, &'_ VectorKeys)| {
            let turns = keys.turns.iter().rev();
            turns.map(move |(turn, key)| (dialogue as u32, *turn, *key)).collect::<Vec<_>>()
        };
        keys.iter().enumerate().flat_map(turns)
    };
    let table: Vec<(u32, TurnNo)> = utterances().map(|(dialogue, turn, _)| (dialogue, turn)).collect();
    Utterances::write(path, &table)?;
    let graph = |kind: Kind, keys: &mut dyn Iterator<Item = IdKey>| -> Result<GraphStats> {
        let (points, mut part) = gather(vectors, kind, keys)?;
        let path = graph_path(path, kind);
        write_graph(&points, options, &path, &KindProgress(kind, watch))?;
        drop(points);
        let frozen = GraphFile::open(&path)?;
        let recall = measure(&frozen, &SearchOptions::default(), RECALL_QUERIES, &KindProgress(kind, watch))?;
        part.vectors = vectors.rows(kind) as u64;
        part.nodes = frozen.nodes() as u64;
        part.background = SimilarityDistribution::sample(vectors, kind, kind)?;
        if kind == Kind::Dialogues {
            part.of_utterances = SimilarityDistribution::sample(vectors, Kind::Utterances, kind)?;
        }
        (part.recall, part.recall_queries) = (recall.recall, recall.queries as u64);
        Ok(part)
    };
    let manifest = Manifest {
        format: generation::FORMAT,
        turnwise: env!("CARGO_PKG_VERSION").to_owned(),
        vectors: set_of(vectors),
        encoder: vectors.recipe().fingerprint,
        log: snapshot.log_id().to_owned(),
        at: snapshot.end(),
        dialogues_there: keys.len() as u64,
        builder: options.builder.name().to_owned(),
        utterances: graph(Kind::Utterances, &mut utterances().map(|(_, _, key)| key))?,
        dialogues: graph(Kind::Dialogues, &mut keys.iter().map(|d| d.dialogue))?,
        checksums: Vec::new(),
    };
    generation::seal(path, manifest)
}

/// Returns all dialogues with their vector keys, sorted by descending dialogue id.
fn keys(snapshot: &Snapshot, watch: &dyn Progress) -> Result<Vec<VectorKeys>> {
    let mut all = Vec::new();
    let mut records = snapshot.records();
    while let Some(record) = records.next_record() {
        let record = record?;
        all.push(VectorKeys::of(record.dialogue()?, record.seq));
        if all.len().is_multiple_of(1_000) {
            if watch.stop() {
                return Err(turnwise_nearest::interrupted());
            }
            watch.done(Step::Reading, all.len() as u64, snapshot.totals().dialogues);
        }
    }
    all.sort_unstable_by(|a, b| b.id.cmp(&a.id));
    Ok(all)
}

/// Looks up the vectors of `keys`. Returns the vectors as points of a graph, and statistics that count the keys, the
/// keys without a vector and the zero vectors. The position of a key in `keys` becomes the row of its vector in the
/// graph.
fn gather<'a>(
    vectors: &'a VectorReader,
    kind: Kind,
    keys: &mut dyn Iterator<Item = IdKey>,
) -> Result<(Points<'a>, GraphStats)> {
    let mut points = Points::new(Metric::Cosine, vectors.dim())?;
    let mut part = GraphStats::default();
    for key in keys {
        let row = u32::try_from(part.there).map_err(|_| Error::data("more than four billion utterances"))?;
        part.there += 1;
        match vectors.get(kind, &key)? {
            Some(vector) => part.unknown += u64::from(!points.push(row, vector)?),
            None => part.without += 1,
        }
    }
    Ok((points, part))
}

/// Rebuilds the graphs if they are damaged, or were built from a different vector set or log. Returns true if it
/// rebuilt them. Also removes unfinished builds, and all graphs of an index without vectors.
pub fn compact(root: &Path, snapshot: &Snapshot, command: &str, watch: &dyn Progress) -> Result<bool> {
    if !folder(root).is_dir() {
        return Ok(false);
    }
    let _lock = lock(root, command)?;
    let remove = || files::remove_folder(&folder(root)).map(|()| false);
    let Some(vectors) = VectorReader::open(root)? else { return remove() };
    let builder = match Generation::open(root) {
        Ok(None) => return remove(),
        Ok(Some(Generation { folder, manifest, .. })) => {
            if manifest.vectors == set_of(&vectors) && manifest.log == snapshot.log_id() {
                generation::remove_others(root, &folder);
                return Ok(false);
            }
            named(&manifest.builder)
        }
        Err(Error::Corrupt { .. }) => None,
        Err(e) => return Err(e),
    };
    let options = BuildOptions { builder: builder.unwrap_or(Builder::Native), ..BuildOptions::default() };
    make(root, snapshot, &vectors, &options, watch).map(|_| true)
}

/// Returns the builder with this name; `None` if this version of turnwise does not have it.
fn named(name: &str) -> Option<Builder> {
    Builder::ALL.into_iter().find(|builder| builder.name() == name)
}

/// Step of building the vector graphs, for progress reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Reading records. Progress is counted in dialogues.
    Reading,
    /// Building the graph of a kind. Progress is counted in distinct vectors.
    Linking(Kind),
    /// Measuring the recall of the graph of a kind. Progress is counted in queries.
    Measuring(Kind),
}

/// Receives progress reports of a build and can cancel it. A closure of type `Fn() -> bool` implements this trait:
/// `stop` calls the closure.
pub trait Progress: Sync {
    /// Returns true to cancel the build. Called regularly, possibly from several threads.
    fn stop(&self) -> bool;

    /// Reports that `_done` of `_of` items of a step are finished.
    fn done(&self, _step: Step, _done: u64, _of: u64) {}
}

impl<F: Fn() -> bool + Sync> Progress for F {
    fn stop(&self) -> bool {
        self()
    }
}

/// Receives the progress of building the graph of one kind. Forwards each report to the receiver for the whole build.
struct KindProgress<'a>(Kind, &'a dyn Progress);

impl turnwise_nearest::Progress for KindProgress<'_> {
    fn stop(&self) -> bool {
        self.1.stop()
    }

    fn done(&self, step: turnwise_nearest::Step, done: usize, of: usize) {
        let step = match step {
            turnwise_nearest::Step::Linking => Step::Linking(self.0),
            turnwise_nearest::Step::Measuring => Step::Measuring(self.0),
        };
        self.1.done(step, done as u64, of as u64);
    }
}

/// Returns true if the index has vectors and its graphs should be built. This is the case if no usable graphs exist. It
/// is also the case if the dialogues newer than the graphs exceed a tenth of the dialogues in the graphs.
pub fn is_worth_building(root: &Path, snapshot: &Snapshot) -> Result<bool> {
    let Some(reader) = DenseReader::open(root, snapshot)? else { return Ok(false) };
    Ok(reader.manifest().is_none_or(|built| reader.tail() as u64 * 10 > built.dialogues_there))
}

/// Verifies the checksums of the graphs in use. Returns an error if a file is missing or damaged.
pub fn verify(root: &Path) -> Result<()> {
    Generation::open(root)?.map_or(Ok(()), |generation| generation.verify())
}

/// Recall@10 of a graph: the fraction of the 10 true nearest neighbors that a graph search finds.
#[derive(Debug, Clone, Serialize)]
pub struct GraphRecall {
    /// Kind of the vectors: `utterances` or `dialogues`.
    pub of: &'static str,
    /// Number of distinct vectors in the graph.
    pub nodes: u64,
    /// Recall from the manifest, measured after the build; from 0 to 1.
    pub when_built: f64,
    /// Recall measured by [`recall`], from 0 to 1; `None` if no new measurement was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<f64>,
}

/// Returns the stored recall of each graph in use. With `again`, also measures the recall of each graph now. The list
/// is empty if the index has no graphs.
pub fn recall(root: &Path, again: bool, watch: &dyn Progress) -> Result<Vec<GraphRecall>> {
    let Some(generation) = Generation::open(root)? else { return Ok(Vec::new()) };
    let measured = |kind: Kind| {
        let (graph, part) = (&generation.graphs[kind as usize], generation.manifest.part(kind));
        let measure_now = || {
            let watch = KindProgress(kind, watch);
            measure(graph, &SearchOptions::default(), RECALL_QUERIES, &watch).map_err(|e| match e {
                Error::Interrupted { .. } => Error::Interrupted { hint: None },
                e => e,
            })
        };
        let now = again.then(measure_now).transpose()?.map(|measured| measured.recall);
        Ok(GraphRecall { of: kind.name(), nodes: part.nodes, when_built: part.recall, now })
    };
    Kind::ALL.into_iter().map(measured).collect()
}

/// Returns the builder of the graphs in use, even if they are damaged; the default builder if their manifest cannot be
/// read. Returns `None` if the index has no graphs.
pub fn builder(root: &Path) -> Option<Builder> {
    let builder = generation::manifest(root)?.ok().and_then(|manifest| named(&manifest.builder));
    Some(builder.unwrap_or(BuildOptions::default().builder))
}

/// Returns the manifest of the graphs in use; `None` if the index has no graphs.
pub fn in_use(root: &Path) -> Result<Option<Manifest>> {
    Ok(Generation::open(root)?.map(|generation| generation.manifest))
}
