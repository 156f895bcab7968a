//! Reads the dialogues of `--corpus`.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use crate::cli::{Context, args::ReadArgs, commands::convert, printer::counted, signals};
use turnwise_core::{
    error::{Error, Result},
    ids::IdKey,
    random::Random,
};
use turnwise_corpus::Dialogue;
use turnwise_eval::halves::can_be_split;
use turnwise_store::{Manifest, Snapshot};
use turnwise_train::{
    run::evaluations::MIN_HELD_OUT,
    spool::{DiskVec, Record as _},
};

/// The dialogues of all paths, with the boundaries between them.
pub(super) struct Read {
    pub(super) dialogues: DiskVec<Dialogue>,
    /// For each path, the index after its last dialogue.
    pub(super) ends: Vec<usize>,
}

/// Reads the dialogues of indexes, files and folders, either to a file in the given folder or into memory.
pub(super) fn read(
    paths: &[PathBuf],
    args: &ReadArgs,
    room: Option<&Path>,
    context: &Context<'_>,
) -> Result<Read> {
    let found: Vec<Option<PathBuf>> = paths.iter().map(|path| index(path, context)).collect();
    if let Some(option) = args.given_for_files()
        && found.iter().all(Option::is_some)
    {
        let indexes = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        return Err(Error::input(format!("{option} is an option for files, but {indexes} is an index"))
            .with_hint("remove it: an index was already read when it was built"));
    }
    let mut reading = Reading { dialogues: DiskVec::new(room)?, seen: HashSet::new(), again: 0 };
    let mut ends = Vec::new();
    for (path, index) in paths.iter().zip(found) {
        let (before, again) = (reading.dialogues.len(), reading.again);
        reading.add(path, index.as_deref(), args, context)?;
        let (new, again) = (reading.dialogues.len() - before, reading.again - again);
        if again > 0 {
            let (those, path) = (counted(again, "dialogue"), path.display());
            let left = if new == 0 { "; it has no other dialogues" } else { "" };
            context.printer.say(format!(
                "{those} of {path} were already read with the same id and text: used once{left}"
            ));
        }
        // A path without dialogues of its own does not count as a corpus.
        if new > 0 || again == 0 {
            ends.push(reading.dialogues.len());
        }
    }
    Ok(Read { dialogues: reading.dialogues, ends })
}

impl Read {
    /// Keeps a random sample of N dialogues in their order.
    pub(super) fn subsample(&mut self, count: usize, seed: u64) {
        let mut chosen: Vec<usize> = (0..self.dialogues.len()).collect();
        Random::new(seed, 4).shuffle(&mut chosen);
        chosen.truncate(count);
        chosen.sort_unstable();
        let mut chosen = chosen.into_iter().peekable();
        let kept: Vec<bool> = (0..self.dialogues.len()).map(|n| chosen.next_if_eq(&n).is_some()).collect();
        self.retain(&kept);
    }

    /// Removes up to N dialogues for evaluation, at most a tenth, and none if there are too few. The choice
    /// does not depend on the seed of the run, so runs with different seeds are evaluated on the same
    /// dialogues.
    pub(super) fn hold_out(&mut self, most: usize) -> Result<Vec<Dialogue>> {
        let wanted = most.min(self.dialogues.len() / 10);
        if wanted < MIN_HELD_OUT {
            return Ok(Vec::new());
        }
        let mut order: Vec<usize> = (0..self.dialogues.len()).collect();
        Random::new(0, 5).shuffle(&mut order);
        let (mut aside, mut kept) = (Vec::new(), vec![true; self.dialogues.len()]);
        for number in order {
            if aside.len() == wanted {
                break;
            }
            let dialogue = self.dialogues.get(number)?;
            if can_be_split(&dialogue) {
                kept[number] = false;
                aside.push(dialogue.into_owned());
            }
        }
        if aside.len() < MIN_HELD_OUT {
            return Ok(Vec::new());
        }
        self.retain(&kept);
        // Also remove copies under different ids.
        self.exclude(aside.iter())?;
        Ok(aside)
    }

    /// Removes dialogues with the same text as one of these, ignoring speakers. Returns their number.
    pub(super) fn exclude<'d>(&mut self, those: impl Iterator<Item = &'d Dialogue>) -> Result<usize> {
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

    /// Keeps the selected dialogues and updates the boundaries.
    fn retain(&mut self, kept: &[bool]) {
        for end in &mut self.ends {
            *end = kept[..*end].iter().filter(|kept| **kept).count();
        }
        self.dialogues.retain(kept);
    }
}

/// Error for a path that does not exist. It may be the name of an index.
fn not_found(path: &Path, context: &Context<'_>) -> Error {
    let (named, indexes) = (path.display(), context.settings.indexes_dir.display());
    Error::input(format!("there is no file or folder {named}, and no index of that name in {indexes}"))
        .with_hint("name an index, or files and folders of dialogues: --corpus chats/")
}

/// Dialogues read so far. A dialogue that is in two exports counts once, as in an index.
struct Reading {
    dialogues: DiskVec<Dialogue>,
    /// Hashes of the dialogues read so far.
    seen: HashSet<IdKey>,
    /// Number of duplicates.
    again: u64,
}

impl Reading {
    fn add(
        &mut self,
        path: &PathBuf,
        index: Option<&Path>,
        args: &ReadArgs,
        context: &Context<'_>,
    ) -> Result<()> {
        let Some(index) = index else {
            if !path.exists() && path.as_os_str() != "-" {
                return Err(not_found(path, context));
            }
            let files = std::slice::from_ref(path);
            return convert::each_dialogue(files, args, "reading", context, &mut |dialogue| {
                self.push(dialogue)
            })?
            .into_result();
        };
        for dialogue in Snapshot::open(index)?.dialogues() {
            if signals::stopped() {
                return Err(Error::Interrupted { hint: None });
            }
            self.push(dialogue?)?;
        }
        Ok(())
    }

    fn push(&mut self, dialogue: Dialogue) -> Result<()> {
        match self.seen.insert(IdKey::of_bytes(&dialogue.to_bytes()?)) {
            true => self.dialogues.push(dialogue),
            false => {
                self.again += 1;
                Ok(())
            }
        }
    }
}

/// Returns the index folder if the path is one or names one. A file at that path comes first.
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
    use turnwise_core::ids::DialogueId;
    use turnwise_corpus::Role;

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
    fn held_out_dialogues_are_not_trained_on() {
        let said: Vec<String> = (0..300).map(|n| format!("a{0}/b{0}/c/d", n % 250)).collect();
        let said: Vec<&str> = said.iter().map(String::as_str).chain(["short/one"]).collect();
        let of = |most: usize| {
            let mut all = read(&said, &[100, 301]);
            let aside = all.hold_out(most).unwrap();
            let left: Vec<String> = all.dialogues.iter().map(|d| d.unwrap().turns[0].text.clone()).collect();
            let aside: Vec<String> = aside.iter().map(|d| d.turns[0].text.clone()).collect();
            (aside, left, all.ends)
        };
        let (aside, left, ends) = of(25);
        assert_eq!((aside.len(), ends[1]), (25, left.len()));
        assert!(left.len() < 301 - 25 && aside.iter().all(|one| !left.contains(one)));
        assert_eq!(of(400).0.len(), 30);
        assert_eq!((of(19).0.len(), of(19).1.len()), (0, 301));
    }

    #[test]
    fn boundaries_are_kept_when_dialogues_are_removed() {
        let mut all = read(&["a/b", "c", "d", "e f", "g", "h"], &[2, 3, 6]);
        let those = read(&["e/f", "c", "z"], &[3]);
        let those: Vec<Dialogue> = those.dialogues.iter().map(|d| d.unwrap().into_owned()).collect();
        assert_eq!(all.exclude(those.iter()).unwrap(), 2);
        assert_eq!(all.ends, [1, 2, 4]);
        all.subsample(3, 5);
        assert_eq!((all.dialogues.len(), all.ends[2]), (3, 3));
        all.subsample(9, 5);
        assert_eq!(all.dialogues.len(), 3);
    }
}
