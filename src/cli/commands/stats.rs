//! `turnwise stats` counts the contents of an index; `turnwise corpus stats` can also count those of files.

use std::collections::BTreeMap;

use crate::cli::{
    args::ReadArgs,
    commands::{
        convert,
        index::info::IndexBytes,
        vectors::{self, Vectors},
    },
    prelude::*,
};
use turnwise_corpus::{
    Dialogue,
    stats::{Histogram, Statistics},
};
use turnwise_index::vectors::Coverage;
use turnwise_search::statistics;
use turnwise_store::Snapshot;

/// Result of `turnwise stats`, printed as text or JSON.
#[derive(Serialize)]
struct IndexStats {
    index: String,
    generation: u64,
    batch: u64,
    created: String,
    bytes: IndexBytes,
    rejected: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    vectors: Option<Vectors>,
    #[serde(flatten)]
    corpus: Statistics,
}

pub(super) fn of_index(context: &Context<'_>) -> Result<()> {
    let snapshot = context.snapshot()?;
    let root = snapshot.root();
    let reader = vectors::reader(root, context)?;
    let coverage = reader.as_ref().map(Coverage::new);
    let corpus = count(&snapshot, coverage.as_ref(), context)?;
    let stats = IndexStats {
        index: root.display().to_string(),
        generation: snapshot.generation(),
        batch: snapshot.batch(),
        created: snapshot.created().to_string(),
        bytes: IndexBytes::of(&snapshot),
        rejected: snapshot.rejected(),
        vectors: reader.as_ref().zip(coverage.as_ref()).map(|(r, c)| Vectors::of(r, c)),
        corpus,
    };
    context.printer.result(&stats, |out| {
        let IndexStats { index, generation, created, bytes: b, .. } = &stats;
        writeln!(out, "{BOLD}{index}{BOLD:#}  generation {generation}, created {created}")?;
        let parts = [("log", b.log), ("records", b.records), ("tables", b.tables), ("lexical", b.lexical)];
        let parts = parts.into_iter().chain([("vectors", b.vectors)]);
        let parts: Vec<String> = parts.map(|(name, size)| format!("{name} {}", bytes(size))).collect();
        writeln!(out, "  {:>12}  on disk {DIM}({}){DIM:#}", bytes(b.total), parts.join(", "))?;
        writeln!(out, "  {:>12}  rejected during ingests", grouped(stats.rejected))?;
        if let Some(vectors) = &stats.vectors {
            vectors.write(out)?;
        }
        write(&stats.corpus, out)
    })
}

fn count(snapshot: &Snapshot, coverage: Option<&Coverage<'_>>, context: &Context<'_>) -> Result<Statistics> {
    let mut progress =
        ProgressBar::new(context.printer, "counting", "dialogues", Some(snapshot.totals().dialogues));
    let seen = |dialogue: &Dialogue| {
        if let Some(coverage) = coverage {
            coverage.add(dialogue);
        }
    };
    statistics(snapshot, None, &seen, &mut |done| {
        progress.set(done, done);
        signals::check()
    })
}

pub(super) fn of_files(paths: &[PathBuf], read: &ReadArgs, context: &Context<'_>) -> Result<()> {
    let mut statistics = Statistics::default();
    let problems = convert::each_dialogue(paths, read, "counting", context, &mut |dialogue| {
        statistics.add(&dialogue);
        Ok(())
    })?;
    context.printer.result(&statistics, |out| {
        if problems.rejected > 0 {
            writeln!(out, "  {:>12}  rejected", grouped(problems.rejected))?;
        }
        write(&statistics, out)
    })?;
    problems.into_result()
}

fn write(s: &Statistics, out: &mut dyn Write) -> io::Result<()> {
    let (dialogues, threads) = ((s.dialogues, "dialogues"), (s.threads, "threads"));
    let rest = [(s.turns, "turns"), (s.speakers, "speakers"), (s.words, "words")];
    let threads = Some(threads).filter(|(n, _)| *n > 0);
    for (n, what) in std::iter::once(dialogues).chain(threads).chain(rest) {
        writeln!(out, "  {:>12}  {what}", grouped(n))?;
    }
    spread(out, "turns per dialogue", &s.turns_per_dialogue)?;
    spread(out, "words per turn", &s.words_per_turn)?;
    spread(out, "speakers per dialogue", &s.speakers_per_dialogue)?;
    if let Some((first, last)) = s.times {
        writeln!(out, "  {DIM}from{DIM:#} {first} {DIM}to{DIM:#} {last}")?;
    }
    names(out, "languages", &s.languages)?;
    names(out, "sources", &s.sources)?;
    names(out, "domains", &s.domains)?;
    names(out, "roles", &s.roles)?;
    names(out, "intents", &s.intents)
}

fn spread(out: &mut dyn Write, what: &str, histogram: &Histogram) -> io::Result<()> {
    let s = histogram.summary();
    let range = format!("min {}, median {}, max {}", s.min, s.median, s.max);
    writeln!(out, "  {:>12.1}  {what} {DIM}({range}){DIM:#}", s.mean)
}

/// Prints the most frequent names with their counts, and the number of remaining names.
fn names(out: &mut dyn Write, what: &str, counts: &BTreeMap<String, u64>) -> io::Result<()> {
    const SHOWN: usize = 8;
    if counts.is_empty() {
        return Ok(());
    }
    let mut sorted: Vec<_> = counts.iter().collect();
    sorted.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
    let shown: Vec<String> = sorted
        .iter()
        .take(SHOWN)
        .map(|(name, n)| (if name.is_empty() { "(none)" } else { name }, grouped(**n)))
        .map(|(name, n)| format!("{name} {DIM}{n}{DIM:#}"))
        .collect();
    let more = match sorted.len().saturating_sub(SHOWN) {
        0 => String::new(),
        n => format!(", {DIM}and {n} more{DIM:#}"),
    };
    writeln!(out, "  {BOLD}{what}{BOLD:#} ({}): {}{more}", sorted.len(), shown.join(", "))
}
