//! Recall against speed of a graph over vectors: what is found of the nearest, how fast, and what building it takes.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use turnwise_nearest::{
    Ask, BuildOptions, Frozen, Hit, Metric, Originals, Points, Scratch, freeze, products,
};

use super::{
    rank::{Progress, Step},
    result::{file_name, machine},
    result_store,
    throughput::{Latency, a_second},
};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
    random::Random,
};
use turnwise_encoder::Vectors;

const SCHEMA: &str = "turnwise/bench-ann/1";
/// All queries are asked so many times; of each setting the fastest time through counts.
const PASSES: usize = 3;
/// All vectors are looked at for so many queries, at most: it takes the same for each.
const EXACT: usize = 200;
/// Scores that differ by less are the same: sums in another order are as far apart.
const SAME: f32 = 1e-6;

/// What is measured.
#[derive(Debug, Clone)]
pub struct Sweep {
    /// How many nearest are asked for.
    pub k: usize,
    /// How many candidates a walk keeps, setting by setting.
    pub efs: Vec<usize>,
    /// The graphs.
    pub graphs: Vec<BuildOptions>,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    schema: String,
    /// Where the vectors are from.
    pub data: String,
    /// Their hash.
    pub hash: String,
    /// How many were searched, and of how many numbers each.
    pub vectors: usize,
    /// Of how many numbers each.
    pub dim: usize,
    /// How many were asked for; none of them is among those that are searched.
    pub queries: usize,
    /// How many nearest.
    pub k: usize,
    /// The version of turnwise.
    pub turnwise: String,
    /// The machine, in words.
    pub machine: String,
    /// By which queries were drawn, where they were.
    pub seed: u64,
    /// Threads that built, and that asked where it says so.
    pub threads: usize,
    /// Looking at all vectors, which finds everything.
    pub exact: Setting,
    /// Each graph.
    pub graphs: Vec<Graph>,
}

/// A graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// Who builds it.
    pub builder: String,
    /// Neighbours of a node.
    pub m: usize,
    /// Candidates while building.
    pub ef_construction: usize,
    /// Bits of a number of the stored vectors.
    pub bits: usize,
    /// What building took.
    pub build_seconds: f64,
    /// Memory of the whole process while it was built, the vectors among it, at most; nothing where the system does not tell.
    pub build_bytes: Option<u64>,
    /// The file's size.
    pub file_bytes: u64,
    /// What of it a walk reads: all but the vectors, which are read for the last candidates alone.
    pub walked_bytes: u64,
    /// Setting by setting.
    pub settings: Vec<Setting>,
}

/// How searches did with one setting.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Candidates of a walk; 0 where all are looked at.
    pub ef: usize,
    /// What of the nearest was found, from 0 to 1.
    pub recall: f64,
    /// Queries a second, one after the other on one thread.
    pub qps: f64,
    /// Queries a second on all threads.
    pub qps_all: f64,
    /// What a query takes on one thread.
    #[serde(flatten)]
    pub latency: Latency,
}

impl Graph {
    /// Its name, for people.
    pub fn name(&self) -> String {
        format!("{}, m {}, ef {}, {} bits", self.builder, self.m, self.ef_construction, self.bits)
    }

    /// The fastest setting that finds so much.
    pub fn reaching(&self, recall: f64) -> Option<&Setting> {
        self.settings.iter().filter(|s| s.recall >= recall).max_by(|a, b| a.qps.total_cmp(&b.qps))
    }
}

/// Where vectors come from, for the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// In words.
    pub data: String,
    /// The hash of the vectors.
    pub hash: String,
    /// By which queries were drawn.
    pub seed: u64,
}

/// Those that point anywhere: zeros are near to nothing, and no search finds them.
pub fn pointing(vectors: &Vectors) -> Vectors {
    let mut some = Vectors::new(vectors.dim());
    vectors.rows().filter(|row| row.iter().any(|v| *v != 0.0)).for_each(|row| some.push(row));
    some
}

/// Draws queries from vectors: what remains, and what was drawn.
pub fn draw_queries(vectors: &Vectors, queries: usize, seed: u64) -> (Vectors, Vectors) {
    let mut drawn: Vec<usize> = (0..vectors.len()).collect();
    Random::new(seed, 0).shuffle(&mut drawn);
    let (of_queries, of_rest) = drawn.split_at(queries.min(vectors.len()));
    let taken = |rows: &[usize]| {
        let mut rows = rows.to_vec();
        rows.sort_unstable();
        let mut taken = Vectors::new(vectors.dim());
        rows.iter().for_each(|row| taken.push(vectors.row(*row)));
        taken
    };
    (taken(of_rest), taken(of_queries))
}

/// Measures. Graphs are built into a folder and removed from it.
pub fn measure(
    base: &Vectors,
    queries: &Vectors,
    sweep: &Sweep,
    source: Source,
    folder: &Path,
    watch: &dyn Progress,
) -> Result<Measured> {
    if queries.is_empty() || base.len() < sweep.k || base.dim() != queries.dim() {
        return Err(Error::Data {
            message: format!(
                "{} vectors of {} numbers and {} queries of {}: {} nearest cannot be looked for",
                base.len(),
                base.dim(),
                queries.len(),
                queries.dim(),
                sweep.k
            ),
            hint: Some("there must be queries, as wide as the vectors, and at least k vectors".to_owned()),
        });
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
        let path = Removed(files::beside(&folder.join("ann.graph")));
        let building = Building { watch, most: AtomicU64::new(0) };
        let started = Instant::now();
        freeze(&points, options, &path.0, &building)?;
        let build_seconds = started.elapsed().as_secs_f64();
        watch.check()?;
        let frozen = Frozen::open(&path.0)?;
        if exact.is_none() {
            let ask = Ask { k: sweep.k, exact: true, ..Ask::default() };
            let some = queries.len().min(EXACT);
            let of_some = Vectors::from_flat(queries.dim(), queries.flat()[..some * queries.dim()].to_vec());
            exact = Some(timed(&frozen, &of_some.unwrap_or_default(), &ask, 0, &least[..some], 1)?);
        }
        let mut settings = Vec::new();
        for (n, ef) in sweep.efs.iter().enumerate() {
            watch.check()?;
            let ask = Ask {
                k: sweep.k,
                ef: *ef,
                rerank: (*ef).clamp(sweep.k, 2 * sweep.k.max(16)),
                ..Ask::default()
            };
            settings.push(timed(&frozen, queries, &ask, *ef, &least, PASSES)?);
            watch.done(Step::Ranking, n + 1, sweep.efs.len());
        }
        let info = frozen.info();
        let bits = if options.originals == Originals::F16 { 16 } else { 32 };
        graphs.push(Graph {
            builder: options.builder.name().to_owned(),
            m: options.m,
            ef_construction: options.ef,
            bits,
            build_seconds,
            build_bytes: Some(building.most.into_inner()).filter(|most| *most > 0),
            file_bytes: info.bytes as u64,
            walked_bytes: (info.bytes - info.nodes * base.dim() * bits / 8) as u64,
            settings,
        });
    }
    let exact = exact.ok_or_else(|| Error::input("no graph was asked for"))?;
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

/// The score of each query's k-th nearest, by looking at all: what is as near counts as found, so that which of equally near
/// ones is found does not matter.
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

/// Asks all queries, one after the other and then on all threads.
fn timed(
    frozen: &Frozen,
    queries: &Vectors,
    ask: &Ask<'_>,
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
            frozen.search(query, ask, &mut scratch, &mut hits)?;
            of_pass.push(started.elapsed());
            // A node stands for all rows that have its vector.
            let rows = hits.iter().flat_map(|hit| frozen.rows(hit.node).iter().map(|_| hit.score));
            found += rows.take(ask.k).filter(|score| *score >= least - SAME).count();
        }
        let all = of_pass.iter().sum();
        if all < best {
            (best, times) = (all, of_pass);
        }
    }
    let asked = |scratch: &mut (Scratch, Vec<Hit>), n: usize| {
        frozen.search(queries.row(n), ask, &mut scratch.0, &mut scratch.1)
    };
    let mut together = Duration::MAX;
    for _ in 0..passes {
        let started = Instant::now();
        (0..queries.len()).into_par_iter().map_init(Default::default, asked).collect::<Result<(), _>>()?;
        together = together.min(started.elapsed());
    }
    Ok(Setting {
        ef,
        recall: found as f64 / (ask.k * queries.len()) as f64,
        qps: a_second(queries.len(), best),
        qps_all: a_second(queries.len(), together),
        latency: Latency::of(times),
    })
}

/// A file that goes when it is no longer needed, whatever happened.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Shows how far building is, and keeps the most memory that it had.
struct Building<'a> {
    watch: &'a dyn Progress,
    most: AtomicU64,
}

impl turnwise_nearest::Progress for Building<'_> {
    fn stop(&self) -> bool {
        self.most.fetch_max(own_bytes().unwrap_or(0), Ordering::Relaxed);
        self.watch.stop()
    }

    fn done(&self, _: turnwise_nearest::Step, done: usize, of: usize) {
        self.watch.done(Step::Linking, done, of);
    }
}

/// The memory of this process that is no file's, where the system tells.
pub fn own_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let own = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    own.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

impl Measured {
    /// The name of its file among results.
    pub fn file_name(&self) -> String {
        let short = |text: &str| text.chars().take(8).collect::<String>();
        let stem = Path::new(&self.data).file_stem().unwrap_or_default().to_string_lossy();
        format!("ann-{}-{}.json", file_name(&stem), short(&self.hash))
    }

    /// Reads one.
    pub fn read(path: &Path) -> Result<Self> {
        result_store::read(path, SCHEMA)
    }

    /// Writes it among results; the file appears whole or not at all.
    pub fn write(&self, folder: &Path) -> Result<()> {
        result_store::write(&folder.join(self.file_name()), self)
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
        assert_eq!(pointing(&some).flat(), vectors(3).flat());
    }

    #[test]
    fn queries_are_drawn_out_of_what_is_searched() {
        let all = vectors(50);
        let (base, queries) = draw_queries(&all, 10, 3);
        assert_eq!((base.len(), queries.len()), (40, 10));
        assert!(queries.rows().all(|query| base.rows().all(|row| row != query)));
        assert_eq!(draw_queries(&all, 10, 3).1.flat(), queries.flat());
        assert_ne!(draw_queries(&all, 10, 4).1.flat(), queries.flat());
    }

    #[test]
    fn a_longer_walk_finds_more_and_looking_at_all_finds_everything() {
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
        assert_eq!(graph.reaching(0.99).unwrap().ef, 200);
        assert_eq!(graph.reaching(1.1), None);
        // The graph is gone, and what was measured can be kept.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        measured.write(folder.path()).unwrap();
        let kept = Measured::read(&folder.path().join("ann-b-01234567.json")).unwrap();
        assert_eq!((kept.graphs[0].settings[1].ef, kept.exact.recall), (200, 1.0));
    }

    #[test]
    fn what_cannot_be_searched_is_told() {
        let (base, queries) = draw_queries(&vectors(5), 1, 1);
        let sweep = Sweep { k: 10, efs: vec![10], graphs: vec![BuildOptions::default()] };
        let source = Source { data: String::new(), hash: String::new(), seed: 1 };
        let e = measure(&base, &queries, &sweep, source, Path::new("."), &()).unwrap_err();
        assert_eq!(
            e.to_string(),
            "4 vectors of 16 numbers and 1 queries of 16: 10 nearest cannot be looked for"
        );
    }
}
