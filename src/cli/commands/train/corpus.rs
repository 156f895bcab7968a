//! From `--corpus` to dialogues.

use std::path::PathBuf;

use crate::{
    cli::{Context, args::ReadArgs, commands::convert, signals},
    corpus::Dialogue,
    error::{Error, Result},
    random::Random,
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

impl Read {
    /// Keeps so many of them, drawn by a seed, in their order.
    pub(super) fn keep(&mut self, count: usize, seed: u64) {
        let mut chosen: Vec<usize> = (0..self.dialogues.len()).collect();
        Random::new(seed, 4).shuffle(&mut chosen);
        chosen.truncate(count);
        chosen.sort_unstable();
        for end in &mut self.ends {
            *end = chosen.partition_point(|n| n < end);
        }
        let mut chosen = chosen.into_iter().peekable();
        let mut number = 0..;
        self.dialogues.retain(|_| number.next().is_some_and(|n| chosen.next_if_eq(&n).is_some()));
    }
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
