//! Nearest-neighbor benchmark: builds or opens a graph over unit vectors and searches it. `benchmarks/index/compare.py`
//! runs it.
//!
//!     cargo bench -p turnwise-nearest --bench nearest -- BASE.f32 QUERIES.f32 DIM GRAPH [--builder native] [--m 16]
//!         [--ef 128] [--half] [--threads N] [--efs 48,128]
//!         [--passes 3] [--truth SCORES.f32] [--peer] [--scan] [--filters] [--scaling]
//!
//! BASE and QUERIES contain vectors of DIM numbers, as little-endian f32. GRAPH is built if it does not exist. SCORES
//! contains the score of the tenth nearest vector of each query, also as f32. Without `--truth`, an exact scan computes
//! these scores.
//!
//! Prints JSON objects, one per line. The first objects describe the build and the graph; the last object has the size
//! of the graph. The other objects have the results of searches on one thread, one object per `ef` and number of
//! reranked candidates:
//!
//! - `recall`: recall at 10.
//! - `qps_cpu`: queries per second of CPU time, in the fastest of `--passes` passes over all queries.
//! - `p50_us`, `p99_us`: percentiles of the wall-clock time per query in that pass, in microseconds.
//! - `quiet_p99_us`: 99th percentile of the fastest time of each query in all passes. A single interruption by another
//!   process does not affect it.
//!
//! Options:
//!
//! - `--builder`: `native` or `hnsw_rs` (default). `--m` and `--ef` are the build options, 16 and 128 by default.
//! - `--half`: store the vectors as f16.
//! - `--threads`: number of threads of the build, 1 by default.
//! - `--efs`: values of `ef` for the searches. By default, 36 values from 10 to 384 are measured.
//! - `--passes`: number of passes, 3 by default.
//! - `--peer`: build and search with the crate hnsw_rs instead.
//! - `--scan`: compare scans of all vectors with graph searches, for the first 500 to 16,000 vectors of BASE.
//! - `--filters`: measure searches with filters that allow one row in N.
//! - `--scaling`: measure the build time, alternately on one thread and on `--threads` threads. GRAPH must
//!   not exist.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

#[path = "index/hnsw_rs.rs"]
mod peer;

use turnwise_nearest::{
    BuildOptions, Builder, GraphFile, Metric, NodeSet, Points, Progress, Scratch, SearchMethod,
    SearchOptions, VectorFormat, write_graph,
};

/// The memory allocator mimalloc. The program turnwise also uses mimalloc.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const K: usize = 10;
/// Default of `--efs`: values of `ef`, the number of candidates in the beam search.
const EFS: [usize; 36] = [
    10, 12, 16, 20, 24, 28, 30, 32, 34, 36, 38, 40, 44, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 136,
    144, 152, 160, 176, 192, 208, 224, 256, 288, 320, 384,
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let named = |name: &str| arguments.iter().position(|a| a == name).map(|at| arguments[at + 1].as_str());
    let [base, queries, dim, path] = &arguments[..4] else { unreachable!() };
    let dim: usize = dim.parse().expect("DIM must be an integer");
    let number = |name: &str, default: usize| {
        named(name).map_or(default, |n| n.parse().expect("the value must be an integer"))
    };
    let builder =
        *Builder::ALL.iter().find(|b| Some(b.name()) == named("--builder")).unwrap_or(&Builder::HnswRs);
    let format = if arguments.iter().any(|a| a == "--half") { VectorFormat::F16 } else { VectorFormat::F32 };
    let options = BuildOptions { builder, m: number("--m", 16), ef: number("--ef", 128), format };
    let (threads, passes) = (number("--threads", 1), number("--passes", 3));
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().unwrap();

    let (base, queries) = (Mapped::open(base), floats(queries));
    let base = base.floats();
    let efs: Vec<usize> = named("--efs").map_or_else(
        || EFS.to_vec(),
        |list| list.split(',').map(|ef| ef.parse().expect("the values of --efs must be integers")).collect(),
    );
    let path = std::path::Path::new(path);
    let queries: Vec<&[f32]> = queries.chunks_exact(dim).collect();
    if arguments.iter().any(|a| a == "--scan") {
        return crossover(base, &queries, dim, &options);
    }
    if arguments.iter().any(|a| a == "--scaling") {
        return scaling(&points(base, dim), &options, threads, path);
    }
    let truth = || named("--truth").map_or_else(|| tenths(base, &queries), floats);
    if arguments.iter().any(|a| a == "--peer") {
        let peer = Peer { path, options: &options, efs: &efs, passes };
        return hnsw_rs(base, &queries, &peer, &truth());
    }
    if !path.exists() {
        let points = points(base, dim);
        let (clock, cpu) = (Instant::now(), processor_time());
        let memory = Memory::default();
        write_graph(&points, &options, path, &memory).unwrap();
        println!(
            r#"{{"build_seconds": {:.3}, "build_cpu_seconds": {:.3}, "threads": {threads}, "own_bytes": {}}}"#,
            clock.elapsed().as_secs_f64(),
            (processor_time() - cpu).as_secs_f64(),
            memory.0.into_inner(),
        );
    }
    let opening = Instant::now();
    let graph = GraphFile::open(path).unwrap();
    let opening = opening.elapsed();
    println!(
        r#"{{"builder": "{}", "nodes": {}, "open_ms": {:.3}, "file_bytes": {}}}"#,
        graph.info().builder.name(),
        graph.nodes(),
        opening.as_secs_f64() * 1e3,
        graph.info().bytes,
    );
    if arguments.iter().any(|a| a == "--filters") {
        return filters(&graph, &queries);
    }
    let truth = truth();
    for ef in efs {
        for rerank in [20, 40].into_iter().filter(|r| *r <= ef.max(20)) {
            let run = ours(
                &graph,
                &queries,
                &SearchOptions { k: K, ef, rerank, ..SearchOptions::default() },
                passes,
            );
            report(&format!(r#""ef": {ef}, "rerank": {rerank}"#), run, &truth);
        }
    }
    let info = graph.info();
    let number = if info.format == VectorFormat::F16 { 2 } else { 4 };
    println!(
        r#"{{"walked_bits": {}, "walked_bytes": {}, "resident_bytes": {}}}"#,
        info.code_bits,
        info.bytes - info.nodes * dim * number,
        resident(path),
    );
}

/// Peak anonymous resident memory of this process in bytes. Each call of `stop` measures the memory and updates the
/// peak.
#[derive(Default)]
struct Memory(AtomicUsize);

impl Progress for Memory {
    fn stop(&self) -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let own = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let own = own.and_then(|kib| kib.split_whitespace().next()?.parse::<usize>().ok());
        self.0.fetch_max(own.unwrap_or(0) << 10, Ordering::Relaxed);
        false
    }
}

/// Returns how many bytes of a mapped file are in memory, or 0 if this cannot be read.
fn resident(path: &std::path::Path) -> usize {
    let (name, maps) = (path.file_name().unwrap().to_str().unwrap(), "/proc/self/smaps");
    let maps = std::fs::read_to_string(maps).unwrap_or_default();
    let of_file = maps.lines().skip_while(|line| !line.ends_with(name));
    let rss = of_file.filter_map(|line| line.strip_prefix("Rss:")).next();
    rss.and_then(|rss| rss.split_whitespace().next()?.parse::<usize>().ok()).map_or(0, |kib| kib << 10)
}

/// Settings of the benchmark with hnsw_rs. `path` is the file of the graph.
struct Peer<'a> {
    path: &'a std::path::Path,
    options: &'a BuildOptions,
    efs: &'a [usize],
    passes: usize,
}

/// Measures the crate hnsw_rs: builds its graph if the file does not exist, and searches it.
fn hnsw_rs(base: &[f32], queries: &[&[f32]], Peer { path, options, efs, passes }: &Peer<'_>, truth: &[f32]) {
    let dim = queries[0].len();
    if !path.exists() {
        let (clock, cpu) = (Instant::now(), processor_time());
        let write = peer::build(base, dim, options);
        println!(
            r#"{{"build_seconds": {:.3}, "build_cpu_seconds": {:.3}, "threads": 1}}"#,
            clock.elapsed().as_secs_f64(),
            (processor_time() - cpu).as_secs_f64(),
        );
        write(path);
    }
    let files = peer::open(path);
    let peer = peer::Peer::new(&files);
    for ef in *efs {
        let run = timed(queries, *passes, |query, out| *out = peer.search(query, K, *ef));
        report(&format!(r#""ef": {ef}"#), run, truth);
    }
}

/// Returns the score of the tenth nearest vector of each query, computed with an exact scan.
fn tenths(base: &[f32], queries: &[&[f32]]) -> Vec<f32> {
    let mut scores = Vec::new();
    let tenth = |query: &&[f32]| {
        turnwise_nearest::products(query, base, query.len(), &mut scores);
        *scores.select_nth_unstable_by(K - 1, |a, b| b.total_cmp(a)).1
    };
    queries.iter().map(tenth).collect()
}

fn report(setting: &str, run: Run, truth: &[f32]) {
    println!(
        r#"{{{setting}, "recall": {:.5}, "qps_cpu": {:.1}, "p50_us": {:.1}, "p99_us": {:.1}, "quiet_p99_us": {:.1}}}"#,
        recall(&run.found, truth),
        run.found.len() as f64 / run.cpu.as_secs_f64(),
        percentile(&run.times, 0.5),
        percentile(&run.times, 0.99),
        percentile(&run.fastest, 0.99),
    );
}

fn points(base: &[f32], dim: usize) -> Points<'_> {
    let mut points = Points::new(Metric::Cosine, dim).unwrap();
    for (row, vector) in base.chunks_exact(dim).enumerate() {
        points.push(row as u32, vector).unwrap();
    }
    points
}

/// Measures the time to build the same graph, alternately on one thread and on `threads` threads, three times each.
fn scaling(points: &Points<'_>, options: &BuildOptions, threads: usize, path: &std::path::Path) {
    for _ in 0..3 {
        for threads in [1, threads] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let (clock, cpu) = (Instant::now(), processor_time());
            pool.install(|| write_graph(points, options, path, &|| false)).unwrap();
            println!(
                r#"{{"threads": {threads}, "seconds": {:.3}, "cpu_seconds": {:.3}}}"#,
                clock.elapsed().as_secs_f64(),
                (processor_time() - cpu).as_secs_f64(),
            );
            std::fs::remove_file(path).unwrap();
        }
    }
}

/// Compares exact scans, scans of the quantized vectors, and beam searches, for different numbers of vectors.
fn crossover(base: &[f32], queries: &[&[f32]], dim: usize, options: &BuildOptions) {
    for count in [500, 1_000, 2_000, 3_000, 4_000, 6_000, 8_000, 12_000, 16_000] {
        let graph = points(&base[..count * dim], dim).build(options).unwrap();
        let exact = SearchOptions { k: K, exact: true, ..SearchOptions::default() };
        let scan = ours(&graph, queries, &exact, 1);
        let truth: Vec<f32> = scan.found.iter().map(|hits| hits[K - 1].1).collect();
        let skims = SearchOptions { k: K, method: SearchMethod::Scan, ..SearchOptions::default() };
        let skim = ours(&graph, queries, &skims, 1);
        let micros = |run: &Run| run.cpu.as_secs_f64() * 1e6 / queries.len() as f64;
        println!(
            r#"{{"vectors": {count}, "exact_us": {:.1}, "skim_us": {:.1}, "recall": {:.5}}}"#,
            micros(&scan),
            micros(&skim),
            recall(&skim.found, &truth),
        );
        for ef in [32, 64, 128] {
            let walks =
                SearchOptions { k: K, ef, method: SearchMethod::BeamSearch, ..SearchOptions::default() };
            let walk = ours(&graph, queries, &walks, 1);
            println!(
                r#"{{"vectors": {count}, "ef": {ef}, "walk_us": {:.1}, "recall": {:.5}}}"#,
                micros(&walk),
                recall(&walk.found, &truth),
            );
        }
    }
}

/// Measures the same queries with filters that allow one row in N, for several N. N = 1 means no filter.
///
/// All filters run in turn, three times. The recall is computed only in the first round.
fn filters(graph: &GraphFile, queries: &[&[f32]]) {
    let sets =
        [1, 2, 10, 50, 100, 1_000, 10_000].map(|every| (every, NodeSet::rows(graph, |row| row % every == 0)));
    for round in 0..3 {
        for (every, allowed) in &sets {
            let search = SearchOptions {
                k: K,
                ef: 64,
                filter: (*every > 1).then_some(allowed),
                ..SearchOptions::default()
            };
            let truth: Vec<f32> = if round > 0 {
                Vec::new()
            } else {
                let nearest = ours(graph, queries, &SearchOptions { exact: true, ..search }, 1);
                nearest.found.iter().map(|hits| hits.last().map_or(f32::MIN, |hit| hit.1)).collect()
            };
            let run = ours(graph, queries, &search, 1);
            println!(
                r#"{{"one_in": {every}, "allowed": {}, "us": {:.1}, "p99_us": {:.1}{}}}"#,
                allowed.count(),
                run.cpu.as_secs_f64() * 1e6 / queries.len() as f64,
                percentile(&run.times, 0.99),
                if round > 0 {
                    String::new()
                } else {
                    format!(r#", "recall": {:.5}"#, recall(&run.found, &truth))
                },
            );
        }
    }
}

/// Hits of each query: row and score.
type Found = Vec<Vec<(u32, f32)>>;

/// Result of several passes over all queries.
struct Run {
    /// CPU time of the fastest pass.
    cpu: Duration,
    /// Wall-clock time of each query in the fastest pass.
    times: Vec<Duration>,
    /// Shortest wall-clock time of each query in all passes.
    fastest: Vec<Duration>,
    found: Found,
}

/// Runs all queries `rounds` times. The fastest pass is the one with the least CPU time.
fn timed(queries: &[&[f32]], rounds: usize, mut search: impl FnMut(&[f32], &mut Vec<(u32, f32)>)) -> Run {
    let fastest = vec![Duration::MAX; queries.len()];
    let mut best = Run { cpu: Duration::MAX, times: Vec::new(), fastest, found: Vec::new() };
    for _ in 0..rounds {
        let (mut times, mut found) = (Vec::new(), Vec::new());
        let cpu = processor_time();
        for query in queries {
            let mut hits = Vec::with_capacity(K);
            let started = Instant::now();
            search(query, &mut hits);
            times.push(started.elapsed());
            found.push(hits);
        }
        let cpu = processor_time() - cpu;
        for (fastest, time) in best.fastest.iter_mut().zip(&times) {
            *fastest = (*fastest).min(*time);
        }
        if cpu < best.cpu {
            best = Run { cpu, times, found, ..best };
        }
    }
    best
}

fn ours(graph: &GraphFile, queries: &[&[f32]], search: &SearchOptions, rounds: usize) -> Run {
    let (mut scratch, mut hits) = (Scratch::default(), Vec::new());
    timed(queries, rounds, |query, out| {
        graph.search(query, search, &mut scratch, &mut hits).unwrap();
        // A node can have several rows. Hits are counted in rows, as in the other libraries.
        let rows = hits.iter().flat_map(|hit| graph.rows(hit.node).iter().map(|row| (*row, hit.score)));
        out.extend(rows.take(K));
    })
}

/// Returns the recall at `K`. `tenths` has the score of the tenth nearest vector of each query.
///
/// A hit counts if its score is at least the score in `tenths` minus 10⁻⁶, so the order of ties does not matter.
fn recall(found: &Found, tenths: &[f32]) -> f64 {
    let hits = found
        .iter()
        .zip(tenths)
        .map(|(found, tenth)| found.iter().filter(|hit| hit.1 >= tenth - 1e-6).count());
    hits.sum::<usize>() as f64 / (K * tenths.len()) as f64
}

fn percentile(times: &[Duration], part: f64) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[((times.len() as f64 * part) as usize).min(times.len() - 1)].as_secs_f64() * 1e6
}

/// Memory-mapped file of vectors. An index maps its vectors in the same way.
struct Mapped(memmap2::Mmap);

impl Mapped {
    fn open(path: &str) -> Self {
        let file = std::fs::File::open(path).expect("cannot open the file of vectors");
        // SAFETY: the file is not changed during the benchmark.
        Mapped(unsafe { memmap2::Mmap::map(&file) }.expect("cannot map the file of vectors"))
    }

    fn floats(&self) -> &[f32] {
        // SAFETY: every bit pattern is a valid f32. Pages are aligned, so no bytes are skipped.
        unsafe { self.0.align_to().1 }
    }
}

fn floats(path: &str) -> Vec<f32> {
    let bytes = std::fs::read(path).expect("cannot read the file of numbers");
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Returns the CPU time of all threads of this process.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
