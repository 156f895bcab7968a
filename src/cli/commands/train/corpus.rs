//! From `--corpus` to dialogues.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use crate::{
    cli::{Context, args::ReadArgs, commands::convert, signals},
    corpus::Dialogue,
    error::{Error, Result},
    random::Random,
    store::{Manifest, Snapshot},
    train::held::Held,
};

/// Dialogues, and which of them came from which path.
pub(super) struct Read {
    pub(super) dialogues: Held<Dialogue>,
    /// Of each path, where its dialogues end.
    pub(super) ends: Vec<usize>,
}

/// The dialogues of indexes, files and folders: by stream into a file beside what is in this folder, or into memory.
pub(super) fn read(
    paths: &[PathBuf],
    args: &ReadArgs,
    room: Option<&Path>,
    context: &Context<'_>,
) -> Result<Read> {
    let mut read = Read { dialogues: Held::new(room)?, ends: Vec::new() };
    for path in paths {
        add(path, args, &mut read.dialogues, context)?;
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
        let mut chosen = chosen.into_iter().peekable();
        let kept: Vec<bool> = (0..self.dialogues.len()).map(|n| chosen.next_if_eq(&n).is_some()).collect();
        self.retain(&kept);
    }

    /// Leaves out those that say word for word what one of these does, whoever speaks; gives how many.
    pub(super) fn leave_out<'d>(&mut self, those: impl Iterator<Item = &'d Dialogue>) -> Result<usize> {
        let key = |dialogue: &Dialogue| {
            let mut words = blake3::Hasher::new();
            for word in dialogue.turns.iter().flat_map(|turn| turn.text.split_whitespace()) {
                words.update(word.as_bytes()).update(b" ");
            }
            *words.finalize().as_bytes()
        };
        let known: HashSet<[u8; 32]> = those.map(key).collect();
        let before = self.dialogues.len();
        if !known.is_empty() {
            let kept = self.dialogues.iter().map(|dialogue| Ok(!known.contains(&key(dialogue?.as_ref()))));
            let kept = kept.collect::<Result<Vec<bool>>>()?;
            self.retain(&kept);
        }
        Ok(before - self.dialogues.len())
    }

    /// Keeps some; each corpus ends where its own do.
    fn retain(&mut self, kept: &[bool]) {
        for end in &mut self.ends {
            *end = kept[..*end].iter().filter(|kept| **kept).count();
        }
        self.dialogues.retain(kept);
    }
}

fn add(path: &PathBuf, args: &ReadArgs, dialogues: &mut Held<Dialogue>, context: &Context<'_>) -> Result<()> {
    if let Some(index) = index(path, context) {
        for dialogue in Snapshot::open(&index)?.dialogues() {
            if signals::stopped() {
                return Err(Error::Interrupted { hint: None });
            }
            dialogues.push(dialogue?)?;
        }
        return Ok(());
    }
    let problems =
        convert::each_dialogue(std::slice::from_ref(path), args, "reading", context, &mut |dialogue| {
            dialogues.push(dialogue)
        })?;
    problems.into_result()
}

/// The folder of an index, if a path is one or is the name of one. What lies there under that name comes first.
fn index(path: &PathBuf, context: &Context<'_>) -> Option<PathBuf> {
    if path.exists() {
        return Manifest::exists(path).then(|| path.clone());
    }
    let named = context.settings.indexes_dir.join(path);
    (path.components().count() == 1 && Manifest::exists(&named)).then_some(named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{corpus::Role, ids::DialogueId};

    fn read(said: &[&str], ends: &[usize]) -> Read {
        let dialogue = |text: &&str| {
            let mut dialogue = Dialogue::new(DialogueId::new(*text).unwrap());
            for turn in text.split('/') {
                dialogue.push("x", Role::User, turn);
            }
            dialogue
        };
        Read { dialogues: said.iter().map(dialogue).collect::<Vec<_>>().into(), ends: ends.to_vec() }
    }

    #[test]
    fn what_is_left_is_still_of_its_corpus() {
        let mut all = read(&["a/b", "c", "d", "e f", "g", "h"], &[2, 3, 6]);
        let those = read(&["e/f", "c", "z"], &[3]);
        let those: Vec<Dialogue> = those.dialogues.iter().map(|d| d.unwrap().into_owned()).collect();
        assert_eq!(all.leave_out(those.iter()).unwrap(), 2);
        assert_eq!(all.ends, [1, 2, 4]);
        all.keep(3, 5);
        assert_eq!((all.dialogues.len(), all.ends[2]), (3, 3));
        all.keep(9, 5);
        assert_eq!(all.dialogues.len(), 3);
    }
}
