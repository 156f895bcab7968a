//! `turnwise backup` copies an index to a folder; `turnwise restore` creates an index from such a copy.

use crate::cli::{commands::index, prelude::*};
use turnwise_index::vectors;
use turnwise_search::Tuning;
use turnwise_store::{Snapshot, backup as copies};

pub(super) fn backup(target: &Path, with_vectors: bool, context: &Context<'_>) -> Result<()> {
    let root = context.existing_index()?;
    let backup = copies::backup(&root, target)?;
    copy_tuning(&root, target, context)?;
    if with_vectors {
        report_vectors(vectors::backup(&root, target), "damaged; `turnwise repair` removes them", context)?;
    }
    let size = backup.files.iter().map(|f| f.bytes).sum();
    context.printer.result(&backup, |out| {
        let totals = totals(backup.totals.dialogues, backup.totals.turns);
        writeln!(out, "{totals} are in {} ({})", target.display(), bytes(size))
    })
}

pub(super) fn restore(source: &Path, context: &Context<'_>) -> Result<()> {
    let root = context.index()?;
    let backup = copies::restore(source, &root, context.command_line)?;
    if context.settings.ingest_index {
        index::update(&root, &Snapshot::open(&root)?, context)?;
    }
    copy_tuning(source, &root, context)?;
    report_vectors(vectors::restore(source, &root, context.command_line), "damaged in the backup", context)?;
    context.printer.result(&backup, |out| {
        let totals = totals(backup.totals.dialogues, backup.totals.turns);
        writeln!(out, "{} holds {totals}, as of {}", root.display(), backup.made)
    })
}

/// Copies the search weights saved by `search tune`. Damaged weights only cause a warning, because `search tune` can
/// compute them again.
fn copy_tuning(from: &Path, to: &Path, context: &Context<'_>) -> Result<()> {
    match Tuning::read(from) {
        Ok(tuning) => tuning.map_or(Ok(()), |tuning| tuning.save(to)),
        Err(e @ Error::Corrupt { .. }) => {
            context.printer.warn(format!("the tuned search settings were not copied: {e}"));
            Ok(())
        }
        Err(e) => Err(e),
    }
}

/// Prints the number of copied vectors. Damaged vectors only cause a warning, because `turnwise encode` can compute
/// them again.
fn report_vectors(copied: Result<Option<u64>>, damaged: &str, context: &Context<'_>) -> Result<()> {
    match copied {
        Ok(None) => {}
        Ok(Some(n)) => context.printer.say(format!("{} copied", counted(n, "vector"))),
        Err(e @ Error::Corrupt { .. }) => {
            context.printer.warn(format!("the vectors were not copied, because they are {damaged}: {e}"));
        }
        Err(e) => return Err(e),
    }
    Ok(())
}
