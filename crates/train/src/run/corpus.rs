//! The training dialogues: reading, sampling, and holding out.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use super::{
    RunOptions,
    observer::{self, Progress, RunObserver, Stage},
};
use crate::spool::{DiskVec, Record as _};
use turnwise_core::{
    error::{Error, Result},
    ids::IdKey,
    numbers::counted,
    random::Random,
};
use turnwise_corpus::{
    Dialogue,
    reader::{ReadEvent, Reader},
};
use turnwise_eval::halves::{MIN_HELD_OUT, can_be_split};
use turnwise_store::{Manifest, Snapshot};

/// Maximum number of rejected records that are reported one by one.
const REPORTED_REJECTS: u64 = 5;

/// The dialogues of all corpora, without duplicates.
pub(super) struct Corpora {
    pub(super) dialogues: DiskVec<Dialogue>,
    /// For each corpus, the index of its last dialogue, plus 1.
    pub(super) ends: Vec<usize>,
    /// Path of each corpus, as given in the recipe. A path with only duplicates is omitted.
    pub(super) paths: Vec<PathBuf>,
}

/// Reads the dialogues of indexes, files and folders. The dialogues are stored in a temporary file in the folder
/// `spool`, or in memory if `spool` is `None`.
pub(super) fn read(
    paths: &[PathBuf],
    reader: &Reader,
    spool: Option<&Path>,
    options: &RunOptions,
    observer: &dyn RunObserver,
) -> Result<Corpora> {
    let found: Vec<Option<PathBuf>> = paths.iter().map(|path| index(path, &options.indexes)).collect();
    let for_files = [(reader.format.is_some(), "--from"), (reader.options.columns.is_some(), "--map")];
    if let Some((_, option)) = for_files.into_iter().find(|(given, _)| *given)
        && found.iter().all(Option::is_some)
    {
        let indexes = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        return Err(Error::input(format!("{option} is an option for files, but {indexes} is an index"))
            .with_hint("remove it: an index was already read when it was built"));
    }
    let mut reading = Reading { dialogues: DiskVec::new(spool)?, seen: HashSet::new(), duplicates: 0 };
    let (mut ends, mut corpus_paths) = (Vec::new(), Vec::new());
    for (path, index) in paths.iter().zip(found) {
        let (before, duplicates) = (reading.dialogues.len(), reading.duplicates);
        match index {
            Some(index) => {
                for dialogue in Snapshot::open(&index)?.dialogues() {
                    observer::check(observer, None)?;
                    reading.push(dialogue?)?;
                }
            }
            None if !path.exists() && path.as_os_str() != "-" => {
                return Err(not_found(path, &options.indexes));
            }
            None => read_files(std::slice::from_ref(path), reader, observer, &mut |d| reading.push(d))?,
        }
        let (new, duplicates) = (reading.dialogues.len() - before, reading.duplicates - duplicates);
        if duplicates > 0 {
            let (duplicates, path) = (counted(duplicates, "dialogue"), path.display());
            let left = if new == 0 { "; it has no other dialogues" } else { "" };
            observer.note(&format!(
                "{duplicates} of {path} were already read with the same id and text: used once{left}"
            ));
        }
        if new > 0 || duplicates == 0 {
            ends.push(reading.dialogues.len());
            corpus_paths.push(path.clone());
        }
    }
    Ok(Corpora { dialogues: reading.dialogues, ends, paths: corpus_paths })
}

impl Corpora {
    /// Keeps a random sample of `count` dialogues, in their original order.
    pub(super) fn subsample(&mut self, count: usize, seed: u64) {
        let mut chosen: Vec<usize> = (0..self.dialogues.len()).collect();
        Random::new(seed, 4).shuffle(&mut chosen);
        chosen.truncate(count);
        chosen.sort_unstable();
        let mut chosen = chosen.into_iter().peekable();
        let kept: Vec<bool> = (0..self.dialogues.len()).map(|n| chosen.next_if_eq(&n).is_some()).collect();
        self.retain(&kept);
    }

    /// Removes dialogues for evaluation, and returns them: at most `most` dialogues, and at most a tenth of all
    /// dialogues. If fewer than [`MIN_HELD_OUT`] dialogues can be held out, removes nothing and returns an empty list.
    ///
    /// The choice does not depend on the seed of the run, so runs with different seeds are evaluated on the same
    /// dialogues.
    pub(super) fn hold_out(&mut self, most: usize) -> Result<Vec<Dialogue>> {
        let wanted = most.min(self.dialogues.len() / 10);
        if wanted < MIN_HELD_OUT {
            return Ok(Vec::new());
        }
        let mut order: Vec<usize> = (0..self.dialogues.len()).collect();
        Random::new(0, 5).shuffle(&mut order);
        let (mut held_out, mut kept) = (Vec::new(), vec![true; self.dialogues.len()]);
        for number in order {
            if held_out.len() == wanted {
                break;
            }
            let dialogue = self.dialogues.get(number)?;
            if can_be_split(&dialogue) {
                kept[number] = false;
                held_out.push(dialogue.into_owned());
            }
        }
        if held_out.len() < MIN_HELD_OUT {
            return Ok(Vec::new());
        }
        self.retain(&kept);
        // Also remove dialogues with the same text and a different id.
        self.exclude(held_out.iter())?;
        Ok(held_out)
    }

    /// Removes all dialogues that have the same text as one of `others`. The comparison ignores speakers and
    /// whitespace. Returns the number of removed dialogues.
    pub(super) fn exclude<'d>(&mut self, others: impl Iterator<Item = &'d Dialogue>) -> Result<usize> {
        let key = |dialogue: &Dialogue| {
            let mut words = blake3::Hasher::new();
            for word in dialogue.turns.iter().flat_map(|turn| turn.text.split_whitespace()) {
                words.update(word.as_bytes()).update(b" ");
            }
            *words.finalize().as_bytes()
        };
        let known: HashSet<[u8; 32]> = others.map(key).collect();
        let before = self.dialogues.len();
        if !known.is_empty() {
            let kept = self.dialogues.iter().map(|dialogue| Ok(!known.contains(&key(dialogue?.as_ref()))));
            let kept = kept.collect::<Result<Vec<bool>>>()?;
            self.retain(&kept);
        }
        Ok(before - self.dialogues.len())
    }

    /// Removes dialogue N if `kept[N]` is false, and updates `ends`.
    fn retain(&mut self, kept: &[bool]) {
        for end in &mut self.ends {
            *end = kept[..*end].iter().filter(|kept| **kept).count();
        }
        self.dialogues.retain(kept);
    }
}

/// Reads files and folders, and calls `take` with each dialogue. Reports rejected records to the observer.
pub(super) fn read_files(
    paths: &[PathBuf],
    reader: &Reader,
    observer: &dyn RunObserver,
    take: &mut dyn FnMut(Dialogue) -> Result<()>,
) -> Result<()> {
    let mut rejected = 0;
    let mut event = |event: ReadEvent<'_>| match event {
        ReadEvent::Found(plan) => {
            for path in &plan.unrecognized {
                observer.detail(&format!("not recognized: {}", path.display()));
            }
            if !plan.unrecognized.is_empty() {
                let files = counted(plan.unrecognized.len() as u64, "file");
                observer.warn(&format!("{files} not recognized and skipped (-v lists them)"));
            }
            Ok(())
        }
        ReadEvent::Read { bytes, total, records } => {
            if records.is_multiple_of(64) {
                let (stage, done, items) = (Stage::Reading, bytes, records);
                observer.progress(&Progress { stage, done, total, items, detail: "" });
            }
            observer::check(observer, None)
        }
        ReadEvent::Rejected(reject) => {
            rejected += 1;
            if rejected <= REPORTED_REJECTS {
                observer.warn(&format!("rejected: {reject}"));
            }
            Ok(())
        }
    };
    reader.each_dialogue(paths, &mut event, take)?.into_result()
}

/// Returns the error for a path that is neither a file, nor a folder, nor the name of an index.
fn not_found(path: &Path, indexes: &Path) -> Error {
    let (named, indexes) = (path.display(), indexes.display());
    Error::input(format!("there is no file or folder {named}, and no index of that name in {indexes}"))
        .with_hint("name an index, or files and folders of dialogues: --corpus chats/")
}

/// Dialogues read so far, without duplicates.
struct Reading {
    dialogues: DiskVec<Dialogue>,
    /// Hash of each dialogue. The id of the dialogue is part of the hashed data.
    seen: HashSet<IdKey>,
    /// Number of dialogues that were skipped because an equal dialogue was read before.
    duplicates: u64,
}

impl Reading {
    fn push(&mut self, dialogue: Dialogue) -> Result<()> {
        match self.seen.insert(IdKey::of_bytes(&dialogue.to_bytes()?)) {
            true => self.dialogues.push(dialogue),
            false => {
                self.duplicates += 1;
                Ok(())
            }
        }
    }
}

/// Returns the folder of an index, given its path or its name; `None` if there is no such index. An existing file or
/// folder at the path takes precedence over an index with that name.
fn index(path: &PathBuf, indexes: &Path) -> Option<PathBuf> {
    if path.exists() {
        return Manifest::exists(path).then(|| path.clone());
    }
    let named = indexes.join(path);
    (path.components().count() == 1 && Manifest::exists(&named)).then_some(named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnwise_core::ids::DialogueId;
    use turnwise_corpus::Role;

    fn read(said: &[&str], ends: &[usize]) -> Corpora {
        let dialogue = |text: &&str| {
            let mut dialogue = Dialogue::new(DialogueId::new(*text).unwrap());
            for turn in text.split('/') {
                dialogue.push("x", Role::User, turn);
            }
            dialogue
        };
        let dialogues = said.iter().map(dialogue).collect::<Vec<_>>().into();
        Corpora { dialogues, ends: ends.to_vec(), paths: Vec::new() }
    }

    #[test]
    fn held_out_dialogues_are_not_trained_on() {
        let said: Vec<String> = (0..300).map(|n| format!("a{0}/b{0}/c/d", n % 250)).collect();
        let said: Vec<&str> = said.iter().map(String::as_str).chain(["short/one"]).collect();
        let of = |most: usize| {
            let mut all = read(&said, &[100, 301]);
            let held_out = all.hold_out(most).unwrap();
            let left: Vec<String> = all.dialogues.iter().map(|d| d.unwrap().turns[0].text.clone()).collect();
            let held_out: Vec<String> = held_out.iter().map(|d| d.turns[0].text.clone()).collect();
            (held_out, left, all.ends)
        };
        let (held_out, left, ends) = of(25);
        assert_eq!((held_out.len(), ends[1]), (25, left.len()));
        assert!(left.len() < 301 - 25 && held_out.iter().all(|one| !left.contains(one)));
        assert_eq!(of(400).0.len(), 30);
        assert_eq!((of(19).0.len(), of(19).1.len()), (0, 301));
    }

    #[test]
    fn a_path_with_only_duplicates_is_not_a_corpus() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, said: &str| {
            let path = folder.path().join(name);
            let dialogue = read(&[said], &[1]).dialogues.bytes(0).unwrap();
            std::fs::write(&path, [dialogue, b"\n".to_vec()].concat()).unwrap();
            path
        };
        let [first, copy, last] = [("a", "x/y"), ("b", "x/y"), ("c", "z/y")]
            .map(|(name, said)| write(&format!("{name}.jsonl"), said));
        let options = RunOptions::new("unused");
        let paths = [first.clone(), copy, last.clone()];
        let corpora = super::read(&paths, &Reader::default(), None, &options, &()).unwrap();
        assert_eq!((corpora.ends, corpora.paths), (vec![1, 2], vec![first, last]));
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
