//! Our sides of `benchmarks/index/compare.py`: a graph over vectors is built, or opened, and searched.
//!
//!     cargo bench -p turnwise-nearest --bench nearest -- BASE.f32 QUERIES.f32 DIM GRAPH [--builder native] [--m 16]
//!         [--ef 128] [--half] [--threads N]
//!
//! Files are rows of little-endian f32. If GRAPH is not there, it is built. What is printed is a JSON object a line: the
//! graph, then for growing `ef` what one thread does in queries a second of processor time, the 50th and 99th of a
//! hundred times by the clock, and the recall at 10. With `--scan`: instead, from how many vectors on a walk is faster than
//! looking at all.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::time::{Duration, Instant};

use turnwise_nearest::{Ask, BuildOptions, Builder, Frozen, Metric, Originals, Points, Scratch, freeze};

const K: usize = 10;
const ROUNDS: usize = 3;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let named = |name: &str| arguments.iter().position(|a| a == name).map(|at| arguments[at + 1].as_str());
    let [base, queries, dim, path] = &arguments[..4] else { unreachable!() };
    let dim: usize = dim.parse().expect("DIM");
    let number = |name: &str, default: usize| named(name).map_or(default, |n| n.parse().expect("a number"));
    let builder =
        *Builder::ALL.iter().find(|b| Some(b.name()) == named("--builder")).unwrap_or(&Builder::HnswRs);
    let originals = if arguments.iter().any(|a| a == "--half") { Originals::F16 } else { Originals::F32 };
    let options = BuildOptions { builder, m: number("--m", 16), ef: number("--ef", 128), originals };
    let threads = number("--threads", 1);
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().unwrap();

    let (base, queries) = (floats(base), floats(queries));
    if arguments.iter().any(|a| a == "--scan") {
        return crossover(&base, &queries, dim, &options);
    }
    let path = std::path::Path::new(path);
    if !path.exists() {
        let points = points(&base, dim);
        let (clock, cpu) = (Instant::now(), processor_time());
        freeze(&points, &options, path, &|| false).unwrap();
        println!(
            r#"{{"build_seconds": {:.3}, "build_cpu_seconds": {:.3}, "threads": {threads}}}"#,
            clock.elapsed().as_secs_f64(),
            (processor_time() - cpu).as_secs_f64(),
        );
    }
    let opening = Instant::now();
    let frozen = Frozen::open(path).unwrap();
    let opening = opening.elapsed();
    println!(
        r#"{{"builder": "{}", "nodes": {}, "open_ms": {:.3}, "file_bytes": {}}}"#,
        frozen.info().builder.name(),
        frozen.nodes(),
        opening.as_secs_f64() * 1e3,
        frozen.info().bytes,
    );
    let queries: Vec<&[f32]> = queries.chunks_exact(dim).collect();
    let (_, _, truth) = run(&frozen, &queries, &Ask { k: K, exact: true, ..Ask::default() }, 1);
    for ef in [10, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384] {
        for rerank in [20, 40].into_iter().filter(|r| *r <= ef.max(20)) {
            let ask = Ask { k: K, ef, rerank, ..Ask::default() };
            let (cpu, times, found) = run(&frozen, &queries, &ask, ROUNDS);
            println!(
                r#"{{"ef": {ef}, "rerank": {rerank}, "recall": {:.5}, "qps_cpu": {:.1}, "p50_us": {:.1}, "p99_us": {:.1}}}"#,
                recall(&found, &truth),
                queries.len() as f64 / cpu.as_secs_f64(),
                percentile(&times, 0.5),
                percentile(&times, 0.99),
            );
        }
    }
}

fn points(base: &[f32], dim: usize) -> Points {
    let mut points = Points::new(Metric::Cosine, dim).unwrap();
    for (row, vector) in base.chunks_exact(dim).enumerate() {
        points.push(row as u32, vector).unwrap();
    }
    points
}

/// Walks and scans among growing numbers of vectors.
fn crossover(base: &[f32], queries: &[f32], dim: usize, options: &BuildOptions) {
    let queries: Vec<&[f32]> = queries.chunks_exact(dim).collect();
    for count in [500, 1_000, 2_000, 3_000, 4_000, 6_000, 8_000, 12_000, 16_000] {
        let frozen = points(&base[..count * dim], dim).frozen(options).unwrap();
        let exact = Ask { k: K, exact: true, ..Ask::default() };
        let (scan, _, truth) = run(&frozen, &queries, &exact, ROUNDS);
        for ef in [32, 64, 128] {
            let (walk, _, found) =
                run(&frozen, &queries, &Ask { k: K, ef, walk: true, ..Ask::default() }, ROUNDS);
            println!(
                r#"{{"vectors": {count}, "ef": {ef}, "scan_us": {:.1}, "walk_us": {:.1}, "recall": {:.5}}}"#,
                scan.as_secs_f64() * 1e6 / queries.len() as f64,
                walk.as_secs_f64() * 1e6 / queries.len() as f64,
                recall(&found, &truth),
            );
        }
    }
}

/// Nodes and scores of each query.
type Found = Vec<Vec<(u32, f32)>>;

/// The best of the rounds in processor time, its times by the clock, and what was found.
fn run(frozen: &Frozen, queries: &[&[f32]], ask: &Ask, rounds: usize) -> (Duration, Vec<Duration>, Found) {
    let (mut scratch, mut hits) = (Scratch::default(), Vec::new());
    let mut best = (Duration::MAX, Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (mut times, mut found) = (Vec::new(), Vec::new());
        let cpu = processor_time();
        for query in queries {
            let started = Instant::now();
            frozen.search(query, ask, &mut scratch, &mut hits).unwrap();
            times.push(started.elapsed());
            found.push(hits.iter().map(|hit| (hit.node, hit.score)).collect());
        }
        let cpu = processor_time() - cpu;
        if cpu < best.0 {
            best = (cpu, times, found);
        }
    }
    best
}

/// A node counts if it is as near as the last of the truth: which of equally near ones is found does not matter.
fn recall(found: &Found, truth: &Found) -> f64 {
    let hits = found.iter().zip(truth).map(|(found, truth)| {
        let least = truth.last().map_or(f32::MIN, |hit| hit.1);
        found.iter().filter(|hit| hit.1 >= least).count()
    });
    hits.sum::<usize>() as f64 / truth.iter().map(Vec::len).sum::<usize>() as f64
}

fn percentile(times: &[Duration], part: f64) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[((times.len() as f64 * part) as usize).min(times.len() - 1)].as_secs_f64() * 1e6
}

fn floats(path: &str) -> Vec<f32> {
    let bytes = std::fs::read(path).expect("a file of f32");
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// What this process has had of the processors.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
