//! Formats benchmark results as a table for the terminal, and speeds for the terminal, Markdown and HTML.

use crate::cli::prelude::*;
use turnwise_eval::{
    ann::{Graph, Measured},
    groups::{Group, GroupValue},
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
pub(super) fn measures<'a>(results: impl IntoIterator<Item = &'a Done>) -> Vec<&'a str> {
    let mut measures: Vec<&str> = Vec::new();
    for value in results.into_iter().flat_map(|done| &done.values) {
        if !measures.contains(&value.measure.as_str()) {
            measures.push(&value.measure);
        }
    }
    measures
}

/// Result with its values by category, as it is printed in JSON.
#[derive(Serialize)]
pub(super) struct Printed<'a> {
    #[serde(flatten)]
    done: &'a Done,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<Group>,
}

impl<'a> Printed<'a> {
    /// Adds the values by category to results. `seed` is the seed of the confidence intervals.
    pub(super) fn all(results: &'a [Done], seed: u64) -> Vec<Self> {
        results.iter().map(|done| Printed { done, groups: Group::all(done, seed) }).collect()
    }
}

/// Writes a table with one row per result, after a row for the random baseline. If the results have categories, writes
/// a table for all queries and for each category, with confidence intervals.
pub(super) fn write(out: &mut dyn Write, results: &[Printed<'_>], folder: &Path) -> io::Result<()> {
    let Some(first) = results.first().map(|printed| printed.done) else { return Ok(()) };
    let measures = measures(results.iter().map(|printed| printed.done));
    let floor = |measure: &&str| {
        let value = results.iter().find_map(|printed| printed.done.value(measure));
        value.and_then(|value| value.floor).map_or_else(String::new, |floor| shown(floor, measure))
    };
    let baseline = ("random baseline".to_owned(), measures.iter().map(floor).collect::<Vec<String>>());
    let of_results = |cell: &dyn Fn(&Printed<'_>, &str) -> String| -> Vec<Row> {
        let row = |printed: &Printed<'_>| measures.iter().map(|measure| cell(printed, measure)).collect();
        results.iter().map(|printed| (printed.done.ranker.clone(), row(printed))).collect()
    };
    writeln!(out, "{BOLD}{}{BOLD:#}", first.about)?;
    writeln!(out, "{DIM}{}: {}{DIM:#}", first.data.paths.join(", "), first.data.size)?;
    writeln!(out)?;
    let groups = results.first().map_or(0, |printed| printed.groups.len());
    if groups == 0 {
        let mut rows = vec![baseline.clone()];
        rows.extend(of_results(&|printed, measure| {
            printed.done.value(measure).map_or_else(|| "–".to_owned(), cell)
        }));
        write_rows(out, ("", 0), &measures, &rows)?;
    }
    let title = |group: &Group| {
        let name = group.category.as_deref().unwrap_or("all");
        format!("{name}: {}", counted(group.queries as u64, "question"))
    };
    let titles = results.first().into_iter().flat_map(|printed| &printed.groups).map(&title);
    let widest = titles.map(|title| title.chars().count()).max().unwrap_or(0);
    for n in 0..groups {
        let mut rows = of_results(&|printed, measure| {
            printed.groups.get(n).map_or_else(String::new, |g| with_interval(g, measure))
        });
        let Some(group) = results.first().and_then(|printed| printed.groups.get(n)) else { continue };
        if group.category.is_none() {
            rows.insert(0, baseline.clone());
        }
        write_rows(out, (&title(group), widest), &measures, &rows)?;
    }
    for skipped in &first.skipped {
        let (count, more) = (grouped(skipped.count), if skipped.count > 1 { ", …" } else { "" });
        writeln!(out, "skipped: {count} {} ({}{more})", skipped.what, skipped.first)?;
    }
    if first.seeds.len() > 1 {
        writeln!(out, "{DIM}mean ± deviation over {} seeds{DIM:#}", first.seeds.len())?;
    }
    if groups > 0 {
        writeln!(out, "{DIM}in parentheses: 95% confidence intervals (bootstrap over the questions){DIM:#}")?;
    }
    writeln!(out, "{DIM}results with per-query values are in {}{DIM:#}", folder.display())
}

/// Name of a row and its cells.
type Row = (String, Vec<String>);

/// Writes rows with a header and a blank line after them. `title` is the header of the names. The
/// column of the names has at least `least` characters.
fn write_rows(
    out: &mut dyn Write,
    (title, least): (&str, usize),
    measures: &[&str],
    rows: &[Row],
) -> io::Result<()> {
    let width = |column: usize| {
        let cells = rows.iter().map(|(_, cells)| cells[column].chars().count());
        cells.max().unwrap_or(0).max(measures[column].chars().count())
    };
    let names = rows.iter().map(|(name, _)| name.as_str()).chain([title]);
    let names = names.map(|name| name.chars().count()).max().unwrap_or(0).max(least);
    write!(out, "{BOLD}{title:names$}{BOLD:#}")?;
    for (column, measure) in measures.iter().enumerate() {
        write!(out, "  {BOLD}{measure:>width$}{BOLD:#}", width = width(column))?;
    }
    writeln!(out)?;
    for (name, cells) in rows {
        write!(out, "{name:names$}")?;
        for (column, cell) in cells.iter().enumerate() {
            write!(out, "  {cell:>width$}", width = width(column))?;
        }
        writeln!(out)?;
    }
    writeln!(out)
}

/// Formats the value of a measure with its confidence interval, such as `39.8 (37–43)`.
fn with_interval(group: &Group, measure: &str) -> String {
    let found = group.values.iter().find(|value| value.measure == measure);
    found.map_or_else(String::new, |GroupValue { value, interval: (low, high), .. }| {
        format!("{} ({:.0}–{:.0})", shown(*value, measure), 100.0 * low, 100.0 * high)
    })
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
