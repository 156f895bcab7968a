//! How fast something is, in words: the same on the screen, in Markdown and on a page.

use crate::cli::printer::grouped;
use turnwise_eval::{ann::Graph, throughput::Latency};

/// The names of the cells.
pub(super) const NAMES: [&str; 5] = ["queries/s", "all threads", "p50 µs", "p95 µs", "p99 µs"];

/// Queries a second on one thread and on all, and what half, 95 and 99 of a hundred take.
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

/// Cells beside each other on the screen.
pub(super) fn beside(cells: [impl AsRef<str>; 5]) -> String {
    let [qps, all, p50, p95, p99] = cells.each_ref().map(AsRef::as_ref);
    format!("{qps:>10}  {all:>11}  {p50:>8}  {p95:>8}  {p99:>8}")
}

/// What building a graph took, and how large it is.
pub(super) fn built(graph: &Graph, threads: usize) -> String {
    let memory =
        graph.build_bytes.map(|bytes| format!(", the process with {} of memory at most", megabytes(bytes)));
    format!(
        "built in {:.2} s on {threads} threads{}; {}, of which a walk reads {}",
        graph.build_seconds,
        memory.unwrap_or_default(),
        megabytes(graph.file_bytes),
        megabytes(graph.walked_bytes)
    )
}

/// Bytes in MB.
pub(super) fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
