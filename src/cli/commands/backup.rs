//! `turnwise backup` and `turnwise restore`.

use std::path::Path;

use crate::{
    cli::{
        Context,
        commands::index,
        printer::{bytes, counted},
    },
    error::Result,
    store::{Snapshot, backup as copies},
};

pub(super) fn backup(target: &Path, context: &Context<'_>) -> Result<()> {
    let root = context.existing_index()?;
    let backup = copies::backup(&root, target)?;
    let size = backup.files.iter().map(|f| f.bytes).sum();
    context.printer.result(&backup, |out| {
        writeln!(
            out,
            "{} with {} are in {} ({})",
            counted(backup.totals.dialogues, "dialogue"),
            counted(backup.totals.turns, "turn"),
            target.display(),
            bytes(size)
        )
    })
}

pub(super) fn restore(source: &Path, context: &Context<'_>) -> Result<()> {
    let root = context.index()?;
    let backup = copies::restore(source, &root, context.command_line)?;
    if context.settings.ingest_index {
        index::update(&root, &Snapshot::open(&root)?, context)?;
    }
    context.printer.result(&backup, |out| {
        writeln!(
            out,
            "{} holds {} with {}, as of {}",
            root.display(),
            counted(backup.totals.dialogues, "dialogue"),
            counted(backup.totals.turns, "turn"),
            backup.made
        )
    })
}
