//! Throughput of an index: indexing speed, search latency and queries per second.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::result::{self, machine, stem};
use turnwise_core::error::Result;

const SCHEMA: &str = "turnwise/bench-throughput/1";

/// Result of a throughput benchmark.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    schema: String,
    /// Paths of the indexed files and folders.
    pub paths: Vec<String>,
    /// Number of dialogues.
    pub dialogues: u64,
    /// Number of turns.
    pub turns: u64,
    /// Total size of the indexed files in bytes.
    pub bytes: u64,
    /// Name of the remote engine that contained the index; `None` for a local index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Name of the encoder that produced the vectors.
    pub encoder: String,
    /// Version of turnwise that ran the benchmark.
    pub turnwise: String,
    /// Description of the machine.
    pub machine: String,
    /// Number of threads.
    pub threads: usize,
    /// Indexing steps, in order.
    pub steps: Vec<Pace>,
    /// Search measurements, one per mode.
    pub searches: Vec<Searches>,
}

/// Elapsed time and number of processed units of one indexing step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// Name of the step.
    pub step: String,
    /// Number of units that were processed.
    pub count: u64,
    /// Name of the unit, for example `turns`.
    pub unit: String,
    /// Elapsed time in seconds.
    pub seconds: f64,
}

impl Pace {
    /// Runs `f` and measures the elapsed time. `f` returns the number of processed units.
    pub fn of(step: &str, unit: &str, f: impl FnOnce() -> Result<u64>) -> Result<Self> {
        let started = Instant::now();
        let count = f()?;
        let seconds = started.elapsed().as_secs_f64();
        Ok(Pace { step: step.to_owned(), count, unit: unit.to_owned(), seconds })
    }

    /// Returns the number of units that this step processed per second.
    pub fn a_second(&self) -> f64 {
        self.count as f64 / self.seconds.max(1e-9)
    }
}

/// Search performance in one search mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Searches {
    /// Search mode: lexical, dense or hybrid.
    pub mode: String,
    /// Number of queries.
    pub queries: usize,
    /// Queries per second on one thread.
    pub qps: f64,
    /// Latency of single queries.
    pub latency: Latency,
    /// Queries per second on all threads.
    pub qps_all: f64,
}

/// Latency percentiles, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// 95th percentile of the latency in microseconds.
    pub p95_us: f64,
    /// 99th percentile of the latency in microseconds.
    pub p99_us: f64,
}

impl Latency {
    /// Computes the percentiles of query times, which can be in any order. If there are no times, all percentiles are
    /// 0.
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |part: f64| {
            let place = ((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1));
            times.get(place).map_or(0.0, |time| time.as_secs_f64() * 1e6)
        };
        Latency { p50_us: at(0.5), p95_us: at(0.95), p99_us: at(0.99) }
    }
}

/// Returns a rate per second: `count` divided by `time` in seconds.
pub fn a_second(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}

impl Throughput {
    /// Creates a result for an index of the files in `paths`, with no steps and no searches yet. `bytes` is the total
    /// size of the files.
    pub fn new(paths: Vec<String>, bytes: u64) -> Self {
        Throughput {
            schema: SCHEMA.to_owned(),
            paths,
            dialogues: 0,
            turns: 0,
            bytes,
            engine: None,
            encoder: String::new(),
            turnwise: env!("CARGO_PKG_VERSION").to_owned(),
            machine: machine(),
            threads: rayon::current_num_threads(),
            steps: Vec::new(),
            searches: Vec::new(),
        }
    }

    /// Returns the indexed paths and the name of the remote engine as one text, for reports.
    pub fn subject(&self) -> String {
        let paths = self.paths.join(", ");
        match &self.engine {
            Some(engine) => format!("{paths} in {engine}"),
            None => paths,
        }
    }

    /// Reads a result from its file.
    pub fn read(path: &Path) -> Result<Self> {
        result::read_file(path, SCHEMA)
    }

    /// Writes the result to the results folder. Replaces an earlier result for the same paths, encoder and engine.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let stem = self.paths.first().map(|path| stem(path)).unwrap_or_default();
        let engine = self.engine.as_deref().unwrap_or_default();
        let hash = blake3::hash(format!("{:?} {}{engine}", self.paths, self.encoder).as_bytes());
        result::write_file(&folder.join(format!("throughput-{stem}-{}.json", &hash.to_hex()[..8])), self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_percentiles_of_a_uniform_distribution() {
        let latency = Latency::of((1..=1_000).rev().map(Duration::from_micros).collect());
        let rounded = [latency.p50_us, latency.p95_us, latency.p99_us].map(f64::round);
        assert_eq!(rounded, [501.0, 951.0, 991.0]);
        assert_eq!(Latency::of(Vec::new()).p99_us, 0.0);
    }
}
