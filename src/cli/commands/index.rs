//! `turnwise index`, and what every command that changes records does at its end.

use std::path::Path;

use serde::Serialize;

use crate::{
    cli::{Context, printer::grouped, progress::Progress, signals},
    error::Result,
    index::lexical::Lexical,
    store::Snapshot,
};

#[derive(Serialize)]
struct Built {
    index: String,
    utterances_taken_in: u64,
}

pub(super) fn build(context: &Context<'_>) -> Result<()> {
    let root = context.existing_index()?;
    if Lexical::open(&root).and_then(|lexical| lexical.damaged_files()).is_ok_and(|files| !files.is_empty()) {
        context.printer.warn("the search index is damaged and is made anew");
        Lexical::remove(&root)?;
    }
    let taken = update(&root, &Snapshot::open(&root)?, context)?;
    let built = Built { index: root.display().to_string(), utterances_taken_in: taken };
    context.printer.result(&built, |out| match taken {
        0 => writeln!(out, "{} is up to date", built.index),
        n => writeln!(out, "{}: {} utterances taken in", built.index, grouped(n)),
    })
}

/// Brings the lexical index up to a snapshot.
pub(super) fn update(root: &Path, snapshot: &Snapshot, context: &Context<'_>) -> Result<u64> {
    let total = snapshot.totals().turns;
    let mut progress = Progress::new(context.printer, "indexing", "utterances", Some(total));
    Lexical::update(root, snapshot, &signals::stopped, &mut |done| progress.set(done, done))
}
