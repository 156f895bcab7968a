//! Survey of a place: finds the complete shards, and lists by name everything that prevents assembling
//! them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Place, Record, Shard, Shards, command};
use turnwise_core::error::{Error, Result};

/// Largest number of reasons shown; the others are counted.
const SHOWN: usize = 8;

/// The shards of a place.
#[derive(Debug, Default)]
pub(crate) struct Set {
    /// Number of shards of the division.
    of: u32,
    /// Records of the complete and compatible shards, in order.
    pub(crate) records: Vec<Record>,
    /// Data files without a record: replaced files, or leftovers of a killed process.
    pub(crate) left_over: Vec<String>,
    missing: Vec<u32>,
    /// Shards that must be created again, with the reasons.
    wrong: Vec<(Shard, String)>,
    /// Files that must be removed, with the reasons.
    foreign: Vec<(String, String)>,
    again: Vec<String>,
}

/// Reads all records of a place and checks that their data files exist. Does not read the data files.
pub(crate) fn survey(place: &dyn Place) -> Result<Set> {
    let files = place.list()?;
    let bytes: BTreeMap<&str, u64> = files.iter().map(|f| (f.name.as_str(), f.bytes)).collect();
    let is_record = |name: &&str| name.ends_with(".json") && Shard::named(name).is_some();
    let names: Vec<&str> = bytes.keys().copied().filter(is_record).collect();
    let Some(of) = division(&names) else { return Err(no_shards(place)) };
    let mut set = Set { of, ..Set::default() };
    let mut found: BTreeMap<u32, Record> = BTreeMap::new();
    for name in names {
        // Removed after it was listed, so it is missing.
        let Some(text) = place.read(name)? else { continue };
        set.take(name, Record::read(&text, name), &mut found);
    }
    set.keep_compatible(&mut found);
    found.into_values().for_each(|record| set.keep(record, &bytes));
    let known: BTreeSet<u32> =
        set.records.iter().map(|r| r.shard).chain(set.wrong.iter().map(|w| w.0)).map(|s| s.number).collect();
    set.missing = (0..of).filter(|number| !known.contains(number)).collect();
    let named: BTreeSet<&str> = set.records.iter().map(|r| r.data.file.as_str()).collect();
    let is_data = |name: &&str| Shard::named(name).is_some() && !name.ends_with(".json");
    let left_over = bytes.into_keys().filter(is_data).filter(|name| !named.contains(name));
    set.left_over = left_over.map(str::to_owned).collect();
    Ok(set)
}

/// Returns the number of shards that most records agree on.
fn division(names: &[&str]) -> Option<u32> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    names.iter().filter_map(|name| Shard::named(name)).for_each(|s| *counts.entry(s.of).or_default() += 1);
    counts.into_iter().max_by_key(|(of, count)| (*count, *of)).map(|(of, _)| of)
}

fn no_shards(place: &dyn Place) -> Error {
    Error::Input {
        message: format!("there are no shards in {}", place.name()),
        hint: Some(format!(
            "`turnwise encode --shard=0/4 --out={} INPUT…` creates the first of four",
            place.name()
        )),
    }
}

impl Set {
    fn take(&mut self, name: &str, record: Result<Record>, found: &mut BTreeMap<u32, Record>) {
        let Some(shard) = Shard::named(name) else { return };
        let own_name = shard.record_name() == name;
        match record {
            _ if shard.of != self.of => {
                let why = format!("one of {} shards, but the others are of {}", shard.of, self.of);
                self.foreign.push((name.to_owned(), why));
            }
            Ok(record) if !own_name || record.shard != shard => {
                self.foreign.push((name.to_owned(), format!("a duplicate of {}", record.shard)));
            }
            Ok(record) => drop(found.insert(shard.number, record)),
            Err(e) if own_name => self.reject(shard, &e.to_string()),
            Err(e) => self.foreign.push((name.to_owned(), e.to_string())),
        }
    }

    /// Keeps the largest group of compatible records; the others must be created again.
    fn keep_compatible(&mut self, found: &mut BTreeMap<u32, Record>) {
        let mut groups: Vec<(&Record, Vec<u32>)> = Vec::new();
        for (number, record) in found.iter() {
            match groups.iter_mut().find(|(first, _)| first.conflict(record).is_none()) {
                Some((_, numbers)) => numbers.push(*number),
                None => groups.push((record, vec![*number])),
            }
        }
        groups.sort_by_key(|(_, numbers)| std::cmp::Reverse(numbers.len()));
        let Some((most, _)) = groups.first() else { return };
        self.again.clone_from(&most.command);
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

    /// Keeps a record if its data file exists and has the right length.
    fn keep(&mut self, record: Record, bytes: &BTreeMap<&str, u64>) {
        let (name, committed) = (&record.data.file, record.data.bytes);
        match bytes.get(name.as_str()) {
            None => self.reject(record.shard, &format!("{name} is missing")),
            Some(there) if *there != committed => {
                self.reject(
                    record.shard,
                    &format!("{name} has {there} bytes, but its record says {committed}"),
                );
            }
            Some(_) => self.records.push(record),
        }
    }

    /// Marks a shard as damaged and removes it from the complete ones.
    pub(crate) fn reject(&mut self, shard: Shard, why: &str) {
        self.records.retain(|record| record.shard != shard);
        self.wrong.push((shard, format!("{shard} is damaged: {why}")));
    }

    /// Returns an error unless every shard exists exactly once. The error lists the problems and the
    /// commands that fix them.
    pub(crate) fn complete(&self, place: &str) -> Result<()> {
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
        Err(Error::Data {
            message: format!("the shards in {place} are not complete: {}", wrong.join("; ")),
            hint: Some(self.fix(place)),
        })
    }

    /// Number of shards of the division.
    #[cfg(feature = "milvus")]
    pub(crate) fn of(&self) -> u32 {
        self.of
    }

    /// Returns the command that creates these shards again.
    pub(crate) fn command_for(&self, shards: &Shards, place: &str) -> String {
        command(&self.again, shards, place)
    }

    fn fix(&self, place: &str) -> String {
        let wrong = self.wrong.iter().map(|(shard, _)| &shard.number);
        let redone = Shards::of(self.of, self.missing.iter().chain(wrong).copied());
        let foreign: Vec<&str> = self.foreign.iter().map(|(name, _)| name.as_str()).collect();
        let mut steps = Vec::new();
        if !foreign.is_empty() {
            steps.push(format!("remove {} from {place}", foreign.join(", ")));
        }
        if redone.len() > 0 {
            steps.push(format!("`{}` creates exactly the missing shards", self.command_for(&redone, place)));
        }
        steps.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::cli::shards::{open, record::tests::record};

    /// Creates a place with the given shards; each pair is a shard number and the salt of its encoder.
    fn place(of: u32, shards: &[(u32, u8)]) -> (tempfile::TempDir, Box<dyn Place>) {
        let folder = tempfile::tempdir().unwrap();
        for (number, salt) in shards {
            let record = record(Shard { number: *number, of }, *salt);
            fs::write(folder.path().join(&record.data.file), b"bytes").unwrap();
            fs::write(folder.path().join(record.shard.record_name()), record.to_bytes().unwrap()).unwrap();
        }
        let place = open(folder.path().to_str().unwrap()).unwrap();
        (folder, place)
    }

    fn refused(place: &dyn Place) -> (String, String) {
        let e = survey(place).unwrap().complete("here").unwrap_err();
        (e.to_string(), e.hint().unwrap())
    }

    #[test]
    fn all_shards_of_one_encoder_are_complete() {
        let (folder, place) = place(3, &[(0, 0), (1, 0), (2, 0)]);
        fs::write(folder.path().join("shard-00001-of-00003-old.arrow"), b"replaced").unwrap();
        fs::write(folder.path().join("notes.txt"), b"mine").unwrap();
        let set = survey(place.as_ref()).unwrap();
        set.complete("here").unwrap();
        assert_eq!(
            (set.records.len(), set.left_over),
            (3, vec!["shard-00001-of-00003-old.arrow".to_owned()])
        );
    }

    #[test]
    fn shards_that_differ_from_the_majority_are_redone() {
        let (_folder, place) = place(5, &[(0, 1), (1, 0), (2, 0), (4, 1), (3, 0)]);
        let (message, hint) = refused(place.as_ref());
        assert!(
            message.contains("0/5 is from a different encoder") && message.contains("4/5 is from"),
            "{message}"
        );
        assert_eq!(
            hint,
            "`turnwise encode --shard=0,4/5 --out=here in.jsonl` creates exactly the missing shards"
        );
    }

    #[test]
    fn a_long_list_is_cut_and_the_command_is_whole() {
        let (folder, place) = place(30, &(0..30).map(|n| (n, 0)).collect::<Vec<_>>());
        for number in 0..20 {
            fs::remove_file(folder.path().join(record(Shard { number, of: 30 }, 0).data.file)).unwrap();
        }
        let (message, hint) = refused(place.as_ref());
        assert!(message.ends_with("and 12 more") && hint.contains("--shard=0-19/30"), "{message} {hint}");
    }
}
