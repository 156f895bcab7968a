//! From `--corpus` to dialogues.

use std::path::PathBuf;

use crate::{
    cli::{Context, args::ReadArgs, commands::convert, signals},
    corpus::Dialogue,
    error::{Error, Result},
    store::{Manifest, Snapshot},
};

/// The dialogues of an index, or of files and folders.
pub(super) fn read(paths: &[PathBuf], args: &ReadArgs, context: &Context<'_>) -> Result<Vec<Dialogue>> {
    let mut dialogues = Vec::new();
    if let [path] = paths
        && let Some(index) = index(path, context)
    {
        for dialogue in Snapshot::open(&index)?.dialogues() {
            if signals::stopped() {
                return Err(Error::Interrupted { hint: None });
            }
            dialogues.push(dialogue?);
        }
        return Ok(dialogues);
    }
    let problems = convert::each_dialogue(paths, args, "reading", context, &mut |dialogue| {
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
