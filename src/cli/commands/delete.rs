//! `turnwise delete`: removes dialogues from an index.

mod remote;

use serde::Serialize;

use crate::cli::{
    Context,
    args::DeleteArgs,
    commands::index::{self, compact::Compacted},
    printer::counted,
};
use turnwise_core::{
    error::{Error, Result},
    ids::DialogueId,
};
use turnwise_store::{Snapshot, Store};

#[derive(Serialize)]
struct Deleted {
    index: String,
    deleted: Vec<DialogueId>,
    not_there: Vec<DialogueId>,
    dry_run: bool,
    /// Space reclaimed; only with `--purge`.
    #[serde(skip_serializing_if = "Option::is_none")]
    purged: Option<Compacted>,
}

pub(super) fn run(args: &DeleteArgs, context: &Context<'_>) -> Result<()> {
    if context.settings.engine.is_some() {
        return remote::delete(args, context);
    }
    let root = context.existing_index()?;
    let snapshot = Snapshot::open(&root)?;
    let mut deleted = Deleted {
        index: root.display().to_string(),
        deleted: Vec::new(),
        not_there: Vec::new(),
        dry_run: args.dry_run,
        purged: None,
    };
    for id in wanted(args, &snapshot)? {
        match snapshot.get(&id)? {
            Some(_) => deleted.deleted.push(id),
            None => deleted.not_there.push(id),
        }
    }
    if !args.dry_run && !deleted.deleted.is_empty() {
        let mut store = Store::open(&root, context.command_line)?;
        for id in &deleted.deleted {
            store.delete(id)?;
        }
        // Keep the resume point of an interrupted ingest: this command must not discard it.
        let unfinished = store.unfinished_ingest().cloned();
        store.commit(unfinished)?;
        store.close()?;
        // A compaction rebuilds the lexical index anyway.
        if !args.purge && context.settings.ingest_index && root.join("lexical").is_dir() {
            index::update(&root, &Snapshot::open(&root)?, context)?;
        }
    }
    // Drop the snapshot first: its memory maps would keep the old files open.
    drop(snapshot);
    let n = deleted.deleted.len() as u64;
    if args.purge && !args.dry_run {
        deleted.purged = Some(index::compact::compact(&root, context).map_err(|e| match e {
            Error::Interrupted { .. } => e.with_hint(format!(
                "deleted: {}; `turnwise index compact -i {}` frees the space",
                counted(n, "dialogue"),
                root.display()
            )),
            e => e,
        })?);
    }
    context.printer.result(&deleted, |out| {
        let done = if args.dry_run { "would be deleted" } else { "deleted" };
        writeln!(out, "{} {done}", counted(n, "dialogue"))?;
        deleted.purged.as_ref().map_or(Ok(()), |purged| purged.write(out))
    })?;
    match (deleted.not_there.first(), args.ids.is_empty()) {
        (Some(first), false) => Err(Error::Input {
            message: match deleted.not_there.len() {
                1 => format!("{} holds no dialogue `{first}`", deleted.index),
                n => format!("{} holds none of the {n} dialogues named, such as `{first}`", deleted.index),
            },
            hint: None,
        }),
        _ => Ok(()),
    }
}

fn wanted(args: &DeleteArgs, snapshot: &Snapshot) -> Result<Vec<DialogueId>> {
    let Some(filter) = &args.filter else {
        return args.ids.iter().map(|id| DialogueId::new(id.as_str())).collect();
    };
    let mut ids = Vec::new();
    for dialogue in snapshot.dialogues() {
        let dialogue = dialogue?;
        if filter.matches(&dialogue) {
            ids.push(dialogue.id);
        }
    }
    Ok(ids)
}
