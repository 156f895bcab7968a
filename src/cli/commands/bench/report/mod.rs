//! What benchmarks came to, as a file to be read: Markdown, or one page of HTML that needs nothing else.

mod markdown;
mod page;
mod plots;

use std::path::{Path, PathBuf};

use super::recipes::summary;
use crate::{
    cli::{Context, output::Output},
    error::{Error, IoContext, Result},
    eval::{
        ann,
        recipe::Verdict,
        result::Done,
        tables::{Best, Table},
        throughput::Throughput,
    },
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

/// Everything that there is to tell.
#[derive(Default)]
struct Report {
    tables: Vec<Table>,
    /// Results of no table, those of one task on the same data together.
    others: Vec<Vec<Done>>,
    graphs: Vec<ann::Measured>,
    throughputs: Vec<Throughput>,
}

/// `turnwise bench report`: of everything in a folder of results.
pub(super) fn run(folder: &Path, outputs: &[PathBuf], context: &Context<'_>) -> Result<()> {
    outputs.iter().try_for_each(|path| Kind::of(path).map(drop))?;
    let report = Report::gather(folder)?;
    if report.is_empty() {
        return Err(Error::Input {
            message: format!("there are no results in {}", folder.display()),
            hint: Some("`turnwise bench reproduce`, or any other task of `bench`, makes some".to_owned()),
        });
    }
    report.write(outputs, context)
}

/// A report of some tables, with what was measured of graphs and speed among the results.
pub(super) fn of_tables(
    tables: &[Table],
    folder: &Path,
    outputs: &[PathBuf],
    context: &Context<'_>,
) -> Result<()> {
    if outputs.is_empty() {
        return Ok(());
    }
    let found = Report::gather(folder)?;
    Report { tables: tables.to_vec(), others: Vec::new(), ..found }.write(outputs, context)
}

impl Report {
    /// All that a folder has. What else lies there is left alone.
    fn gather(folder: &Path) -> Result<Self> {
        let mut files: Vec<PathBuf> = match std::fs::read_dir(folder) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            entries => entries
                .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
                .at("read", folder)?,
        };
        files.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
        files.sort();
        let (mut report, mut results) = (Report::default(), Vec::new());
        for path in &files {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            match name.split('-').next() {
                Some("table") => report.tables.push(Table::read(path)?),
                Some("ann") => report.graphs.push(ann::Measured::read(path)?),
                Some("throughput") => report.throughputs.push(Throughput::read(path)?),
                _ => results.extend(Done::read(path).ok()),
            }
        }
        let (over, single): (Vec<Done>, Vec<Done>) =
            results.into_iter().partition(|done| !done.seeds.is_empty());
        for done in over.iter().chain(&single) {
            let same = |other: &Done| {
                (&other.options, &other.data.hash, &other.seeds)
                    == (&done.options, &done.data.hash, &done.seeds)
            };
            let mut told =
                report.tables.iter().flat_map(|table| &table.rows).filter_map(|row| row.result.as_ref());
            // What is part of a mean over seeds is told there, but for the first, which others stand beside.
            let in_a_mean = over.iter().any(|mean| {
                done.seeds.is_empty()
                    && mean.data.hash == done.data.hash
                    && mean.seeds[1..].contains(&done.seed)
                    && mean.identity.split(" + ").any(|identity| identity == done.identity)
            });
            if in_a_mean || told.any(|other| same(other) && other.identity == done.identity) {
                continue;
            }
            match report.others.iter_mut().find(|group| group.first().is_some_and(same)) {
                Some(group) => group.push(done.clone()),
                None => report.others.push(vec![done.clone()]),
            }
        }
        Ok(report)
    }

    fn is_empty(&self) -> bool {
        self.tables.is_empty()
            && self.others.is_empty()
            && self.graphs.is_empty()
            && self.throughputs.is_empty()
    }

    fn write(&self, outputs: &[PathBuf], context: &Context<'_>) -> Result<()> {
        for path in outputs {
            let text = match Kind::of(path)? {
                Kind::Markdown => markdown::markdown(self),
                Kind::Page => page::page(self),
            };
            let mut out = Output::create(path)?;
            out.with(|out| out.write_all(text.as_bytes()))?;
            out.finish()?;
            context.printer.say(format!("the report is in {}", path.display()));
        }
        Ok(())
    }
}

/// What "better" does not say.
const CAVEAT: &str = "The papers judged on their test sets and by trained models; here are the data that each table names. \
                      \"Better\" and \"below\" tell which number is greater, and no more.";

/// Hundredths with a digit behind the point.
fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.1}"))
}

/// What it was done on, by what, and where.
fn provenance(done: &Done) -> String {
    let Done { data, turnwise, machine, seed, seeds, .. } = done;
    let seeds = if seeds.is_empty() {
        format!("seed {seed}")
    } else {
        format!("{} seeds from {seed} on", seeds.len())
    };
    format!("{}; data {}, turnwise {turnwise}, {seeds}, {machine}.", data.size, data.hash)
}

/// What was left out.
fn left_out(done: &Done) -> impl Iterator<Item = String> + '_ {
    done.skipped
        .iter()
        .map(|skipped| format!("Left out: {} {} ({}).", skipped.count, skipped.what, skipped.first))
}

/// The first result of a table.
fn first(table: &Table) -> Option<&Done> {
    table.rows.iter().find_map(|row| row.result.as_ref())
}

/// What there is to say below a table: notes of rows, and what was left out.
fn remarks(table: &Table) -> Vec<String> {
    let notes = table.rows.iter().filter(|row| !row.note.is_empty());
    let mut all: Vec<String> = notes.map(|row| format!("{}: {}", row.who, row.note)).collect();
    // Of several rows the same is said once.
    let mut absent: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in &table.rows {
        let Some(why) = row.missing.as_deref() else { continue };
        match absent.iter_mut().find(|(other, _)| *other == why) {
            Some((_, rows)) => rows.push(&row.who),
            None => absent.push((why, vec![&row.who])),
        }
    }
    all.extend(absent.into_iter().map(|(why, rows)| format!("Not run: {}: {why}.", rows.join("; "))));
    all.extend(first(table).into_iter().flat_map(left_out));
    all
}

/// The best here against the paper's best, in words: `better: MAP 94.5 by A, the paper 82.8 by B`.
pub(super) fn best_in_words(best: &Best<'_>) -> String {
    let verdict = match best.verdict {
        Some(Verdict::Reproduced) => "as good: ",
        Some(verdict) => &format!("{}: ", verdict.word()),
        None => "not run: ",
    };
    let here = best.here.map(|(who, value)| format!(" {value:.1} by {who},")).unwrap_or_default();
    format!("{verdict}{}{here} the paper {:.1} by {}", best.measure, best.paper.1, best.paper.0)
}

/// The measures that any of some results has, in the order of the first that has them.
fn measures(results: &[Done]) -> Vec<&str> {
    let mut measures: Vec<&str> = Vec::new();
    for value in results.iter().flat_map(|done| &done.values) {
        if !measures.contains(&value.measure.as_str()) {
            measures.push(&value.measure);
        }
    }
    measures
}

/// Bytes in MB.
fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
