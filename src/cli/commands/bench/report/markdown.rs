//! Writes the benchmark report as Markdown.

use std::fmt::Write as _;

use super::{
    Report, WORDS, best_in_words, first, left_out, measures, number, provenance, reasons, remarks, summary,
    throughput_source,
};
use crate::cli::{
    commands::bench::table::{self, cell, shown},
    printer::grouped,
};
use turnwise_eval::{
    ann,
    result::Done,
    tables::{Counts, Table},
    throughput::Throughput,
};

pub(super) fn markdown(report: &Report) -> String {
    let mut text = "# Benchmarks\n".to_owned();
    if !report.tables.is_empty() {
        let _ = write!(text, "\n**{}.**\n\n", summary(&report.tables));
        for (word, meaning) in WORDS {
            let _ = writeln!(text, "* **{word}**: {meaning}");
        }
        overview(&mut text, &report.tables);
        report.tables.iter().for_each(|table| of_table(&mut text, table));
    }
    report.others.iter().for_each(|group| of_results(&mut text, group));
    report.graphs.iter().for_each(|measured| of_graphs(&mut text, measured));
    report.throughputs.iter().for_each(|throughput| of_throughput(&mut text, throughput));
    text
}

/// Writes the overview. It has one line for each table of a paper.
fn overview(text: &mut String, tables: &[Table]) {
    *text += "\n| table | reproduced | better | below | not run | best here and in the paper |\n|---|---:|---:|---:|---:|---|\n";
    for table in tables {
        let Counts { reproduced, better, below, missing } = table.counts();
        let best: Vec<String> = table.best().iter().map(best_in_words).collect();
        let best = table.missing.as_ref().map_or(best.join("; "), |path| format!("data not found: {path}"));
        let (name, number_of) = (&table.name, &table.table);
        let _ = writeln!(
            text,
            "| [{name}](#{name}) ({number_of}) | {reproduced} | {better} | {below} | {missing} | {best} |"
        );
    }
    let reasons = reasons(tables);
    if !reasons.is_empty() {
        *text += "\nWhy numbers of the papers were not run:\n\n";
        reasons.iter().for_each(|(why, count)| *text += &format!("* {count}: {why}\n"));
    }
}

fn of_table(text: &mut String, table: &Table) {
    let Table { name, about, table: number_of, .. } = table;
    let _ = write!(text, "\n## {name}\n\n{about}. {}, {number_of}.\n\n", table.paper.title());
    if let Some(missing) = &table.missing {
        let _ = writeln!(text, "Not run: {missing} not found.\n");
    }
    if let Some(done) = first(table) {
        let _ = writeln!(text, "{}\n\n    {}\n", provenance(done), table.command);
    }
    *text += "| ranker | measure | here | expected | random baseline | paper | |\n|---|---|---:|---:|---:|---:|---|\n";
    for row in &table.rows {
        for line in table.lines(row) {
            let measure = line.measure;
            let of_unit =
                |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| shown(value, measure));
            let mut words = Vec::new();
            words.extend(line.holds.map(|holds| if holds { "as expected" } else { "**missed**" }));
            words.extend(line.is_no_better_than_chance().then_some("no better than the random baseline"));
            words.extend(line.verdict.map(|verdict| verdict.word()));
            words.extend(row.missing.as_ref().map(|_| "not run"));
            let (here, floor, words) = (of_unit(line.value), of_unit(line.floor), words.join(", "));
            let (who, expected, paper) = (&row.who, number(line.expected), number(line.paper));
            let _ =
                writeln!(text, "| {who} | {measure} | {here} | {expected} | {floor} | {paper} | {words} |");
        }
    }
    for remark in remarks(table) {
        let _ = write!(text, "\n{remark}\n");
    }
}

fn of_results(text: &mut String, results: &[Done]) {
    let Some(done) = results.first() else { return };
    let measures = measures(results);
    let _ = write!(text, "\n## {}: {}\n\n{}\n\n", done.task, done.data.paths.join(", "), provenance(done));
    let _ = writeln!(text, "| ranker | {} |\n|---|{}", measures.join(" | "), "---:|".repeat(measures.len()));
    let mut row = |who: &str, cell: &dyn Fn(&str) -> Option<String>| {
        let cells: Vec<String> =
            measures.iter().map(|measure| cell(measure).unwrap_or_else(|| "–".to_owned())).collect();
        let _ = writeln!(text, "| {who} | {} |", cells.join(" | "));
    };
    row("random baseline", &|measure| {
        let floor = results.iter().find_map(|done| done.value(measure)?.floor)?;
        Some(shown(floor, measure))
    });
    for done in results {
        row(&done.ranker, &|measure| done.value(measure).map(cell));
    }
    for remark in left_out(done) {
        let _ = write!(text, "\n{remark}\n");
    }
}

fn of_graphs(text: &mut String, measured: &ann::Measured) {
    let ann::Measured { data, turnwise, machine, .. } = measured;
    let sizes = table::sizes(measured);
    let _ = write!(text, "\n## Recall and speed: {data}\n\n{sizes}; turnwise {turnwise}, {machine}.\n\n");
    let names = table::NAMES.join(" | ");
    let _ = writeln!(text, "| graph | ef | recall | {names} |\n|---|{}", "---:|".repeat(7));
    let mut row = |name: &str, ef: String, setting: &ann::Setting| {
        let cells = table::cells(setting.qps, setting.qps_all, &setting.latency);
        let _ = writeln!(text, "| {name} | {ef} | {:.4} | {} |", setting.recall, cells.join(" | "));
    };
    row("exact search", "–".to_owned(), &measured.exact);
    for graph in &measured.graphs {
        graph.settings.iter().for_each(|setting| row(&graph.name(), setting.ef.to_string(), setting));
    }
    for graph in &measured.graphs {
        let _ = write!(text, "\n{}: {}.\n", graph.name(), table::built(graph, measured.threads));
    }
}

fn of_throughput(text: &mut String, throughput: &Throughput) {
    let (subject, about) = (throughput.subject(), throughput_source(throughput));
    let _ = write!(
        text,
        "\n## Throughput: {subject}\n\n{about}\n\n| step | | seconds | per second |\n|---|---:|---:|---:|\n"
    );
    for pace in &throughput.steps {
        let (count, rate) = (grouped(pace.count), grouped(pace.a_second() as u64));
        let _ = writeln!(text, "| {} | {count} {} | {:.2} | {rate} |", pace.step, pace.unit, pace.seconds);
    }
    let _ = writeln!(text, "\n| searches | {} |\n|---|{}", table::NAMES.join(" | "), "---:|".repeat(5));
    for searches in &throughput.searches {
        let cells = table::cells(searches.qps, searches.qps_all, &searches.latency);
        let _ = writeln!(text, "| {} | {} |", searches.mode, cells.join(" | "));
    }
}
