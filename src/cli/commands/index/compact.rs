//! `turnwise index compact`, which is also the end of `delete --purge`.

use std::{
    io::{self, Write},
    path::Path,
};

use serde::Serialize;

use super::progress;
use crate::cli::{
    Context,
    printer::{bytes, counted},
    progress::ProgressBar,
    signals,
    watching::Watching,
};
use turnwise_core::{
    error::{Error, Result},
    files,
};
use turnwise_index::{
    dense,
    lexical::Lexical,
    vectors::{self, Dropped},
};
use turnwise_store::{Snapshot, compact as store, repair};

/// What was dropped.
#[derive(Serialize)]
pub(in crate::cli::commands) struct Compacted {
    schema: &'static str,
    index: String,
    /// The bytes of the whole index before.
    bytes_before: u64,
    /// And now.
    bytes: u64,
    /// The log, and tables and sled that are made of it.
    records: store::Compacted,
    #[serde(skip_serializing_if = "Option::is_none")]
    vectors: Option<Dropped>,
    lexical_made_anew: bool,
    graphs_made_anew: bool,
}

pub(in crate::cli::commands) fn run(context: &Context<'_>) -> Result<()> {
    let compacted = compact(&context.existing_index()?, context)?;
    context.printer.result(&compacted, |out| compacted.write(out))
}

/// Drops what was deleted or replaced from all parts of an index. Each part is as it was or done at any moment, and the
/// next run does what is left.
pub(in crate::cli::commands) fn compact(root: &Path, context: &Context<'_>) -> Result<Compacted> {
    let bytes_before = files::folder_bytes(root);
    let command = context.command_line;
    let total = Snapshot::open(root)?.totals().dialogues;
    let records = {
        // Each dialogue goes into the log and into the second copy.
        let mut progress = ProgressBar::new(context.printer, "compacting", "dialogues", Some(2 * total));
        let mut show = |steps| {
            progress.set(steps, steps / 2);
            context.printer.detail(format!("{steps} steps of {} are done", 2 * total));
        };
        store::compact(root, context.settings.segment_bytes, command, &signals::stopped, &mut show)?
    };
    let go_on = |e: Error| match e {
        Error::Interrupted { .. } => {
            let again =
                format!("the records are done; `turnwise index compact -i {}` does the rest", root.display());
            e.with_hint(again)
        }
        e => e,
    };
    // Words first: they are what people can read.
    let snapshot = Snapshot::open(root)?;
    let lexical_made_anew = {
        let mut progress = progress(&snapshot, context);
        let mut show = |taken| progress.set(taken, taken);
        Lexical::compact(root, &snapshot, &signals::stopped, &mut show).map_err(go_on)?
    };
    let vectors = {
        let mut progress = ProgressBar::new(context.printer, "looking at vectors", "dialogues", Some(total));
        let mut show = |seen| progress.set(seen, seen);
        vectors::compact(root, command, &signals::stopped, &mut show).map_err(go_on)?
    };
    let graphs_made_anew =
        dense::compact(root, &snapshot, command, &Watching::new(context.printer)).map_err(go_on)?;
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

/// Where bytes of what was deleted may still lie.
fn warn(root: &Path, records: &store::Compacted, context: &Context<'_>) {
    if records.left {
        context.printer.warn("a file of the old log is in use and stays for now; the next writer removes it");
    }
    for kept in repair::kept_logs(root) {
        context.printer.warn(format!(
            "{} was kept by a repair and may hold what was deleted; remove it when you no longer need it",
            kept.display()
        ));
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
        let anew: Vec<&str> =
            [(self.lexical_made_anew, "the lexical index"), (self.graphs_made_anew, "the graphs")]
                .into_iter()
                .filter_map(|(made, what)| made.then_some(what))
                .collect();
        if dropped.is_empty() && anew.is_empty() {
            return writeln!(out, "{} holds nothing that was deleted or replaced", self.index);
        }
        if !dropped.is_empty() {
            writeln!(out, "{}: dropped {}", self.index, dropped.join(", "))?;
        }
        if !anew.is_empty() {
            writeln!(out, "{}: made {} anew", self.index, anew.join(" and "))?;
        }
        writeln!(out, "{}: {} before, {} now", self.index, bytes(self.bytes_before), bytes(self.bytes))
    }
}
