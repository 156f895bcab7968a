//! Formats benchmark results as a table for the terminal, and speeds for the terminal, Markdown and HTML.

use crate::cli::prelude::*;
use turnwise_eval::{
    ann::{Graph, Measured},
    result::Done,
    tasks::Value,
    throughput::Latency,
};

/// Formats the value of a measure in percent. Alignment and uniformity are not percentages and stay as they are.
pub(super) fn shown(value: f64, measure: &str) -> String {
    match measure {
        "alignment" | "adjusted alignment" | "uniformity" => format!("{value:.3}"),
        _ => format!("{:.1}", 100.0 * value),
    }
}

/// Formats a value with its standard deviation over seeds, if there is one.
pub(super) fn cell(value: &Value) -> String {
    let deviation = value.deviation.map(|d| format!(" ± {}", shown(d, &value.measure))).unwrap_or_default();
    format!("{}{deviation}", shown(value.value, &value.measure))
}

/// Returns all measures of some results, in the order of first occurrence. Some measures exist only for some rankers.
pub(super) fn measures(results: &[Done]) -> Vec<&str> {
    let mut measures: Vec<&str> = Vec::new();
    for value in results.iter().flat_map(|done| &done.values) {
        if !measures.contains(&value.measure.as_str()) {
            measures.push(&value.measure);
        }
    }
    measures
}

/// Writes a table with one row per result, after a row for the random baseline.
pub(super) fn write(out: &mut dyn Write, results: &[Done], folder: &Path) -> io::Result<()> {
    let Some(first) = results.first() else { return Ok(()) };
    let measures = measures(results);
    let floor = |measure: &&str| {
        let value = results.iter().find_map(|result| result.value(measure));
        value.and_then(|value| value.floor).map_or_else(String::new, |floor| shown(floor, measure))
    };
    let mut rows = vec![("random baseline".to_owned(), measures.iter().map(floor).collect::<Vec<String>>())];
    for result in results {
        let cells = measures.iter().map(|measure| result.value(measure).map_or_else(|| "–".to_owned(), cell));
        rows.push((result.ranker.clone(), cells.collect()));
    }
    let width = |column: usize| {
        let cells = rows.iter().map(|(_, cells)| cells[column].chars().count());
        cells.max().unwrap_or(0).max(measures[column].chars().count())
    };
    let names = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    writeln!(out, "{BOLD}{}{BOLD:#}", first.about)?;
    writeln!(out, "{DIM}{}: {}{DIM:#}", first.data.paths.join(", "), first.data.size)?;
    writeln!(out)?;
    write!(out, "{:names$}", "")?;
    for (column, measure) in measures.iter().enumerate() {
        write!(out, "  {BOLD}{measure:>width$}{BOLD:#}", width = width(column))?;
    }
    writeln!(out)?;
    for (name, cells) in &rows {
        write!(out, "{name:names$}")?;
        for (column, cell) in cells.iter().enumerate() {
            write!(out, "  {cell:>width$}", width = width(column))?;
        }
        writeln!(out)?;
    }
    writeln!(out)?;
    for skipped in &first.skipped {
        let (count, more) = (grouped(skipped.count), if skipped.count > 1 { ", …" } else { "" });
        writeln!(out, "skipped: {count} {} ({}{more})", skipped.what, skipped.first)?;
    }
    if first.seeds.len() > 1 {
        writeln!(out, "{DIM}mean ± deviation over {} seeds{DIM:#}", first.seeds.len())?;
    }
    writeln!(out, "{DIM}results with per-query values are in {}{DIM:#}", folder.display())
}

/// Names of the columns that [`cells`] returns.
pub(super) const NAMES: [&str; 5] = ["queries/s", "all threads", "p50 µs", "p95 µs", "p99 µs"];

/// Formats queries per second, on one thread and on all threads, and the 50th, 95th and 99th percentile of the latency.
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

/// Formats a number of bytes in MB.
pub(super) fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
