//! Benchmark of approximate nearest neighbor search: recall, speed and build cost of graphs over vectors.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use turnwise_nearest::{
    BuildOptions, GraphFile, Hit, Metric, Points, Scratch, SearchOptions, VectorFormat, products, write_graph,
};

use super::{
    rank::{Progress, Step},
    result::{self, machine, stem},
    throughput::{Latency, a_second},
};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
    random::Random,
};
use turnwise_encoder::Vectors;

const SCHEMA: &str = "turnwise/bench-ann/1";
/// Number of passes over all queries for each setting. Only the fastest pass counts.
const PASSES: usize = 3;
/// Maximum number of queries with which exact search is timed. The time of exact search hardly varies between queries,
/// so few queries are enough.
const EXACT: usize = 200;
/// Tolerance for comparing scores. A score can change by this amount if its terms are summed in a different order.
const SAME: f32 = 1e-6;

/// Settings of the benchmark for approximate nearest neighbor search.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// Number of nearest neighbors to find.
    pub k: usize,
    /// Beam widths of the search (ef), one per setting.
    pub efs: Vec<usize>,
    /// Build options, one per graph.
    pub graphs: Vec<BuildOptions>,
}

/// Results of the benchmark for approximate nearest neighbor search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    schema: String,
    /// Source of the vectors, for example a file name.
    pub data: String,
    /// Hash of the vectors.
    pub hash: String,
    /// Number of vectors that are searched.
    pub vectors: usize,
    /// Dimension of the vectors.
    pub dim: usize,
    /// Number of queries.
    pub queries: usize,
    /// Number of nearest neighbors to find per query.
    pub k: usize,
    /// Version of turnwise.
    pub turnwise: String,
    /// Description of the machine.
    pub machine: String,
    /// Random seed with which the queries were drawn from the vectors. The seed has no meaning if the queries were not
    /// drawn from the vectors.
    pub seed: u64,
    /// Number of threads for building and for multi-threaded search.
    pub threads: usize,
    /// Performance of exact search over all vectors.
    pub exact: Setting,
    /// Results of each graph.
    pub graphs: Vec<Graph>,
}

/// Build cost and search performance of a graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// Name of the graph builder.
    pub builder: String,
    /// Number of neighbors per node (M).
    pub m: usize,
    /// Beam width during the build (ef_construction).
    pub ef_construction: usize,
    /// Number of bits per component of the stored vectors.
    pub bits: usize,
    /// Build time in seconds.
    pub build_seconds: f64,
    /// Peak anonymous memory of the process during the build, in bytes. It includes the vectors. `None` if unknown.
    pub build_bytes: Option<u64>,
    /// Size of the graph file in bytes.
    pub file_bytes: u64,
    /// Size of the graph file without the full vectors, in bytes. A search traverses this part of the file. The
    /// search reads full vectors only for the final candidates.
    pub walked_bytes: u64,
    /// Search performance with each setting.
    pub settings: Vec<Setting>,
}

/// Search performance with one setting.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Beam width of the search (ef); 0 for exact search.
    pub ef: usize,
    /// Fraction of the k exact nearest neighbors that the search found, from 0 to 1.
    pub recall: f64,
    /// Queries per second on one thread.
    pub qps: f64,
    /// Queries per second on all threads.
    pub qps_all: f64,
    /// Latency of a query on one thread.
    #[serde(flatten)]
    pub latency: Latency,
}

impl Graph {
    /// Returns a display name that contains the build options.
    pub fn name(&self) -> String {
        format!("{}, m {}, ef {}, {} bits", self.builder, self.m, self.ef_construction, self.bits)
    }
}

/// Source of the vectors, for the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Description of the source, for example a file name.
    pub data: String,
    /// Hash of the vectors.
    pub hash: String,
    /// Random seed with which the queries were drawn.
    pub seed: u64,
}

/// Returns the vectors without zero vectors. A zero vector has no direction, so no cosine search finds it.
pub fn nonzero(vectors: &Vectors) -> Vectors {
    let mut some = Vectors::new(vectors.dim());
    vectors.rows().filter(|row| row.iter().any(|v| *v != 0.0)).for_each(|row| some.push(row));
    some
}

/// Draws at most `queries` random vectors as queries. Returns the remaining vectors and the queries.
pub fn draw_queries(vectors: &Vectors, queries: usize, seed: u64) -> (Vectors, Vectors) {
    let mut drawn: Vec<usize> = (0..vectors.len()).collect();
    Random::new(seed, 0).shuffle(&mut drawn);
    let (query_rows, other_rows) = drawn.split_at(queries.min(vectors.len()));
    let select = |rows: &[usize]| {
        let mut rows = rows.to_vec();
        rows.sort_unstable();
        let mut selected = Vectors::new(vectors.dim());
        rows.iter().for_each(|row| selected.push(vectors.row(*row)));
        selected
    };
    (select(other_rows), select(query_rows))
}

/// Runs the benchmark. Stores graphs as temporary files in `folder`.
///
/// Returns an error if there are no queries, fewer than k vectors or no graphs. Also returns an error if vectors and
/// queries have different dimensions.
pub fn measure(
    base: &Vectors,
    queries: &Vectors,
    sweep: &Sweep,
    source: Source,
    folder: &Path,
    watch: &dyn Progress,
) -> Result<Measured> {
    if queries.is_empty() || base.len() < sweep.k || base.dim() != queries.dim() {
        return Err(Error::data(format!(
            "cannot search {} vectors of dimension {} with {} queries of dimension {} for the {} nearest",
            base.len(),
            base.dim(),
            queries.len(),
            queries.dim(),
            sweep.k
        ))
        .with_hint("needed are at least one query, at least k vectors, and the same dimension for both"));
    }
    let mut points = Points::new(Metric::Cosine, base.dim())?;
    for (row, vector) in base.rows().enumerate() {
        points.push(row as u32, vector)?;
    }
    let least = kth_scores(base, queries, sweep.k, watch)?;
    let mut graphs = Vec::new();
    let mut exact = None;
    std::fs::create_dir_all(folder).at("create", folder)?;
    for options in &sweep.graphs {
        let path = TemporaryFile(files::temporary_path(&folder.join("ann.graph")));
        let building = Building { watch, peak: AtomicU64::new(0) };
        let started = Instant::now();
        write_graph(&points, options, &path.0, &building)?;
        let build_seconds = started.elapsed().as_secs_f64();
        watch.check()?;
        let graph = GraphFile::open(&path.0)?;
        if exact.is_none() {
            let search = SearchOptions { k: sweep.k, exact: true, ..SearchOptions::default() };
            let some = queries.len().min(EXACT);
            let of_some = Vectors::from_flat(queries.dim(), queries.flat()[..some * queries.dim()].to_vec());
            exact = Some(timed(&graph, &of_some.unwrap_or_default(), &search, 0, &least[..some], 1)?);
        }
        let mut settings = Vec::new();
        for (n, ef) in sweep.efs.iter().enumerate() {
            watch.check()?;
            let search = SearchOptions {
                k: sweep.k,
                ef: *ef,
                rerank: (*ef).clamp(sweep.k, 2 * sweep.k.max(16)),
                ..SearchOptions::default()
            };
            settings.push(timed(&graph, queries, &search, *ef, &least, PASSES)?);
            watch.done(Step::Ranking, n + 1, sweep.efs.len());
        }
        let info = graph.info();
        let bits = if options.format == VectorFormat::F16 { 16 } else { 32 };
        graphs.push(Graph {
            builder: options.builder.name().to_owned(),
            m: options.m,
            ef_construction: options.ef,
            bits,
            build_seconds,
            build_bytes: Some(building.peak.into_inner()).filter(|peak| *peak > 0),
            file_bytes: info.bytes as u64,
            walked_bytes: (info.bytes - info.nodes * base.dim() * bits / 8) as u64,
            settings,
        });
    }
    let exact = exact.ok_or_else(|| Error::input("no graph was requested"))?;
    Ok(Measured {
        schema: SCHEMA.to_owned(),
        data: source.data,
        hash: source.hash,
        vectors: base.len(),
        dim: base.dim(),
        queries: queries.len(),
        k: sweep.k,
        turnwise: env!("CARGO_PKG_VERSION").to_owned(),
        machine: machine(),
        seed: source.seed,
        threads: rayon::current_num_threads(),
        exact,
        graphs,
    })
}

/// Returns the exact score of the k-th nearest neighbor of each query. Every hit with at least this score counts as
/// correct, so it does not matter which of several vectors with equal scores a search returns.
fn kth_scores(base: &Vectors, queries: &Vectors, k: usize, watch: &dyn Progress) -> Result<Vec<f32>> {
    let kth = |n: usize| {
        let mut scores = Vec::new();
        products(queries.row(n), base.flat(), base.dim(), &mut scores);
        *scores.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1
    };
    let least = (0..queries.len()).into_par_iter().map(kth).collect();
    watch.check()?;
    Ok(least)
}

/// Measures the recall and the speed of a graph with one setting, on one thread and on all threads. `least` contains
/// the minimum score of a correct hit for each query. Only the fastest of several passes counts.
fn timed(
    graph: &GraphFile,
    queries: &Vectors,
    options: &SearchOptions<'_>,
    ef: usize,
    least: &[f32],
    passes: usize,
) -> Result<Setting> {
    let (mut scratch, mut hits): (Scratch, Vec<Hit>) = Default::default();
    let (mut best, mut times, mut found) = (Duration::MAX, Vec::new(), 0);
    for _ in 0..passes {
        let mut of_pass = Vec::with_capacity(queries.len());
        found = 0;
        for (query, least) in queries.rows().zip(least) {
            let started = Instant::now();
            graph.search(query, options, &mut scratch, &mut hits)?;
            of_pass.push(started.elapsed());
            // A node represents all rows that have the same vector, so it counts once for each row.
            let rows = hits.iter().flat_map(|hit| graph.rows(hit.node).iter().map(|_| hit.score));
            found += rows.take(options.k).filter(|score| *score >= least - SAME).count();
        }
        let all = of_pass.iter().sum();
        if all < best {
            (best, times) = (all, of_pass);
        }
    }
    let search = |scratch: &mut (Scratch, Vec<Hit>), n: usize| {
        graph.search(queries.row(n), options, &mut scratch.0, &mut scratch.1)
    };
    let mut together = Duration::MAX;
    for _ in 0..passes {
        let started = Instant::now();
        (0..queries.len()).into_par_iter().map_init(Default::default, search).collect::<Result<(), _>>()?;
        together = together.min(started.elapsed());
    }
    Ok(Setting {
        ef,
        recall: found as f64 / (options.k * queries.len()) as f64,
        qps: a_second(queries.len(), best),
        qps_all: a_second(queries.len(), together),
        latency: Latency::of(times),
    })
}

/// Path of a temporary file, which is removed when this value is dropped.
struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Receiver of the progress of a graph build. It forwards the progress to `watch`, and records the peak memory of the
/// process.
struct Building<'a> {
    watch: &'a dyn Progress,
    peak: AtomicU64,
}

impl turnwise_nearest::Progress for Building<'_> {
    fn stop(&self) -> bool {
        self.peak.fetch_max(own_bytes().unwrap_or(0), Ordering::Relaxed);
        self.watch.stop()
    }

    fn done(&self, _: turnwise_nearest::Step, done: usize, of: usize) {
        self.watch.done(Step::Linking, done, of);
    }
}

/// Returns the anonymous resident memory of this process in bytes. Returns `None` if the system does not report it.
pub fn own_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let own = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    own.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

impl Measured {
    /// Returns the name of the file for these results in the results folder.
    pub fn file_name(&self) -> String {
        let hash: String = self.hash.chars().take(8).collect();
        format!("ann-{}-{hash}.json", stem(&self.data))
    }

    /// Reads results from their file.
    pub fn read(path: &Path) -> Result<Self> {
        result::read_file(path, SCHEMA)
    }

    /// Writes the results to the results folder, atomically.
    pub fn write(&self, folder: &Path) -> Result<()> {
        result::write_file(&folder.join(self.file_name()), self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vectors(n: usize) -> Vectors {
        let mut random = Random::new(5, 0);
        let mut vectors = Vectors::new(16);
        for _ in 0..n {
            let row: Vec<f32> = (0..16).map(|_| random.below(2001) as f32 / 1000.0 - 1.0).collect();
            vectors.push(&row);
        }
        vectors.normalize();
        vectors
    }

    #[test]
    fn zeros_are_left_out() {
        let mut some = vectors(3);
        some.push(&[0.0; 16]);
        assert_eq!(nonzero(&some).flat(), vectors(3).flat());
    }

    #[test]
    fn drawn_queries_are_not_among_the_vectors_searched() {
        let all = vectors(50);
        let (base, queries) = draw_queries(&all, 10, 3);
        assert_eq!((base.len(), queries.len()), (40, 10));
        assert!(queries.rows().all(|query| base.rows().all(|row| row != query)));
        assert_eq!(draw_queries(&all, 10, 3).1.flat(), queries.flat());
        assert_ne!(draw_queries(&all, 10, 4).1.flat(), queries.flat());
    }

    #[test]
    fn a_larger_ef_has_higher_recall_and_exact_search_finds_everything() {
        let (base, queries) = draw_queries(&vectors(3_000), 200, 1);
        let folder = tempfile::tempdir().unwrap();
        let sweep = Sweep { k: 10, efs: vec![10, 200], graphs: vec![BuildOptions::default()] };
        let source = Source { data: "a/b.npy".to_owned(), hash: "0123456789".to_owned(), seed: 1 };
        let measured = measure(&base, &queries, &sweep, source, folder.path(), &()).unwrap();
        let graph = &measured.graphs[0];
        let recalls: Vec<f64> = graph.settings.iter().map(|setting| setting.recall).collect();
        assert_eq!(measured.exact.recall, 1.0);
        assert!(recalls[0] < recalls[1] && recalls[1] > 0.99, "{recalls:?}");
        for setting in graph.settings.iter().chain([&measured.exact]) {
            let latency = setting.latency;
            assert!(latency.p50_us <= latency.p95_us && latency.p95_us <= latency.p99_us);
            assert!(setting.qps > 0.0 && setting.qps_all > 0.0);
        }
        assert!(graph.walked_bytes < graph.file_bytes);
        // The temporary graph file was removed, and the results can be written and read.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        measured.write(folder.path()).unwrap();
        let kept = Measured::read(&folder.path().join("ann-b-01234567.json")).unwrap();
        assert_eq!((kept.graphs[0].settings[1].ef, kept.exact.recall), (200, 1.0));
    }

    #[test]
    fn too_few_vectors_are_an_error() {
        let (base, queries) = draw_queries(&vectors(5), 1, 1);
        let sweep = Sweep { k: 10, efs: vec![10], graphs: vec![BuildOptions::default()] };
        let source = Source { data: String::new(), hash: String::new(), seed: 1 };
        let e = measure(&base, &queries, &sweep, source, Path::new("."), &()).unwrap_err();
        assert_eq!(
            e.to_string(),
            "cannot search 4 vectors of dimension 16 with 1 queries of dimension 16 for the 10 nearest"
        );
    }
}
