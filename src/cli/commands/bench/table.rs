//! Formats benchmark results as a table for the terminal.

use crate::cli::prelude::*;
use turnwise_eval::{result::Done, tasks::Value};

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
