//! `turnwise delete`: removes dialogues.

use crate::cli::{
    args::DeleteArgs,
    commands::index::{self, compact::Compacted},
    prelude::*,
};
use turnwise_core::ids::DialogueId;
use turnwise_index::location::{Deletion, Selection};
use turnwise_store::Snapshot;

/// Result of `turnwise delete`, printed as text or JSON.
#[derive(Serialize)]
struct Deleted<'a> {
    index: String,
    #[serde(flatten)]
    outcome: Outcome<'a>,
    dry_run: bool,
    /// Result of the compaction; `None` without `--purge` or with `--dry-run`.
    #[serde(skip_serializing_if = "Option::is_none")]
    purged: Option<Compacted>,
}

/// Ids of the deleted dialogues, or only their number if the engine does not report ids.
#[derive(Serialize)]
#[serde(untagged)]
enum Outcome<'a> {
    Listed { deleted: &'a [DialogueId], not_there: &'a [DialogueId] },
    Counted { deleted: u64 },
}

pub(super) fn run(args: &DeleteArgs, context: &Context<'_>) -> Result<()> {
    let location = context.existing_location()?;
    let compactable = if args.purge { Some(location.compactable()?) } else { None };
    let selection = match &args.filter {
        Some(filter) => Selection::Matching(filter.clone()),
        None => {
            let ids = args.ids.iter().map(|id| DialogueId::new(id.as_str()));
            Selection::Ids(ids.collect::<Result<_>>()?, None)
        }
    };
    let done = location.delete(&selection, args.dry_run, context.command_line)?;
    let n = done.count();
    // With --purge, no update is needed, because the compaction rebuilds the lexical index anyway.
    if let Some(root) = location.folder()
        && !args.dry_run
        && n > 0
        && !args.purge
        && context.settings.ingest_index
        && root.join("lexical").is_dir()
    {
        index::update(root, &Snapshot::open(root)?, context)?;
    }
    let compactable = compactable.filter(|_| !args.dry_run);
    let purged = compactable.map(|root| {
        index::compact::compact(root, context).map_err(|e| match e {
            Error::Interrupted { .. } => e.with_hint(format!(
                "deleted: {}; `turnwise index compact -i {}` frees the space",
                counted(n, "dialogue"),
                root.display()
            )),
            e => e,
        })
    });
    let outcome = match &done {
        Deletion::Listed { deleted, missing } => Outcome::Listed { deleted, not_there: missing },
        Deletion::Counted(deleted) => Outcome::Counted { deleted: *deleted },
    };
    let place = location.place();
    let report =
        Deleted { index: place.clone(), outcome, dry_run: args.dry_run, purged: purged.transpose()? };
    context.printer.result(&report, |out| {
        let what = if args.dry_run { "would be deleted" } else { "deleted" };
        writeln!(out, "{} {what}", counted(n, "dialogue"))?;
        report.purged.as_ref().map_or(Ok(()), |purged| purged.write(out))
    })?;
    match (&selection, &done) {
        (Selection::Ids(..), Deletion::Listed { missing, .. }) => check_listed(&place, missing),
        (Selection::Ids(ids, _), Deletion::Counted(deleted)) if (ids.len() as u64) > *deleted => {
            let missing = counted(ids.len() as u64 - deleted, "dialogue");
            Err(Error::input(format!("{place} has none of the {missing} named")))
        }
        _ => Ok(()),
    }
}

/// Returns an error if `missing` is not empty. `missing` contains the ids given by the user that no dialogue has.
fn check_listed(place: &str, missing: &[DialogueId]) -> Result<()> {
    let Some(first) = missing.first() else { return Ok(()) };
    Err(Error::input(match missing.len() {
        1 => format!("{place} holds no dialogue `{first}`"),
        n => format!("{place} holds none of the {n} dialogues named, such as `{first}`"),
    }))
}
