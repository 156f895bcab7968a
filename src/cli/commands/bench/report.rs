//! What recipes came to, as a file to be read: Markdown, or one page of HTML that needs nothing else.

use std::{
    fmt::Write as _,
    io::{self, Write},
    path::Path,
};

use super::{
    recipes::{Line, Reproduced, summary},
    table::shown,
};
use crate::{
    cli::output::Output,
    error::{Error, Result},
    eval::result::Done,
};

/// What a report is written as.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Markdown,
    Page,
}

impl Kind {
    /// Told by the file's ending.
    pub(super) fn of(path: &Path) -> Result<Self> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("md") => Ok(Kind::Markdown),
            Some("html") => Ok(Kind::Page),
            _ => Err(Error::Input {
                message: format!("{} is neither .md nor .html", path.display()),
                hint: Some("the ending of the report's name tells its kind".to_owned()),
            }),
        }
    }
}

/// Writes a report.
pub(super) fn write(done: &[Reproduced], kind: Kind, path: &Path) -> Result<()> {
    let text = match kind {
        Kind::Markdown => markdown(done),
        Kind::Page => page(done),
    };
    let mut out = Output::create(path)?;
    out.with(|out: &mut dyn Write| -> io::Result<()> { out.write_all(text.as_bytes()) })?;
    out.finish()
}

fn markdown(done: &[Reproduced]) -> String {
    let mut text = format!("# Benchmarks\n\n{}.\n", summary(done));
    for one in done {
        let _ = write!(text, "\n## {}\n\n{}. {}.\n\n", one.name, one.about, one.paper);
        if let Some(missing) = &one.missing {
            let _ = writeln!(text, "Not run: {missing} is not there.");
            continue;
        }
        if let Some(told) = provenance(one) {
            let _ = writeln!(text, "{told}\n");
        }
        text += "| ranker | measure | here | expected | any order | the paper | |\n|---|---|---:|---:|---:|---:|---|\n";
        for row in &one.rows {
            for line in row.lines() {
                let Line { measure, value, expected, holds, floor, paper } = line;
                let holds = holds.map_or("", |holds| if holds { "holds" } else { "**missed**" });
                let _ = writeln!(
                    text,
                    "| {} | {measure} | {} | {} | {} | {} | {holds} |",
                    row.ranker,
                    shown(value, measure),
                    number(expected),
                    floor.map_or_else(|| "–".to_owned(), |floor| shown(floor, measure)),
                    number(paper),
                );
            }
        }
        for note in notes(one).chain(left_out(one)) {
            let _ = write!(
                text,
                "
{note}
"
            );
        }
    }
    text
}

/// Hundredths with a digit behind the point.
fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.1}"))
}

/// What it was done on, by what, and where.
fn provenance(one: &Reproduced) -> Option<String> {
    let Done { data, turnwise, machine, .. } = &one.rows.first()?.result;
    Some(format!("{}; data {}, turnwise {turnwise}, {machine}.", data.size, data.hash))
}

/// What was left out.
fn left_out(one: &Reproduced) -> impl Iterator<Item = String> + '_ {
    let skipped = one.rows.first().into_iter().flat_map(|row| &row.result.skipped);
    skipped.map(|skipped| format!("Left out: {} {} ({}).", skipped.count, skipped.what, skipped.first))
}

/// The notes of the rows, with their rankers.
fn notes(one: &Reproduced) -> impl Iterator<Item = String> + '_ {
    one.rows.iter().filter(|row| !row.note.is_empty()).map(|row| format!("{}: {}", row.ranker, row.note))
}

const STYLE: &str = "
:root { color-scheme: light dark; --ink: #1c1e21; --dim: #667; --paper: #fff; --line: #dde; --bar: #3b6fb6; --floor: #30343b; --theirs: #d9822b; --bad: #b3261e; --good: #1b7f3b }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --dim: #99a; --paper: #14161a; --line: #2b2f36; --bar: #6ea0e0; --floor: #e6e8eb; --theirs: #e6a15c; --bad: #ff8a80; --good: #7bd88f } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2.2rem } p { margin: .3rem 0 } .dim { color: var(--dim); font-size: .9em }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100%; margin: .7rem 0 } th { text-align: left; font-weight: 600 }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
.holds { color: var(--good) } .missed { color: var(--bad); font-weight: 600 } svg { display: block }";

fn page(done: &[Reproduced]) -> String {
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>turnwise: benchmarks</title>\n<style>{STYLE}\n</style>\n</head>\n<body>\n<h1>Benchmarks</h1>\n<p>{}.</p>\n\
         <p class=\"dim\">A bar is what was reached here, in hundredths; the plain line is what any order would have, the orange one what the \
         paper has.</p>\n",
        plain(&summary(done))
    );
    for one in done {
        let _ = write!(
            text,
            "<h2 id=\"{0}\">{0}</h2>\n<p>{1}. <span class=\"dim\">{2}.</span></p>\n",
            plain(&one.name),
            plain(&one.about),
            plain(&one.paper)
        );
        if let Some(missing) = &one.missing {
            let _ = writeln!(text, "<p class=\"missed\">Not run: {} is not there.</p>", plain(missing));
            continue;
        }
        if let Some(told) = provenance(one) {
            let _ = writeln!(text, "<p class=\"dim\">{}</p>", plain(&told));
        }
        text += "<div class=\"scroll\"><table>\n<tr><th>ranker</th><th>measure</th><th class=\"n\">here</th><th></th><th class=\"n\">expected</th>\
                 <th class=\"n\">any order</th><th class=\"n\">the paper</th><th></th></tr>\n";
        for row in &one.rows {
            for line in row.lines() {
                text += &table_row(&row.ranker, &line);
            }
        }
        text += "</table></div>\n";
        for note in notes(one).chain(left_out(one)) {
            let _ = writeln!(text, "<p class=\"dim\">{}</p>", plain(&note));
        }
    }
    text + "</body>\n</html>\n"
}

fn table_row(ranker: &str, line: &Line<'_>) -> String {
    let (class, holds) =
        line.holds.map_or(("", ""), |holds| if holds { ("holds", "holds") } else { ("missed", "missed") });
    format!(
        "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
         <td class=\"{class}\">{holds}</td></tr>\n",
        plain(ranker),
        plain(line.measure),
        shown(line.value, line.measure),
        bar(line),
        number(line.expected),
        line.floor.map_or_else(|| "–".to_owned(), |floor| shown(floor, line.measure)),
        number(line.paper),
    )
}

/// A bar of hundredths, two pixels each. What is no part of a whole has none.
fn bar(line: &Line<'_>) -> String {
    if !(0.0..=1.0).contains(&line.value) || line.floor.is_none() {
        return String::new();
    }
    let width = |hundredths: f64| 2.0 * hundredths.clamp(0.0, 100.0);
    let mark = |hundredths: f64, colour: &str| {
        let at = width(hundredths) - 1.0;
        format!("<rect x=\"{at:.1}\" width=\"2\" height=\"16\" fill=\"var(--{colour})\"/>")
    };
    let marks =
        [line.floor.map(|floor| mark(100.0 * floor, "floor")), line.paper.map(|paper| mark(paper, "theirs"))];
    format!(
        "<svg width=\"202\" height=\"16\" role=\"img\" aria-label=\"{} of 100\"><rect y=\"3\" width=\"200\" height=\"10\" fill=\"var(--line)\"/>\
         <rect y=\"3\" width=\"{:.1}\" height=\"10\" fill=\"var(--bar)\"/>{}</svg>",
        shown(line.value, line.measure),
        width(100.0 * line.value),
        marks.into_iter().flatten().collect::<String>()
    )
}

/// Text that means nothing to HTML.
fn plain(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
