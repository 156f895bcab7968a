//! Report of benchmark results, as Markdown or as a self-contained HTML page.

mod markdown;
mod page;

use super::{
    recipes::summary,
    table::megabytes,
    table::{measures, shown},
};
use crate::cli::prelude::*;
use turnwise_corpus::output::Output;
use turnwise_eval::{
    ann,
    result::Done,
    tables::{Best, RowDone, Table},
    throughput::Throughput,
};

/// Format of a report.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Markdown,
    Page,
}

impl Kind {
    /// Returns the format for a file extension. Returns an error for an extension other than `.md` and `.html`.
    pub(super) fn of(path: &Path) -> Result<Self> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("md") => Ok(Kind::Markdown),
            Some("html") => Ok(Kind::Page),
            _ => Err(Error::input(format!("{} is neither .md nor .html", path.display()))
                .with_hint("the file extension selects the format")),
        }
    }
}

/// All results that a report shows.
#[derive(Default)]
struct Report {
    tables: Vec<Table>,
    /// Results that are not part of a table, grouped by task and data.
    others: Vec<Vec<Done>>,
    graphs: Vec<ann::Measured>,
    throughputs: Vec<Throughput>,
}

/// Runs `turnwise bench report`: writes a report of all results in a folder.
pub(super) fn run(folder: &Path, outputs: &[PathBuf], context: &Context<'_>) -> Result<()> {
    outputs.iter().try_for_each(|path| Kind::of(path).map(drop))?;
    let report = Report::gather(folder)?;
    if report.is_empty() {
        return Err(Error::input(format!("there are no results in {}", folder.display()))
            .with_hint("run `turnwise bench reproduce` or any other benchmark first"));
    }
    report.write(outputs, context)
}

/// Returns a report of the results in a folder as HTML; `None` if there are no results.
#[cfg(feature = "serve")]
pub(in crate::cli::commands) fn as_page(folder: &Path) -> Result<Option<String>> {
    let report = Report::gather(folder)?;
    Ok((!report.is_empty()).then(|| page::page(&report)))
}

/// Writes a report of the given tables. The report also shows all measurements of graphs and throughput in `folder`, a
/// folder of results.
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
    /// Reads the results in a folder. Skips results that are already part of a table or of a mean over seeds.
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
            let rows = report.tables.iter().flat_map(|table| &table.rows);
            let mut lines = rows.filter_map(|row| row.result.as_ref());
            // The result of one seed is not reported if a mean over seeds includes it.
            let in_a_mean = over.iter().any(|mean| {
                done.seeds.is_empty()
                    && mean.data.hash == done.data.hash
                    && mean.seeds.contains(&done.seed)
                    && mean.identity.split(" + ").any(|identity| identity == done.identity)
            });
            if in_a_mean || lines.any(|other| same(other) && other.identity == done.identity) {
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
            context.printer.say(format!("wrote the report to {}", path.display()));
        }
        Ok(())
    }
}

/// Explanations of the terms used in a report.
const WORDS: [(&str, &str); 4] = [
    (
        "as expected",
        "the result matches the number in the recipe within its tolerance; the notes say whether that number is from an independent \
      evaluator or from an earlier run of this program",
    ),
    ("random baseline", "the expected value of a random ranking of the same list"),
    (
        "reproduced, better, below",
        "within 1.0 of the paper's number, above it, or below it. The papers used their own test sets; here, each table names its \
         data, so a higher number does not prove a better method",
    ),
    ("not run", "rows of the paper that could not be run here; the reasons are listed below"),
];

/// Returns the reasons why rows of the tables were not run, and the number of published values in the rows of each
/// reason. The reason with the most values is first.
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

/// Formats a percentage with one decimal place; a dash for `None`.
fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.1}"))
}

/// Describes the data, the version, the seeds and the machine of a result.
fn provenance(done: &Done) -> String {
    let Done { data, turnwise, machine, seed, seeds, options, .. } = done;
    let seeds = if seeds.is_empty() {
        format!("seed {seed}")
    } else {
        format!("{} seeds from {seed} on", seeds.len())
    };
    let code = if options.contains("/code/") { "as in the released code; " } else { "" };
    format!("{code}{}; data {}, turnwise {turnwise}, {seeds}, {machine}.", data.size, data.hash)
}

/// Describes the data, the encoder, the version and the machine of a measurement of throughput.
fn throughput_source(throughput: &Throughput) -> String {
    let Throughput { encoder, turnwise, machine, .. } = throughput;
    let (dialogues, turns) = (grouped(throughput.dialogues), grouped(throughput.turns));
    let size = megabytes(throughput.bytes);
    format!("{dialogues} dialogues, {turns} turns, {size}; {encoder}; turnwise {turnwise}, {machine}.")
}

/// Describes the records that a task skipped, one sentence per reason.
fn left_out(done: &Done) -> impl Iterator<Item = String> + '_ {
    done.skipped
        .iter()
        .map(|skipped| format!("Skipped: {} {} ({}).", skipped.count, skipped.what, skipped.first))
}

/// Returns the first result of a table; `None` if no row could be run.
fn first(table: &Table) -> Option<&Done> {
    table.rows.iter().find_map(|row| row.result.as_ref())
}

/// Returns the remarks below a table: notes on rows, reasons why rows were not run, skipped records, and a warning if
/// the paper used different data.
fn remarks(table: &Table) -> Vec<String> {
    let notes = table.rows.iter().filter(|row| !row.note.is_empty());
    let mut all: Vec<String> = notes.map(|row| format!("{}: {}", row.who, row.note)).collect();
    // Rows with the same reason are listed together.
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

/// Returns a description of our best result and of the paper's best result, such as `MAP 94.5 by A, the paper's best
/// 82.8 by B`.
pub(super) fn best_in_words(best: &Best<'_>) -> String {
    let here = best.here.map_or_else(|| "not run".to_owned(), |(who, value)| format!("{value:.1} by {who}"));
    format!("{} {here}, the paper's best {:.1} by {}", best.measure, best.paper.1, best.paper.0)
}

/// Returns a warning if the random baseline of the table is higher than a value of the paper. A higher baseline shows
/// that the paper used different data.
fn other_data(table: &Table) -> Option<String> {
    let lines = table.measures().into_iter().filter_map(|measure| {
        let floor = table.rows.iter().find_map(|row| row.result.as_ref()?.value(measure)?.floor)?;
        let is_below = |row: &&RowDone| row.paper.get(measure).is_some_and(|paper| *paper < 100.0 * floor);
        let below = table.rows.iter().filter(is_below).count();
        (below > 0).then(|| format!("{measure} {}, above {below} of the paper's rows", shown(floor, measure)))
    });
    let lines: Vec<String> = lines.collect();
    (!lines.is_empty()).then(|| {
        format!(
            "The random baseline here is higher than results in the paper ({}). The paper used different data, so the numbers cannot be compared.",
            lines.join("; ")
        )
    })
}
