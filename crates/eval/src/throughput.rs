//! How much an index takes in, and how fast it answers.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{
    result::{file_name, machine},
    result_store,
};
use turnwise_core::error::Result;

const SCHEMA: &str = "turnwise/bench-throughput/1";

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    schema: String,
    /// What was taken in.
    pub paths: Vec<String>,
    /// How much of it there was.
    pub dialogues: u64,
    /// Turns.
    pub turns: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// The engine past this machine that took it in, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Who made the vectors.
    pub encoder: String,
    /// The version of turnwise.
    pub turnwise: String,
    /// The machine, in words.
    pub machine: String,
    /// Threads.
    pub threads: usize,
    /// One after the other.
    pub steps: Vec<Pace>,
    /// By mode.
    pub searches: Vec<Searches>,
}

/// How fast something went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// What was done.
    pub step: String,
    /// How many.
    pub count: u64,
    /// Of what.
    pub unit: String,
    /// What it took.
    pub seconds: f64,
}

impl Pace {
    /// Times something that tells how many it did.
    pub fn of(step: &str, unit: &str, f: impl FnOnce() -> Result<u64>) -> Result<Self> {
        let started = Instant::now();
        let count = f()?;
        let seconds = started.elapsed().as_secs_f64();
        Ok(Pace { step: step.to_owned(), count, unit: unit.to_owned(), seconds })
    }

    /// How many a second.
    pub fn a_second(&self) -> f64 {
        self.count as f64 / self.seconds.max(1e-9)
    }
}

/// How searches of one mode did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Searches {
    /// By what.
    pub mode: String,
    /// How many were asked, one after the other.
    pub queries: usize,
    /// How many a second.
    pub qps: f64,
    /// What they take.
    pub latency: Latency,
    /// How many a second on all threads at once.
    pub qps_all: f64,
}

/// What of many times half, 95 and 99 of a hundred do not exceed, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The median.
    pub p50_us: f64,
    /// 95 of 100.
    pub p95_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
}

impl Latency {
    /// Of times in any order.
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |part: f64| {
            let place = ((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1));
            times.get(place).map_or(0.0, |time| time.as_secs_f64() * 1e6)
        };
        Latency { p50_us: at(0.5), p95_us: at(0.95), p99_us: at(0.99) }
    }
}

/// So many in so much time are so many a second.
pub fn a_second(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}

impl Throughput {
    /// Of what was taken in; nothing is measured yet.
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

    /// Of what, and where if that was past this machine.
    pub fn subject(&self) -> String {
        let paths = self.paths.join(", ");
        match &self.engine {
            Some(engine) => format!("{paths} in {engine}"),
            None => paths,
        }
    }

    /// Reads one.
    pub fn read(path: &Path) -> Result<Self> {
        result_store::read(path, SCHEMA)
    }

    /// Keeps it among results; what was measured of the same files before is replaced.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let stem = self.paths.first().map(|path| Path::new(path).file_stem().unwrap_or_default());
        let stem = file_name(&stem.unwrap_or_default().to_string_lossy());
        let engine = self.engine.as_deref().unwrap_or_default();
        let hash = blake3::hash(format!("{:?} {}{engine}", self.paths, self.encoder).as_bytes());
        result_store::write(&folder.join(format!("throughput-{stem}-{}.json", &hash.to_hex()[..8])), self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_times_the_slowest_are_told() {
        let latency = Latency::of((1..=1_000).rev().map(Duration::from_micros).collect());
        let rounded = [latency.p50_us, latency.p95_us, latency.p99_us].map(f64::round);
        assert_eq!(rounded, [501.0, 951.0, 991.0]);
        assert_eq!(Latency::of(Vec::new()).p99_us, 0.0);
    }
}
