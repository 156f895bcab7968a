//! From `--corpus` to dialogues.

use std::path::PathBuf;

use crate::{
    cli::{Context, args::ReadArgs, commands::convert, signals},
    corpus::Dialogue,
    error::{Error, Result},
    store::{Manifest, Snapshot},
};

/// Dialogues, and which of them came from which path.
pub(super) struct Read {
    pub(super) dialogues: Vec<Dialogue>,
    /// Of each path, where its dialogues end.
    pub(super) ends: Vec<usize>,
}

/// The dialogues of indexes, files and folders.
pub(super) fn read(paths: &[PathBuf], args: &ReadArgs, context: &Context<'_>) -> Result<Read> {
    let mut read = Read { dialogues: Vec::new(), ends: Vec::new() };
    for path in paths {
        read.dialogues.extend(of(path, args, context)?);
        read.ends.push(read.dialogues.len());
    }
    Ok(read)
}

fn of(path: &PathBuf, args: &ReadArgs, context: &Context<'_>) -> Result<Vec<Dialogue>> {
    let mut dialogues = Vec::new();
    if let Some(index) = index(path, context) {
        for dialogue in Snapshot::open(&index)?.dialogues() {
            if signals::stopped() {
                return Err(Error::Interrupted { hint: None });
            }
            dialogues.push(dialogue?);
        }
        return Ok(dialogues);
    }
    let problems =
        convert::each_dialogue(std::slice::from_ref(path), args, "reading", context, &mut |dialogue| {
            dialogues.push(dialogue);
            Ok(())
        })?;
    problems.into_result()?;
    Ok(dialogues)
}

/// The folder of an index, if a path is one or is the name of one. What lies there under that name comes first.
fn index(path: &PathBuf, context: &Context<'_>) -> Option<PathBuf> {
    if path.exists() {
        return Manifest::exists(path).then(|| path.clone());
    }
    let named = context.settings.indexes_dir.join(path);
    (path.components().count() == 1 && Manifest::exists(&named)).then_some(named)
}
