//! Survey of a folder: finds the complete shards, and the problems that prevent assembling the corpus.

use std::collections::{BTreeMap, BTreeSet};

use turnwise_core::error::{Error, Result};

use crate::{
    folder::Folder,
    manifest::ShardManifest,
    shard::{Shard, Shards, command},
};

/// Maximum number of problems shown in a message. Further problems are only counted.
const SHOWN: usize = 8;

/// The shards in a folder, and the problems that prevent assembling the corpus.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Number of shards of the corpus.
    pub(crate) of: u32,
    /// Manifests of the complete and compatible shards, in order.
    pub(crate) manifests: Vec<ShardManifest>,
    /// Data files that no complete shard uses: replaced files, or leftovers of a killed process.
    pub(crate) left_over: Vec<String>,
    missing: Vec<u32>,
    /// Shards that must be created again, with the reasons.
    wrong: Vec<(Shard, String)>,
    /// Files that must be removed, with the reasons.
    foreign: Vec<(String, String)>,
    /// Arguments of the command that created most of the shards.
    command: Vec<String>,
}

/// Reads all manifests in a folder. Checks that the data files exist and have the right sizes, but does not read them.
pub(crate) fn survey(folder: &dyn Folder) -> Result<Survey> {
    let files = folder.list()?;
    let bytes: BTreeMap<&str, u64> = files.iter().map(|f| (f.name.as_str(), f.bytes)).collect();
    let is_manifest = |name: &&str| name.ends_with(".json") && Shard::named(name).is_some();
    let names: Vec<&str> = bytes.keys().copied().filter(is_manifest).collect();
    let Some(of) = shard_count(&names) else { return Err(no_shards(folder)) };
    let mut set = Survey { of, ..Survey::default() };
    let mut found: BTreeMap<u32, ShardManifest> = BTreeMap::new();
    for name in names {
        // A manifest that was removed after it was listed counts as missing.
        let Some(text) = folder.read(name)? else { continue };
        set.add(name, ShardManifest::read(&text, name), &mut found);
    }
    set.keep_compatible(&mut found);
    found.into_values().for_each(|manifest| set.keep(manifest, &bytes));
    let known: BTreeSet<u32> = set
        .manifests
        .iter()
        .map(|r| r.shard)
        .chain(set.wrong.iter().map(|w| w.0))
        .map(|s| s.number)
        .collect();
    set.missing = (0..of).filter(|number| !known.contains(number)).collect();
    let named: BTreeSet<&str> = set.manifests.iter().map(|r| r.data.file.as_str()).collect();
    let is_data = |name: &&str| Shard::named(name).is_some() && !name.ends_with(".json");
    let left_over = bytes.into_keys().filter(is_data).filter(|name| !named.contains(name));
    set.left_over = left_over.map(str::to_owned).collect();
    Ok(set)
}

/// Returns the number of shards that most manifest file names state for the corpus. Returns `None` if `names` contains
/// no such file name.
fn shard_count(names: &[&str]) -> Option<u32> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    names.iter().filter_map(|name| Shard::named(name)).for_each(|s| *counts.entry(s.of).or_default() += 1);
    counts.into_iter().max_by_key(|(of, count)| (*count, *of)).map(|(of, _)| of)
}

fn no_shards(folder: &dyn Folder) -> Error {
    Error::input(format!("there are no shards in {}", folder.name())).with_hint(format!(
        "`turnwise encode --shard=0/4 --out={} INPUT…` creates the first of four",
        folder.name()
    ))
}

impl Survey {
    fn add(&mut self, name: &str, manifest: Result<ShardManifest>, found: &mut BTreeMap<u32, ShardManifest>) {
        let Some(shard) = Shard::named(name) else { return };
        let own_name = shard.manifest_name() == name;
        match manifest {
            _ if shard.of != self.of => {
                let why = format!("one of {} shards, but the others are of {}", shard.of, self.of);
                self.foreign.push((name.to_owned(), why));
            }
            Ok(manifest) if !own_name || manifest.shard != shard => {
                self.foreign.push((name.to_owned(), format!("a duplicate of {}", manifest.shard)));
            }
            Ok(manifest) => drop(found.insert(shard.number, manifest)),
            Err(e) if own_name => self.reject(shard, &e.to_string()),
            Err(e) => self.foreign.push((name.to_owned(), e.to_string())),
        }
    }

    /// Keeps the largest group of compatible manifests. The shards of other groups must be created again.
    fn keep_compatible(&mut self, found: &mut BTreeMap<u32, ShardManifest>) {
        let mut groups: Vec<(&ShardManifest, Vec<u32>)> = Vec::new();
        for (number, manifest) in found.iter() {
            match groups.iter_mut().find(|(first, _)| first.conflict(manifest).is_none()) {
                Some((_, numbers)) => numbers.push(*number),
                None => groups.push((manifest, vec![*number])),
            }
        }
        groups.sort_by_key(|(_, numbers)| std::cmp::Reverse(numbers.len()));
        let Some((most, _)) = groups.first() else { return };
        self.command.clone_from(&most.command);
        let mut others = Vec::new();
        for (other, numbers) in &groups[1..] {
            let why = most.conflict(other).unwrap_or_default();
            others.extend(numbers.iter().map(|number| (Shard { number: *number, of: self.of }, why.clone())));
        }
        for (shard, why) in others {
            found.remove(&shard.number);
            self.wrong.push((shard, format!("{shard} {why}")));
        }
    }

    /// Keeps a manifest if its data file exists and has the right length. Otherwise, marks the shard as damaged.
    fn keep(&mut self, manifest: ShardManifest, bytes: &BTreeMap<&str, u64>) {
        let (name, committed) = (&manifest.data.file, manifest.data.bytes);
        match bytes.get(name.as_str()) {
            None => self.reject(manifest.shard, &format!("{name} is missing")),
            Some(there) if *there != committed => {
                self.reject(
                    manifest.shard,
                    &format!("{name} has {there} bytes, but its manifest says {committed}"),
                );
            }
            Some(_) => self.manifests.push(manifest),
        }
    }

    /// Marks a shard as damaged and removes it from the complete shards. `why` describes the damage.
    pub(crate) fn reject(&mut self, shard: Shard, why: &str) {
        self.manifests.retain(|manifest| manifest.shard != shard);
        self.wrong.push((shard, format!("{shard} is damaged: {why}")));
    }

    /// Returns an error unless all shards are complete and no file must be removed. The error describes the problems.
    /// Its hint explains how to fix them.
    pub(crate) fn complete(&self, location: &str) -> Result<()> {
        let mut wrong = Vec::new();
        let missing = Shards::of(self.of, self.missing.iter().copied());
        match self.missing.len() {
            0 => {}
            1 => wrong.push(format!("{missing} is missing")),
            _ => wrong.push(format!("{missing} are missing")),
        }
        wrong.extend(self.wrong.iter().map(|(_, what)| what.clone()));
        wrong.extend(self.foreign.iter().map(|(name, why)| format!("{name} does not belong here: {why}")));
        if wrong.is_empty() {
            return Ok(());
        }
        let more = wrong.len().saturating_sub(SHOWN);
        wrong.truncate(SHOWN);
        if more > 0 {
            wrong.push(format!("and {more} more"));
        }
        Err(Error::data(format!("the shards in {location} are not complete: {}", wrong.join("; ")))
            .with_hint(self.fix(location)))
    }

    /// Returns the manifest of the first complete shard, or an error if no shard is complete.
    pub(crate) fn first(&self) -> Result<&ShardManifest> {
        self.manifests.first().ok_or_else(|| Error::Internal("the set of complete shards is empty".into()))
    }

    /// Returns the command that creates `shards` again.
    pub(crate) fn command_for(&self, shards: &Shards, location: &str) -> String {
        command(&self.command, shards, location)
    }

    fn fix(&self, location: &str) -> String {
        let wrong = self.wrong.iter().map(|(shard, _)| &shard.number);
        let redone = Shards::of(self.of, self.missing.iter().chain(wrong).copied());
        let foreign: Vec<&str> = self.foreign.iter().map(|(name, _)| name.as_str()).collect();
        let mut steps = Vec::new();
        if !foreign.is_empty() {
            steps.push(format!("remove {} from {location}", foreign.join(", ")));
        }
        if redone.len() > 0 {
            steps.push(format!(
                "`{}` creates the missing and damaged shards",
                self.command_for(&redone, location)
            ));
        }
        steps.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{folder::open_folder, manifest::tests::manifest};

    /// Creates a folder with some of the shards of a corpus. Each pair in `shards` is a shard number and the salt of
    /// its encoder. `of` is the number of shards of the corpus.
    fn folder(of: u32, shards: &[(u32, u8)]) -> (tempfile::TempDir, Box<dyn Folder>) {
        let folder = tempfile::tempdir().unwrap();
        for (number, salt) in shards {
            let manifest = manifest(Shard { number: *number, of }, *salt);
            fs::write(folder.path().join(&manifest.data.file), b"bytes").unwrap();
            fs::write(folder.path().join(manifest.shard.manifest_name()), manifest.to_bytes().unwrap())
                .unwrap();
        }
        let shards = open_folder(folder.path().to_str().unwrap()).unwrap();
        (folder, shards)
    }

    fn refused(folder: &dyn Folder) -> (String, String) {
        let e = survey(folder).unwrap().complete("here").unwrap_err();
        (e.to_string(), e.hint().unwrap())
    }

    #[test]
    fn all_shards_of_one_encoder_are_complete() {
        let (folder, shards) = folder(3, &[(0, 0), (1, 0), (2, 0)]);
        fs::write(folder.path().join("shard-00001-of-00003-old.arrow"), b"replaced").unwrap();
        fs::write(folder.path().join("notes.txt"), b"mine").unwrap();
        let set = survey(shards.as_ref()).unwrap();
        set.complete("here").unwrap();
        assert_eq!(
            (set.manifests.len(), set.left_over),
            (3, vec!["shard-00001-of-00003-old.arrow".to_owned()])
        );
    }

    #[test]
    fn shards_that_differ_from_the_majority_are_redone() {
        let (_folder, shards) = folder(5, &[(0, 1), (1, 0), (2, 0), (4, 1), (3, 0)]);
        let (message, hint) = refused(shards.as_ref());
        assert!(
            message.contains("0/5 is from a different encoder") && message.contains("4/5 is from"),
            "{message}"
        );
        assert_eq!(
            hint,
            "`turnwise encode --shard=0,4/5 --out=here in.jsonl` creates the missing and damaged shards"
        );
    }

    #[test]
    fn a_long_list_is_cut_and_the_command_is_whole() {
        let (folder, shards) = folder(30, &(0..30).map(|n| (n, 0)).collect::<Vec<_>>());
        for number in 0..20 {
            fs::remove_file(folder.path().join(manifest(Shard { number, of: 30 }, 0).data.file)).unwrap();
        }
        let (message, hint) = refused(shards.as_ref());
        assert!(message.ends_with("and 12 more") && hint.contains("--shard=0-19/30"), "{message} {hint}");
    }
}
