//! Report at the end of an ingest.

use crate::cli::prelude::*;
use turnwise_corpus::walk::Plan;
use turnwise_store::{
    Totals,
    ingest::{Ingested, Tally},
};

/// Files of an ingest: how many are read in each format, and which are not read.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Files {
    read: usize,
    without_dialogues: usize,
    not_recognised: Vec<String>,
    formats: Vec<(String, usize)>,
}

impl Files {
    pub(super) fn of(plan: &Plan) -> Self {
        let mut formats = std::collections::BTreeMap::<String, usize>::new();
        for source in &plan.sources {
            *formats.entry(source.format.name.to_owned()).or_default() += 1;
        }
        Files {
            read: plan.sources.len(),
            without_dialogues: plan.companions.len(),
            not_recognised: plan.unrecognized.iter().map(|p| p.display().to_string()).collect(),
            formats: formats.into_iter().collect(),
        }
    }
}

/// Result of an ingest, printed as text or JSON.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) index: String,
    files: Files,
    tally: Tally,
    /// Number of records that an earlier, interrupted run had already read.
    resumed_after: u64,
    totals: Totals,
    seconds: f64,
}

impl Summary {
    pub(super) fn new(index: String, files: Files, done: &Ingested, totals: Totals, seconds: f64) -> Self {
        Summary { index, files, tally: done.tally, resumed_after: done.resumed, totals, seconds }
    }

    /// Prints the number of records by outcome. Counts of zero are not printed.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let t = &self.tally;
        let formats: Vec<String> =
            self.files.formats.iter().map(|(name, n)| format!("{name}: {n}")).collect();
        let (records, files) = (counted(t.records, "record"), counted(self.files.read as u64, "file"));
        let (formats, seconds) = (formats.join(", "), self.seconds);
        writeln!(out, "{BOLD}{records}{BOLD:#} from {files} ({formats}) in {seconds:.1} s")?;
        let mut row = |n: u64, what: &str| match n {
            0 => Ok(()),
            _ => writeln!(out, "  {:>12}  {what}", grouped(n)),
        };
        row(t.added, "added")?;
        row(t.replaced, "replaced (same id, different content)")?;
        row(t.unchanged, "unchanged (already in the index)")?;
        row(t.repeated, "repeated in the input, kept once")?;
        row(t.too_short, "skipped: too few turns")?;
        row(t.duplicates, "skipped: duplicates of another dialogue")?;
        row(t.rejected, "rejected")?;
        row(self.resumed_after, "of these records were read by the earlier run")?;
        let c = &t.cleaned;
        let mut cleaned = |n: u64, what: &str| row(n, &format!("{DIM}cleaning:{DIM:#} {what}"));
        cleaned(c.normalized_turns, "turns normalized")?;
        cleaned(c.merged_turns, "turns merged into the previous turn")?;
        cleaned(c.emails, "e-mail addresses redacted")?;
        cleaned(c.phones, "phone numbers redacted")?;
        cleaned(c.cards, "card numbers redacted")?;
        let files = &self.files;
        row(files.without_dialogues as u64, &format!("{DIM}files of the corpus without dialogues{DIM:#}"))?;
        if let Some(first) = files.not_recognised.first() {
            row(files.not_recognised.len() as u64, &format!("files not recognized, such as {first}"))?;
        }
        let totals = totals(self.totals.dialogues, self.totals.turns);
        writeln!(out, "{BOLD}{}{BOLD:#} now holds {totals}", self.index)
    }
}
