//! What benchmarks came to, as a file to be read: Markdown, or one page of HTML that needs nothing else.

mod markdown;
mod page;

use std::path::{Path, PathBuf};

use super::{recipes::summary, table::shown};
use crate::cli::{Context, output::Output};
use turnwise_core::error::{Error, IoContext, Result};
use turnwise_eval::{
    ann,
    result::Done,
    tables::{Best, Table},
    throughput::Throughput,
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

/// The report of a folder as a page, if there is anything to tell.
#[cfg(feature = "serve")]
pub(super) fn as_page(folder: &Path) -> Result<Option<String>> {
    let report = Report::gather(folder)?;
    Ok((!report.is_empty()).then(|| page::page(&report)))
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
            // What is part of a mean over seeds is told there.
            let in_a_mean = over.iter().any(|mean| {
                done.seeds.is_empty()
                    && mean.data.hash == done.data.hash
                    && mean.seeds.contains(&done.seed)
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

/// What the words of a report mean.
const WORDS: [(&str, &str); 4] = [
    (
        "as expected",
        "the number came that the recipe has, within its tolerance; the notes say whether an independent evaluator has it, or \
      this program had it before",
    ),
    ("any order", "what a ranking by chance has on that very list, in the mean"),
    (
        "reproduced, better, below",
        "within 1.0 of the paper's number in that row, more, or less. The papers judged on their test sets; here are the data that \
         each table names, so that a greater number is a greater number and no more",
    ),
    ("not run", "rows of the paper that nobody could run here; why is told below"),
];

/// Why numbers of the papers were not run, and how many of them for each reason, the most frequent first.
fn reasons(tables: &[Table]) -> Vec<(String, usize)> {
    let mut all: Vec<(String, usize)> = Vec::new();
    let rows = tables.iter().flat_map(|table| &table.rows).filter(|row| !row.paper.is_empty());
    for (why, numbers) in rows.filter_map(|row| Some((row.missing.as_ref()?, row.paper.len()))) {
        match all.iter_mut().find(|(other, _)| other == why) {
            Some((_, count)) => *count += numbers,
            None => all.push((why.clone(), numbers)),
        }
    }
    all.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    all
}

/// Hundredths with a digit behind the point.
fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.1}"))
}

/// What it was done on, by what, and where.
fn provenance(done: &Done) -> String {
    let Done { data, turnwise, machine, seed, seeds, options, .. } = done;
    let seeds = if seeds.is_empty() {
        format!("seed {seed}")
    } else {
        format!("{} seeds from {seed} on", seeds.len())
    };
    let code = if options.contains("/code/") { "as the released code does it; " } else { "" };
    format!("{code}{}; data {}, turnwise {turnwise}, {seeds}, {machine}.", data.size, data.hash)
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
    all.extend(other_data(table));
    all
}

/// The best here beside the paper's best, in words: `MAP 94.5 by A, the paper's best 82.8 by B`.
pub(super) fn best_in_words(best: &Best<'_>) -> String {
    let here = best.here.map_or_else(|| "not run".to_owned(), |(who, value)| format!("{value:.1} by {who}"));
    format!("{} {here}, the paper's best {:.1} by {}", best.measure, best.paper.1, best.paper.0)
}

/// Where any order here has more than rows of the paper, its data were others.
fn other_data(table: &Table) -> Option<String> {
    let told = table.measures().into_iter().filter_map(|measure| {
        let floor = table.rows.iter().find_map(|row| row.result.as_ref()?.value(measure)?.floor)?;
        let below = table
            .rows
            .iter()
            .filter(|row| row.paper.get(measure).is_some_and(|paper| *paper < 100.0 * floor));
        let below = below.count();
        (below > 0)
            .then(|| format!("{} in {measure} than {below} of the paper's rows", shown(floor, measure)))
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| {
        format!(
            "Any order here has more ({}): the paper's data were others, and its numbers cannot be compared with these.",
            told.join("; ")
        )
    })
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
