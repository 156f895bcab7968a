//! Speed measurements as text, shared by the terminal, Markdown and HTML output.

use crate::cli::printer::grouped;
use turnwise_eval::{
    ann::{Graph, Measured},
    throughput::Latency,
};

/// Column names.
pub(super) const NAMES: [&str; 5] = ["queries/s", "all threads", "p50 µs", "p95 µs", "p99 µs"];

/// Queries per second on one thread and on all threads, and the 50th, 95th and 99th percentile of the latency.
pub(super) fn cells(qps: f64, qps_all: f64, latency: &Latency) -> [String; 5] {
    let micros = |time: f64| format!("{time:.0}");
    let [p50, p95, p99] = [latency.p50_us, latency.p95_us, latency.p99_us].map(micros);
    [grouped(qps as u64), grouped(qps_all as u64), p50, p95, p99]
}

/// Formats the cells as one row for the terminal.
pub(super) fn row(cells: [impl AsRef<str>; 5]) -> String {
    let [qps, all, p50, p95, p99] = cells.each_ref().map(AsRef::as_ref);
    format!("{qps:>10}  {all:>11}  {p50:>8}  {p95:>8}  {p99:>8}")
}

/// Describes the vectors and queries of a measurement of recall and speed.
pub(super) fn sizes(measured: &Measured) -> String {
    let (vectors, queries) = (grouped(measured.vectors as u64), grouped(measured.queries as u64));
    let Measured { dim, k, .. } = measured;
    format!("{vectors} vectors with {dim} dimensions, {queries} queries, {k} nearest neighbors")
}

/// Describes the build time and the size of a graph.
pub(super) fn built(graph: &Graph, threads: usize) -> String {
    let memory = graph.build_bytes.map(|bytes| format!(" with at most {} of memory", megabytes(bytes)));
    let (seconds, memory) = (graph.build_seconds, memory.unwrap_or_default());
    let (file, read) = (megabytes(graph.file_bytes), megabytes(graph.walked_bytes));
    format!("built in {seconds:.2} s on {threads} threads{memory}; {file}, of which a search reads {read}")
}

/// Formats bytes as MB.
pub(super) fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
