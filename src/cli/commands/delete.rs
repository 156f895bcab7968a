//! `turnwise delete`.

use serde::Serialize;

use crate::{
    cli::{Context, args::DeleteArgs, commands::index, printer::counted},
    error::{Error, Result},
    ids::DialogueId,
    store::{Snapshot, Store},
};

#[derive(Serialize)]
struct Deleted {
    index: String,
    deleted: Vec<DialogueId>,
    not_there: Vec<DialogueId>,
    dry_run: bool,
}

pub(super) fn run(args: &DeleteArgs, context: &Context<'_>) -> Result<()> {
    let root = context.existing_index()?;
    let snapshot = Snapshot::open(&root)?;
    let mut deleted = Deleted {
        index: root.display().to_string(),
        deleted: Vec::new(),
        not_there: Vec::new(),
        dry_run: args.dry_run,
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
        // An ingest that waits to be gone on with is not this command's to forget.
        let unfinished = store.unfinished_ingest().cloned();
        store.commit(unfinished)?;
        store.close()?;
        if context.settings.ingest_index && root.join("lexical").is_dir() {
            index::update(&root, &Snapshot::open(&root)?, context)?;
        }
    }
    let n = deleted.deleted.len() as u64;
    context.printer.result(&deleted, |out| match args.dry_run {
        true => writeln!(out, "{} would be deleted", counted(n, "dialogue")),
        false => writeln!(out, "{} deleted", counted(n, "dialogue")),
    })?;
    match (deleted.not_there.first(), args.ids.is_empty()) {
        (Some(first), false) => Err(Error::Input {
            message: match deleted.not_there.len() {
                1 => format!("{} holds no dialogue `{first}`", deleted.index),
                n => format!(
                    "{} holds none of {n} dialogues that were named, such as `{first}`",
                    deleted.index
                ),
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
