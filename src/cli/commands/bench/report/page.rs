//! Writes the benchmark report as an HTML page.

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
    plots::{curves, legend, map, plain, scatter},
    result::Done,
    tables::{Line, RowDone, Table},
    throughput::{Latency, Throughput},
};

/// Style sheet of the page. It also works if the page is embedded in another page as a shadow tree.
const STYLE: &str = "
:root { color-scheme: light dark }
:root, :host { --ink: light-dark(#1c1e21, #e6e8eb); --dim: light-dark(#667, #99a); --paper: light-dark(#fff, #14161a); --line: light-dark(#dde, #2b2f36); --bar: light-dark(#3b6fb6, #6ea0e0); --floor: light-dark(#30343b, #e6e8eb); --theirs: light-dark(#d9822b, #e6a15c); --bad: light-dark(#b3261e, #ff8a80); --good: light-dark(#1b7f3b, #7bd88f) }
body, :host { font: 15px/1.5 system-ui, sans-serif; color: var(--ink) } body { background: var(--paper); max-width: 68rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2.2rem } p { margin: .3rem 0 } .dim { color: var(--dim); font-size: .9em }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100%; margin: .7rem 0 } th { text-align: left; font-weight: 600 }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .85em; color: var(--dim) } .legend svg { display: inline-block; width: .7em; height: .7em; margin-right: .35em }
svg.plot { width: 100%; max-width: 44rem; height: auto } svg text { font: 11px system-ui, sans-serif; fill: var(--dim) } .grid { stroke: var(--line); fill: none }
.maps { display: flex; flex-wrap: wrap; gap: 1rem } .maps figure { margin: 0; flex: 1 1 18rem; max-width: 26rem } svg.map { width: 100%; height: auto; border: 1px solid var(--line); border-radius: 4px } figcaption { font-size: .9em; color: var(--dim) }
td.why { white-space: normal; min-width: 20rem; font-size: .92em } summary { cursor: pointer; color: var(--dim) } a { color: inherit } .holds, .better, .reproduced { color: var(--good) } .missed, .below { color: var(--bad); font-weight: 600 } .below { font-weight: 400 } svg { display: block }";

/// Renders a report as an HTML page.
pub(super) fn page(report: &Report) -> String {
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>turnwise: benchmarks</title>\n<style>{STYLE}\n</style>\n</head>\n<body>\n<h1>Benchmarks</h1>\n"
    );
    if !report.tables.is_empty() {
        let _ = writeln!(text, "<p><strong>{}.</strong></p>", plain(&summary(&report.tables)));
        text += "<ul class=\"dim\">\n";
        for (word, meaning) in WORDS {
            let _ = writeln!(text, "<li><b>{word}</b>: {meaning}</li>");
        }
        text += "</ul>\n";
        overview(&mut text, &report.tables);
        text += "<p class=\"dim\">A bar shows the value measured here, in percent. The plain line marks the random baseline, the \
                 orange line the value of the paper.</p>\n";
        report.tables.iter().for_each(|table| of_table(&mut text, table));
    }
    report.others.iter().for_each(|group| of_results(&mut text, group));
    report.graphs.iter().for_each(|measured| of_graphs(&mut text, measured));
    report.throughputs.iter().for_each(|throughput| of_throughput(&mut text, throughput));
    text + "</body>\n</html>\n"
}

/// Writes the overview. It has one line for each table of a paper.
fn overview(text: &mut String, tables: &[Table]) {
    *text += "<div class=\"scroll\"><table>\n<tr><th>table</th><th class=\"n\">reproduced</th><th class=\"n\">better</th>\
              <th class=\"n\">below</th><th class=\"n\">not run</th><th>best here and in the paper</th></tr>\n";
    for table in tables {
        let counts = table.counts();
        let best: Vec<String> = match &table.missing {
            Some(path) => vec![format!("<span class=\"dim\">data not found: {}</span>", plain(path))],
            None => table
                .best()
                .iter()
                .map(|best| {
                    let class = best.verdict.map_or("dim", |verdict| verdict.word());
                    format!("<span class=\"{class}\">{}</span>", plain(&best_in_words(best)))
                })
                .collect(),
        };
        let (name, number_of, best) = (plain(&table.name), plain(&table.table), best.join("<br>"));
        let counts = [counts.reproduced, counts.better, counts.below, counts.missing];
        let counts = counts.map(|count| format!("<td class=\"n\">{count}</td>")).concat();
        let _ = writeln!(
            text,
            "<tr><td><a href=\"#{name}\">{name}</a><br><span class=\"dim\">{number_of}</span></td>{counts}\
             <td class=\"why\">{best}</td></tr>"
        );
    }
    *text += "</table></div>\n";
    let reasons = reasons(tables);
    if !reasons.is_empty() {
        *text += "<p>Why numbers of the papers were not run:</p>\n<ul>\n";
        for (why, count) in reasons {
            let _ = writeln!(text, "<li>{count}: {}</li>", plain(&why));
        }
        *text += "</ul>\n";
    }
}

fn of_table(text: &mut String, table: &Table) {
    let [name, about, number_of] = [&table.name, &table.about, &table.table].map(|text| plain(text));
    let paper = plain(table.paper.title());
    let _ = write!(
        text,
        "<h2 id=\"{name}\">{name}</h2>\n<p>{about}. <span class=\"dim\">{paper}, {number_of}.</span></p>\n"
    );
    if let Some(missing) = &table.missing {
        let _ = writeln!(text, "<p class=\"missed\">Not run: {} not found.</p>", plain(missing));
    }
    // Tables without any result are collapsed.
    let run = match first(table) {
        Some(done) => {
            let (from, command) = (plain(&provenance(done)), plain(&table.command));
            let _ = writeln!(text, "<p class=\"dim\">{from}<br><code>{command}</code></p>");
            true
        }
        None => {
            *text += "<details><summary>numbers of the paper</summary>\n";
            false
        }
    };
    *text += "<div class=\"scroll\"><table>\n<tr><th>ranker</th><th>measure</th><th class=\"n\">here</th><th></th><th class=\"n\">expected</th>\
              <th class=\"n\">random baseline</th><th class=\"n\">paper</th><th></th></tr>\n";
    for row in &table.rows {
        for line in table.lines(row) {
            *text += &table_row(row, &line);
        }
    }
    *text += "</table></div>\n";
    for remark in remarks(table) {
        let _ = writeln!(text, "<p class=\"dim\">{}</p>", plain(&remark));
    }
    if !run {
        *text += "</details>\n";
    }
    let results: Vec<&Done> = table.rows.iter().filter_map(|row| row.result.as_ref()).collect();
    of_space(text, &results);
}

/// Writes results that are not part of a table, one row per measure and ranker.
fn of_results(text: &mut String, results: &[Done]) {
    let Some(done) = results.first() else { return };
    let _ = write!(
        text,
        "<h2>{}: {}</h2>\n<p>{}</p>\n<p class=\"dim\">{}</p>\n<div class=\"scroll\"><table>\n<tr><th>ranker</th><th>measure</th>\
         <th class=\"n\">here</th><th></th><th class=\"n\">random baseline</th></tr>\n",
        plain(&done.task),
        plain(&done.data.paths.join(", ")),
        plain(&done.about),
        plain(&provenance(done))
    );
    for measure in measures(results) {
        for done in results {
            let Some(value) = done.value(measure) else { continue };
            let floor = value.floor.map_or_else(|| "–".to_owned(), |floor| shown(floor, measure));
            let (ranker, here) = (plain(&done.ranker), cell(value));
            let (name, bar) = (plain(measure), bar(value.value, measure, value.floor, None));
            let _ = writeln!(
                text,
                "<tr><td>{ranker}</td><td>{name}</td><td class=\"n\">{here}</td><td>{bar}</td><td class=\"n\">{floor}</td></tr>"
            );
        }
    }
    *text += "</table></div>\n";
    for remark in left_out(done) {
        let _ = writeln!(text, "<p class=\"dim\">{}</p>", plain(&remark));
    }
    of_space(text, &results.iter().collect::<Vec<_>>());
}

/// Writes plots of the vector spaces: alignment against uniformity, and a map of the dialogues for each ranker.
fn of_space(text: &mut String, results: &[&Done]) {
    let dots: Vec<(String, f64, f64)> = results
        .iter()
        .filter_map(|done| {
            let (x, y) = (done.value("uniformity")?.value, done.value("alignment")?.value);
            Some((done.ranker.clone(), x, y))
        })
        .collect();
    let about = "alignment against uniformity; smaller is better on both";
    // A single point is not worth a plot.
    let dots = if dots.len() > 1 { dots } else { Vec::new() };
    *text += &scatter(&dots, ("uniformity (smaller is better)", "alignment (smaller is better)"), about);
    let maps: Vec<_> = results.iter().filter_map(|done| Some((&done.ranker, done.map.as_ref()?))).collect();
    let Some((_, any)) = maps.first() else { return };
    *text += "<div class=\"maps\">\n";
    for (ranker, of_ranker) in &maps {
        let about = format!(
            "map of the dialogues by {ranker}; dialogues with similar vectors are close to each other"
        );
        let (map, ranker, n) = (map(of_ranker, &about), plain(ranker), of_ranker.points.len());
        let caption = format!("{ranker}, {n} dialogues (t-SNE)");
        let _ = writeln!(text, "<figure>{map}<figcaption>{caption}</figcaption></figure>");
    }
    *text += "</div>\n";
    *text += &legend(any.names.iter().map(String::as_str));
}

fn of_graphs(text: &mut String, measured: &ann::Measured) {
    let (data, sizes) = (plain(&measured.data), table::sizes(measured));
    let (turnwise, machine) = (plain(&measured.turnwise), plain(&measured.machine));
    let _ = write!(
        text,
        "<h2>Recall and speed: {data}</h2>\n<p class=\"dim\">{sizes}; one thread; turnwise {turnwise}, {machine}.</p>\n"
    );
    let points = |graph: &ann::Graph| graph.settings.iter().map(|s| (s.recall, s.qps)).collect();
    let mut series: Vec<(String, Vec<(f64, f64)>)> =
        measured.graphs.iter().map(|graph| (graph.name(), points(graph))).collect();
    series.push(("exact search".to_owned(), vec![(measured.exact.recall, measured.exact.qps)]));
    *text += &curves(&series, ("recall", "queries per second"), "queries per second against recall");
    *text += &speed_table("<th>graph</th><th class=\"n\">ef</th><th class=\"n\">recall</th>");
    let mut row = |name: &str, ef: String, setting: &ann::Setting| {
        let (name, recall) = (plain(name), setting.recall);
        let cells = speed_cells(setting.qps, setting.qps_all, &setting.latency);
        let _ = writeln!(
            text,
            "<tr><td>{name}</td><td class=\"n\">{ef}</td><td class=\"n\">{recall:.4}</td>{cells}</tr>"
        );
    };
    row("exact search", "–".to_owned(), &measured.exact);
    for graph in &measured.graphs {
        graph.settings.iter().for_each(|setting| row(&graph.name(), setting.ef.to_string(), setting));
    }
    *text += "</table></div>\n";
    for graph in &measured.graphs {
        let built = table::built(graph, measured.threads);
        let _ = writeln!(text, "<p class=\"dim\">{}: {}.</p>", plain(&graph.name()), plain(&built));
    }
}

/// Renders the header of a table of speeds. `own` contains the HTML header cells of the columns before the speeds.
fn speed_table(own: &str) -> String {
    let names = table::NAMES.map(|name| format!("<th class=\"n\">{name}</th>")).concat();
    format!("<div class=\"scroll\"><table>\n<tr>{own}{names}</tr>\n")
}

fn speed_cells(qps: f64, qps_all: f64, latency: &Latency) -> String {
    table::cells(qps, qps_all, latency).map(|cell| format!("<td class=\"n\">{cell}</td>")).concat()
}

fn of_throughput(text: &mut String, throughput: &Throughput) {
    let (subject, about) = (plain(&throughput.subject()), plain(&throughput_source(throughput)));
    let _ = write!(
        text,
        "<h2>Throughput: {subject}</h2>\n<p class=\"dim\">{about}</p>\n<div class=\"scroll\"><table>\n\
         <tr><th>step</th><th class=\"n\"></th><th class=\"n\">seconds</th><th class=\"n\">per second</th></tr>\n"
    );
    for pace in &throughput.steps {
        let (step, seconds) = (plain(&pace.step), pace.seconds);
        let (count, unit, rate) = (grouped(pace.count), plain(&pace.unit), grouped(pace.a_second() as u64));
        let _ = writeln!(
            text,
            "<tr><td>{step}</td><td class=\"n\">{count} {unit}</td><td class=\"n\">{seconds:.2}</td><td class=\"n\">{rate}</td></tr>"
        );
    }
    *text += "</table></div>\n";
    *text += &speed_table("<th>searches</th>");
    for searches in &throughput.searches {
        let cells = speed_cells(searches.qps, searches.qps_all, &searches.latency);
        let _ = writeln!(text, "<tr><td>{}</td>{cells}</tr>", plain(&searches.mode));
    }
    *text += "</table></div>\n";
}

fn table_row(row: &RowDone, line: &Line<'_>) -> String {
    let measure = line.measure;
    let of_unit = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| shown(value, measure));
    let mut words = Vec::new();
    words.extend(line.holds.map(|holds| if holds { ("holds", "as expected") } else { ("missed", "missed") }));
    words.extend(line.verdict.map(|verdict| (verdict.word(), verdict.word())));
    words.extend(line.is_no_better_than_chance().then_some(("below", "no better than the random baseline")));
    let words: Vec<String> =
        words.iter().map(|(class, word)| format!("<span class=\"{class}\">{word}</span>")).collect();
    let words = match row.missing {
        Some(_) => "<span class=\"dim\">not run</span>".to_owned(),
        None => words.join(", "),
    };
    let (who, here, name) = (plain(&row.who), of_unit(line.value), plain(measure));
    let floor = line.floor.or(line.value.is_none().then_some(0.0));
    let bar = bar(line.value.unwrap_or(0.0), measure, floor, line.paper);
    let numbers = [number(line.expected), of_unit(line.floor), number(line.paper)];
    let numbers = numbers.map(|number| format!("<td class=\"n\">{number}</td>")).concat();
    format!(
        "<tr><td>{who}</td><td>{name}</td><td class=\"n\">{here}</td><td>{bar}</td>{numbers}<td>{words}</td></tr>\n"
    )
}

/// Renders a value as a bar with marks for the random baseline and the value of the paper. Returns an empty text if
/// there is no random baseline or if the value is outside 0…1.
fn bar(value: f64, measure: &str, floor: Option<f64>, paper: Option<f64>) -> String {
    if !(0.0..=1.0).contains(&value) || floor.is_none() {
        return String::new();
    }
    let width = |hundredths: f64| 2.0 * hundredths.clamp(0.0, 100.0);
    let mark = |hundredths: f64, colour: &str| {
        let at = width(hundredths) - 1.0;
        format!("<rect x=\"{at:.1}\" width=\"2\" height=\"16\" fill=\"var(--{colour})\"/>")
    };
    let floor = floor.filter(|floor| *floor > 0.0);
    let marks = [floor.map(|floor| mark(100.0 * floor, "floor")), paper.map(|paper| mark(paper, "theirs"))];
    format!(
        "<svg width=\"202\" height=\"16\" role=\"img\" aria-label=\"{} of 100\"><rect y=\"3\" width=\"200\" height=\"10\" fill=\"var(--line)\"/>\
         <rect y=\"3\" width=\"{:.1}\" height=\"10\" fill=\"var(--bar)\"/>{}</svg>",
        shown(value, measure),
        width(100.0 * value),
        marks.into_iter().flatten().collect::<String>()
    )
}
