//! Metrics in the Prometheus text format.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Upper bounds of the histogram buckets of durations, in seconds.
const SECONDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24];
/// Upper bounds of the histogram buckets of batch sizes.
const BATCH_SIZES: [f64; 7] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

/// Histogram. The text format of Prometheus requires cumulative counts, so the counts are summed when they are written.
#[derive(Debug, Clone)]
struct Histogram {
    /// Upper bounds of the buckets. One more bucket, the last one, has no upper bound.
    ends: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    fn new(ends: &'static [f64]) -> Self {
        Histogram { ends, counts: vec![0; ends.len() + 1], sum: 0.0 }
    }

    fn add(&mut self, value: f64) {
        let bucket = self.ends.iter().position(|end| value <= *end).unwrap_or(self.ends.len());
        self.counts[bucket] += 1;
        self.sum += value;
    }

    fn write(&self, name: &str, labels: &str, out: &mut String) {
        let mut total = 0;
        let joined = if labels.is_empty() { String::new() } else { format!("{labels},") };
        for (n, count) in self.counts.iter().enumerate() {
            total += count;
            let end = self.ends.get(n).map_or_else(|| "+Inf".to_owned(), f64::to_string);
            let _ = writeln!(out, "{name}_bucket{{{joined}le=\"{end}\"}} {total}");
        }
        let braces = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(out, "{name}_sum{braces} {}\n{name}_count{braces} {total}", self.sum);
    }
}

/// All metrics of a server.
pub(super) struct Metrics {
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    seconds: Mutex<BTreeMap<&'static str, Histogram>>,
    batch_sizes: Mutex<Histogram>,
    connections: AtomicU64,
}

/// Metric whose values are read when a client requests the metrics.
pub(super) struct Gauge<'a> {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    /// Labels and value of each time series.
    pub(super) values: Vec<(Vec<(&'static str, &'a str)>, f64)>,
}

impl Metrics {
    pub(super) fn new() -> Self {
        Metrics {
            requests: Mutex::default(),
            seconds: Mutex::default(),
            batch_sizes: Mutex::new(Histogram::new(&BATCH_SIZES)),
            connections: AtomicU64::new(0),
        }
    }

    /// Records the status and the duration of a request that was answered.
    pub(super) fn answered(&self, route: &'static str, status: u16, took: Duration) {
        *lock(&self.requests).entry((route, status)).or_default() += 1;
        let mut seconds = lock(&self.seconds);
        seconds.entry(route).or_insert_with(|| Histogram::new(&SECONDS)).add(took.as_secs_f64());
    }

    /// Records the number of requests whose queries were encoded in one batch.
    pub(super) fn encoded_together(&self, queries: usize) {
        lock(&self.batch_sizes).add(queries as f64);
    }

    pub(super) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn disconnected(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns all metrics and the given gauges in the Prometheus text format.
    pub(super) fn text(&self, gauges: &[Gauge<'_>]) -> String {
        let mut out = String::new();
        head(&mut out, "turnwise_requests_total", "counter", "Answered requests.");
        for ((route, status), count) in lock(&self.requests).iter() {
            let route = escaped(route);
            let _ = writeln!(out, "turnwise_requests_total{{route=\"{route}\",status=\"{status}\"}} {count}");
        }
        let name = "turnwise_request_duration_seconds";
        head(&mut out, name, "histogram", "Time from the headers of a request to its response.");
        for (route, histogram) in lock(&self.seconds).iter() {
            histogram.write(name, &format!("route=\"{}\"", escaped(route)), &mut out);
        }
        let name = "turnwise_queries_encoded_together";
        head(&mut out, name, "histogram", "Requests whose queries were encoded in one batch.");
        lock(&self.batch_sizes).write(name, "", &mut out);
        head(&mut out, "turnwise_connections", "gauge", "Open connections.");
        let _ = writeln!(out, "turnwise_connections {}", self.connections.load(Ordering::Relaxed));
        for gauge in gauges {
            head(&mut out, gauge.name, "gauge", gauge.about);
            for (labels, value) in &gauge.values {
                let labels: Vec<String> =
                    labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
                let braces =
                    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
                let _ = writeln!(out, "{}{braces} {value}", gauge.name);
            }
        }
        out
    }
}

fn head(out: &mut String, name: &str, kind: &str, about: &str) {
    let _ = writeln!(out, "# HELP {name} {about}\n# TYPE {name} {kind}");
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Locks a mutex, even if another thread panicked while it held the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_in_the_prometheus_format() {
        let metrics = Metrics::new();
        metrics.answered("/v1/search", 200, Duration::from_millis(3));
        metrics.answered("/v1/search", 200, Duration::from_secs(20));
        metrics.answered("/v1/search", 400, Duration::from_micros(10));
        metrics.encoded_together(3);
        let gauge = Gauge { name: "x", about: "An x.", values: vec![(vec![("index", "a\"b")], 2.0)] };
        let text = metrics.text(&[gauge]);
        for line in [
            "turnwise_requests_total{route=\"/v1/search\",status=\"200\"} 2",
            "turnwise_request_duration_seconds_bucket{route=\"/v1/search\",le=\"0.001\"} 1",
            "turnwise_request_duration_seconds_bucket{route=\"/v1/search\",le=\"0.005\"} 2",
            "turnwise_request_duration_seconds_bucket{route=\"/v1/search\",le=\"+Inf\"} 3",
            "turnwise_request_duration_seconds_count{route=\"/v1/search\"} 3",
            "turnwise_queries_encoded_together_bucket{le=\"4\"} 1",
            "turnwise_queries_encoded_together_sum 3",
            "x{index=\"a\\\"b\"} 2",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
