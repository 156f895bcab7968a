//! `turnwise index`, and what every command that changes records does at its end.

use std::path::Path;

use serde::Serialize;

use crate::{
    cli::{Context, args::IndexBuildArgs, printer::grouped, progress::Progress, signals},
    error::Result,
    index::lexical::Lexical,
    store::Snapshot,
    text::Analyzer,
};

#[derive(Serialize)]
struct Built {
    index: String,
    analyzer: String,
    utterances_taken_in: u64,
}

pub(super) fn build(args: &IndexBuildArgs, context: &Context<'_>) -> Result<()> {
    let root = context.existing_index()?;
    let mut analyzer = args.analyzer;
    if let Ok(lexical) = Lexical::open(&root)
        && lexical.damaged_files().is_ok_and(|files| !files.is_empty())
    {
        context.printer.warn("the search index is damaged and is made anew");
        // What is removed remembers nothing.
        analyzer = analyzer.or(Some(lexical.analyzer()));
        Lexical::remove(&root)?;
    }
    let taken = update_by(analyzer, &root, &Snapshot::open(&root)?, context)?;
    let analyzer = Lexical::open(&root)?.analyzer().to_string();
    let built = Built { index: root.display().to_string(), analyzer, utterances_taken_in: taken };
    context.printer.result(&built, |out| match taken {
        0 => writeln!(out, "{} is up to date", built.index),
        n => writeln!(out, "{}: {} utterances taken in", built.index, grouped(n)),
    })
}

/// Brings the lexical index up to a snapshot.
pub(super) fn update(root: &Path, snapshot: &Snapshot, context: &Context<'_>) -> Result<u64> {
    update_by(None, root, snapshot, context)
}

fn update_by(
    analyzer: Option<Analyzer>,
    root: &Path,
    snapshot: &Snapshot,
    context: &Context<'_>,
) -> Result<u64> {
    let total = snapshot.totals().turns;
    let mut progress = Progress::new(context.printer, "indexing", "utterances", Some(total));
    let mut show = |done| progress.set(done, done);
    Lexical::update_by(analyzer, root, snapshot, &signals::stopped, &mut show)
}
