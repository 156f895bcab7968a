//! `turnwise index compact`: removes deleted data from the disk. `turnwise delete --purge` also does this.

use super::progress;
use crate::cli::{prelude::*, progress::StepProgress};
use turnwise_core::files;
use turnwise_index::{
    dense,
    lexical::Lexical,
    vectors::{self, CompactReport},
};
use turnwise_store::{Snapshot, compact as store, repair};

/// Result of `turnwise index compact`, printed as text or JSON.
#[derive(Serialize)]
pub(in crate::cli::commands) struct Compacted {
    schema: &'static str,
    index: String,
    /// Size of the index before the compaction, in bytes.
    bytes_before: u64,
    /// Size of the index after the compaction, in bytes.
    bytes: u64,
    /// Result of compacting the log, the tables and the record store.
    records: store::Compacted,
    #[serde(skip_serializing_if = "Option::is_none")]
    vectors: Option<CompactReport>,
    lexical_made_anew: bool,
    graphs_made_anew: bool,
}

pub(in crate::cli::commands) fn run(context: &Context<'_>) -> Result<()> {
    let compacted = compact(&context.existing_index()?, context)?;
    context.printer.result(&compacted, |out| compacted.write(out))
}

/// Removes deleted and replaced data from all files of an index: records, lexical index, vectors and graphs. After an
/// interruption, the next run continues.
pub(in crate::cli::commands) fn compact(root: &Path, context: &Context<'_>) -> Result<Compacted> {
    let bytes_before = files::folder_bytes(root);
    let command = context.command_line;
    let total = Snapshot::open(root)?.totals().dialogues;
    let records = {
        // Each dialogue is written twice: to the log and to the second copy.
        let mut progress = ProgressBar::new(context.printer, "compacting", "dialogues", Some(2 * total));
        let mut show = |steps| {
            progress.set(steps, steps / 2);
            context.printer.detail(format!("{steps} steps of {} are done", 2 * total));
        };
        store::compact(root, context.settings.segment_bytes, command, &signals::stopped, &mut show)?
    };
    let continue_hint = |e: Error| match e {
        Error::Interrupted { .. } => e.with_hint(format!(
            "the records are compacted; `turnwise index compact -i {}` continues with the rest",
            root.display()
        )),
        e => e,
    };
    // The lexical index comes first: it contains readable text of deleted dialogues.
    let snapshot = Snapshot::open(root)?;
    let lexical_made_anew = {
        let mut progress = progress(&snapshot, context);
        let mut show = |taken| progress.set(taken, taken);
        Lexical::compact(root, &snapshot, &signals::stopped, &mut show).map_err(continue_hint)?
    };
    let vectors = {
        let mut progress = ProgressBar::new(context.printer, "checking vectors", "dialogues", Some(total));
        let mut show = |seen| progress.set(seen, seen);
        vectors::compact(root, command, &signals::stopped, &mut show).map_err(continue_hint)?
    };
    let graphs_made_anew = dense::compact(root, &snapshot, command, &StepProgress::new(context.printer))
        .map_err(continue_hint)?;
    drop(snapshot);
    warn(root, &records, context);
    Ok(Compacted {
        schema: "turnwise/index-compact/1",
        index: root.display().to_string(),
        bytes_before,
        bytes: files::folder_bytes(root),
        records,
        vectors,
        lexical_made_anew,
        graphs_made_anew,
    })
}

/// Warns about old logs that can still contain deleted data.
fn warn(root: &Path, records: &store::Compacted, context: &Context<'_>) {
    if records.left {
        context.printer.warn("a file of the old log is still in use; the next write removes it");
    }
    for log in repair::kept_logs(root) {
        let text = "was kept by a repair and may contain deleted data; remove it when you no longer need it";
        context.printer.warn(format!("{} {text}", log.display()));
    }
}

impl Compacted {
    pub(in crate::cli::commands) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let vectors = self.vectors.unwrap_or_default();
        let mut dropped = Vec::new();
        let mut add = |n: u64, one: &str| {
            if n > 0 {
                dropped.push(counted(n, one));
            }
        };
        add(self.records.dropped, "record");
        add(vectors.utterances, "utterance vector");
        add(vectors.dialogues, "dialogue vector");
        let mut rebuilt = Vec::new();
        rebuilt.extend(self.lexical_made_anew.then_some("the lexical index"));
        rebuilt.extend(self.graphs_made_anew.then_some("the graphs"));
        if dropped.is_empty() && rebuilt.is_empty() {
            return writeln!(out, "{} has no deleted or replaced data", self.index);
        }
        if !dropped.is_empty() {
            writeln!(out, "{}: dropped {}", self.index, dropped.join(", "))?;
        }
        if !rebuilt.is_empty() {
            writeln!(out, "{}: rebuilt {}", self.index, rebuilt.join(" and "))?;
        }
        writeln!(out, "{}: {} before, {} now", self.index, bytes(self.bytes_before), bytes(self.bytes))
    }
}
