//! What lies in a place: the shards that are complete, and everything that stands against putting them together, by
//! name.

use std::collections::BTreeMap;

use super::{Place, Record, Shard, Shards, command};
use crate::error::{Error, Result};

/// Reasons that are told; the rest is counted.
const SHOWN: usize = 8;

/// The shards of a place.
#[derive(Debug, Default)]
pub(crate) struct Set {
    /// Into how many parts the corpus was divided.
    of: u32,
    /// Those that are complete and fit together, in order.
    pub(crate) records: Vec<Record>,
    /// Data files that no record names: what was replaced, or whose writer was killed.
    pub(crate) left_over: Vec<String>,
    missing: Vec<u32>,
    /// Shards that must be made again, and what is wrong with them.
    wrong: Vec<(Shard, String)>,
    /// Files that must go away, and what they are.
    foreign: Vec<(String, String)>,
    again: Vec<String>,
}

/// Looks at all records of a place, and at whether their data files are there. The bytes of these are not read.
pub(crate) fn survey(place: &dyn Place) -> Result<Set> {
    let files = place.list()?;
    let bytes: BTreeMap<&str, u64> = files.iter().map(|f| (f.name.as_str(), f.bytes)).collect();
    let is_record = |name: &&str| name.ends_with(".json") && Shard::named(name).is_some();
    let names: Vec<&str> = bytes.keys().copied().filter(is_record).collect();
    let Some(of) = division(&names) else { return Err(none_at_all(place)) };
    let mut set = Set { of, ..Set::default() };
    let mut found: BTreeMap<u32, Record> = BTreeMap::new();
    for name in names {
        // Removed since it was listed: it is missing.
        let Some(text) = place.read(name)? else { continue };
        set.take(name, Record::read(&text, name), &mut found);
    }
    set.agree(&mut found);
    for record in found.into_values() {
        match (bytes.get(record.data.file.as_str()), record.data.bytes) {
            (None, _) => set.reject(record.shard, &format!("{} is not there", record.data.file)),
            (Some(there), committed) if *there != committed => {
                let name = &record.data.file;
                set.reject(
                    record.shard,
                    &format!("{name} has {there} bytes, and {committed} were committed"),
                );
            }
            _ => set.records.push(record),
        }
    }
    let known = |number: &u32| {
        set.records.iter().any(|r| r.shard.number == *number)
            || set.wrong.iter().any(|(shard, _)| shard.number == *number)
    };
    set.missing = (0..of).filter(|number| !known(number)).collect();
    let named = |name: &str| set.records.iter().any(|r| r.data.file == name);
    let is_data = |name: &&str| Shard::named(name).is_some() && !name.ends_with(".json");
    set.left_over = bytes.keys().copied().filter(is_data).filter(|n| !named(n)).map(str::to_owned).collect();
    Ok(set)
}

/// Into how many parts most records say that it was divided.
fn division(names: &[&str]) -> Option<u32> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    names.iter().filter_map(|name| Shard::named(name)).for_each(|s| *counts.entry(s.of).or_default() += 1);
    counts.into_iter().max_by_key(|(of, count)| (*count, *of)).map(|(of, _)| of)
}

fn none_at_all(place: &dyn Place) -> Error {
    Error::Input {
        message: format!("there are no shards in {}", place.name()),
        hint: Some(format!(
            "`turnwise encode --shard=0/4 --out={} INPUT…` makes the first of four",
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
                let why = format!("one of {}, and the others are of {}", shard.of, self.of);
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

    /// Leaves those that most agree with; the others must be made again.
    fn agree(&mut self, found: &mut BTreeMap<u32, Record>) {
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

    /// Takes a shard for torn, and out of those that are complete.
    pub(crate) fn reject(&mut self, shard: Shard, why: &str) {
        self.records.retain(|record| record.shard != shard);
        self.wrong.push((shard, format!("{shard} is torn: {why}")));
    }

    /// Whether every shard is there, once and whole; if not, what is wrong, and what mends it.
    pub(crate) fn complete(&self, place: &str) -> Result<()> {
        let mut wrong = Vec::new();
        let missing = Shards::of(self.of, self.missing.iter().copied());
        match self.missing.len() {
            0 => {}
            1 => wrong.push(format!("{missing} is missing")),
            _ => wrong.push(format!("{missing} are missing")),
        }
        wrong.extend(self.wrong.iter().map(|(_, what)| what.clone()));
        wrong.extend(self.foreign.iter().map(|(name, why)| format!("{name} is foreign: {why}")));
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
            hint: Some(self.mended_by(place)),
        })
    }

    fn mended_by(&self, place: &str) -> String {
        let wrong = self.wrong.iter().map(|(shard, _)| &shard.number);
        let redone = Shards::of(self.of, self.missing.iter().chain(wrong).copied());
        let foreign: Vec<&str> = self.foreign.iter().map(|(name, _)| name.as_str()).collect();
        let mut steps = Vec::new();
        if !foreign.is_empty() {
            steps.push(format!("take {} out of {place}", foreign.join(", ")));
        }
        if redone.len() > 0 {
            steps.push(format!("`{}` makes exactly what is missing", command(&self.again, &redone, place)));
        }
        steps.join("; ")
    }
}
