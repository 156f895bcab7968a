//! Report at the end of an ingest.

use crate::cli::prelude::*;
use turnwise_corpus::walk::Plan;
use turnwise_store::{
    Totals,
    ingest::{Ingested, Tally},
};

/// Counts of the files of a plan.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Files {
    pub(super) read: usize,
    pub(super) without_dialogues: usize,
    pub(super) not_recognised: Vec<String>,
    pub(super) formats: Vec<(String, usize)>,
}

impl Files {
    pub(super) fn of(plan: &Plan) -> Self {
        let mut formats = std::collections::BTreeMap::<String, usize>::new();
        for source in &plan.sources {
            *formats.entry(source.format.name().to_owned()).or_default() += 1;
        }
        Files {
            read: plan.sources.len(),
            without_dialogues: plan.companions.len(),
            not_recognised: plan.unrecognized.iter().map(|p| p.display().to_string()).collect(),
            formats: formats.into_iter().collect(),
        }
    }
}

/// Result of an ingest. Also its JSON output.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) index: String,
    pub(super) files: Files,
    pub(super) tally: Tally,
    pub(super) resumed_after: u64,
    pub(super) totals: Totals,
    pub(super) seconds: f64,
}

impl Summary {
    pub(super) fn new(
        index: String,
        files: Files,
        ingested: &Ingested,
        totals: Totals,
        seconds: f64,
    ) -> Self {
        let Ingested { tally, resumed, .. } = ingested;
        Summary { index, files, tally: *tally, resumed_after: *resumed, totals, seconds }
    }

    /// Prints one line per kind of event; counts of zero are not printed.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let t = &self.tally;
        let formats: Vec<String> =
            self.files.formats.iter().map(|(name, n)| format!("{name}: {n}")).collect();
        writeln!(
            out,
            "{BOLD}{}{BOLD:#} from {} ({}) in {:.1} s",
            counted(t.records, "record"),
            counted(self.files.read as u64, "file"),
            formats.join(", "),
            self.seconds
        )?;
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
        let mut cleaned = |n: u64, what: &str| match n {
            0 => Ok(()),
            _ => writeln!(out, "  {:>12}  {DIM}cleaning:{DIM:#} {what}", grouped(n)),
        };
        cleaned(c.normalized_turns, "turns normalized")?;
        cleaned(c.merged_turns, "turns merged into the previous turn")?;
        cleaned(c.emails, "e-mail addresses redacted")?;
        cleaned(c.phones, "phone numbers redacted")?;
        cleaned(c.cards, "card numbers redacted")?;
        if self.files.without_dialogues > 0 {
            let n = self.files.without_dialogues as u64;
            writeln!(out, "  {:>12}  {DIM}files of the corpus without dialogues{DIM:#}", grouped(n))?;
        }
        if let Some(first) = self.files.not_recognised.first() {
            let n = self.files.not_recognised.len() as u64;
            writeln!(out, "  {:>12}  files not recognized, such as {first}", grouped(n))?;
        }
        writeln!(
            out,
            "{BOLD}{}{BOLD:#} now holds {} with {}",
            self.index,
            counted(self.totals.dialogues, "dialogue"),
            counted(self.totals.turns, "turn")
        )
    }
}
