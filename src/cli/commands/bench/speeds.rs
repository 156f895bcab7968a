//! Speed measurements as text, shared by the terminal, Markdown and HTML output.

use crate::cli::printer::grouped;
use turnwise_eval::{ann::Graph, throughput::Latency};

/// Column names.
pub(super) const NAMES: [&str; 5] = ["queries/s", "all threads", "p50 µs", "p95 µs", "p99 µs"];

/// Queries per second on one thread and on all threads, and the 50th, 95th and 99th percentile of the latency.
pub(super) fn cells(qps: f64, qps_all: f64, latency: &Latency) -> [String; 5] {
    let micros = |time: f64| format!("{time:.0}");
    [
        grouped(qps as u64),
        grouped(qps_all as u64),
        micros(latency.p50_us),
        micros(latency.p95_us),
        micros(latency.p99_us),
    ]
}

/// Formats the cells as one row for the terminal.
pub(super) fn row(cells: [impl AsRef<str>; 5]) -> String {
    let [qps, all, p50, p95, p99] = cells.each_ref().map(AsRef::as_ref);
    format!("{qps:>10}  {all:>11}  {p50:>8}  {p95:>8}  {p99:>8}")
}

/// Describes the build time and the size of a graph.
pub(super) fn built(graph: &Graph, threads: usize) -> String {
    let memory = graph.build_bytes.map(|bytes| format!(" with at most {} of memory", megabytes(bytes)));
    format!(
        "built in {:.2} s on {threads} threads{}; {}, of which a search reads {}",
        graph.build_seconds,
        memory.unwrap_or_default(),
        megabytes(graph.file_bytes),
        megabytes(graph.walked_bytes)
    )
}

/// Formats bytes as MB.
pub(super) fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
