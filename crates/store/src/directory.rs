//! From a dialogue's id to its place: immutable tables, and in front of them what came since.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    path::Path,
};

use crate::table::{Entry, Table};
use turnwise_core::{error::Result, ids::IdKey};

/// Ids are hashes already; hashing them again would only cost.
#[derive(Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(head) = bytes.first_chunk::<8>() {
            self.0 ^= u64::from_le_bytes(*head);
        }
    }

    // The length prefix of an array carries no information here.
    fn write_usize(&mut self, _: usize) {}
}

/// A map whose keys are hashes.
pub type KeyMap<V> = HashMap<IdKey, V, BuildHasherDefault<KeyHasher>>;

/// The directory of an index.
#[derive(Default)]
pub struct Directory {
    /// Oldest first; a later table speaks louder.
    tables: Vec<Table>,
    delta: KeyMap<Entry>,
}

impl Directory {
    /// Opens the tables that a manifest names.
    pub fn open(folder: &Path, tables: &[String]) -> Result<Self> {
        let tables = tables.iter().map(|name| Table::open(&folder.join(name))).collect::<Result<_>>()?;
        Ok(Directory { tables, delta: KeyMap::default() })
    }

    /// The entry of a dialogue that is there.
    pub fn get(&self, id: IdKey) -> Option<Entry> {
        self.latest(id).filter(|entry| !entry.deleted)
    }

    fn latest(&self, id: IdKey) -> Option<Entry> {
        self.delta.get(&id).copied().or_else(|| self.tables.iter().rev().find_map(|t| t.get(id)))
    }

    /// Records what came, and gives what it takes the place of.
    pub fn insert(&mut self, entry: Entry) -> Option<Entry> {
        let before = self.get(entry.id);
        self.delta.insert(entry.id, entry);
        before
    }

    /// How much is not in a table yet.
    pub fn delta_len(&self) -> usize {
        self.delta.len()
    }

    /// All dialogues that are there, in no particular order.
    pub fn live(&self) -> impl Iterator<Item = Entry> + '_ {
        let newer_has = |level: usize, id: IdKey| {
            self.delta.contains_key(&id) || self.tables[level + 1..].iter().any(|t| t.get(id).is_some())
        };
        let from_tables = self
            .tables
            .iter()
            .enumerate()
            .flat_map(move |(level, t)| t.iter().filter(move |e| !newer_has(level, e.id)));
        self.delta.values().copied().chain(from_tables).filter(|e| !e.deleted)
    }

    /// The tables' file names, oldest first.
    pub fn table_names(&self) -> Vec<String> {
        let name = |t: &Table| t.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.tables.iter().map(name).collect()
    }

    /// The tables.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// Writes what came since the last time as a new table named after `batch`, and merges tables of similar size, so
    /// that their number stays logarithmic. Old files stay until [`Directory::remove_unused`].
    pub fn write_delta(&mut self, folder: &Path, batch: u64) -> Result<()> {
        if self.delta.is_empty() {
            return Ok(());
        }
        let mut entries: Vec<Entry> = self.delta.values().copied().collect();
        entries.sort_unstable_by_key(|e| e.id);
        let mut merges = 0;
        while let Some(last) = self.tables.last()
            && last.len() <= 2 * entries.len()
        {
            // Below the oldest table there is nothing left to hide, so that deletes can go.
            let drop_deleted = self.tables.len() == 1;
            let older = self.tables.pop();
            entries = merge(older.iter().flat_map(Table::iter), entries, drop_deleted);
            merges += 1;
        }
        let path = folder.join(format!("{batch:012}-{merges}.tbl"));
        self.tables.push(Table::write(&path, entries.into_iter())?);
        self.delta = KeyMap::default();
        Ok(())
    }

    /// Removes the files of tables that were merged away. Readers that mapped them keep them until they end.
    pub fn remove_unused(&self, folder: &Path) {
        let used = self.table_names();
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        for entry in entries.flatten() {
            if !used.iter().any(|name| entry.file_name() == name.as_str()) {
                // What cannot be removed now is tried again after the next checkpoint.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// Merges two sorted runs; the newer one speaks.
fn merge(older: impl Iterator<Item = Entry>, newer: Vec<Entry>, drop_deleted: bool) -> Vec<Entry> {
    let mut merged = Vec::with_capacity(newer.len() * 2);
    let mut older = older.peekable();
    let mut newer = newer.into_iter().peekable();
    loop {
        let entry = match (older.peek(), newer.peek()) {
            (None, None) => return merged,
            (Some(o), Some(n)) if o.id == n.id => {
                older.next();
                newer.next()
            }
            (Some(o), Some(n)) if o.id < n.id => older.next(),
            (Some(_), None) => older.next(),
            _ => newer.next(),
        };
        merged.extend(entry.filter(|e| !(drop_deleted && e.deleted)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::log::Position;
    use turnwise_core::ids::Seq;

    proptest! {
        /// Random inserts, deletes and checkpoints against a map.
        #[test]
        fn the_directory_is_a_map(steps in proptest::collection::vec((0u8..40, 0u8..10), 1..300)) {
            let dir = tempfile::tempdir().unwrap();
            let mut directory = Directory::default();
            let mut model = BTreeMap::new();
            for (n, (id, what)) in steps.into_iter().enumerate() {
                let entry = Entry {
                    id: IdKey::of(&id.to_string()),
                    text: IdKey::default(),
                    content: IdKey::default(),
                    seq: Seq(n as u64),
                    at: Position::START,
                    turns: 1,
                    deleted: what < 3,
                };
                let before = directory.insert(entry);
                let expected = if entry.deleted { model.remove(&entry.id) } else { model.insert(entry.id, entry) };
                prop_assert_eq!(before, expected);
                if what == 9 {
                    directory.write_delta(dir.path(), n as u64).unwrap();
                    directory.remove_unused(dir.path());
                    directory = Directory::open(dir.path(), &directory.table_names()).unwrap();
                }
            }
            let mut live: Vec<_> = directory.live().collect();
            live.sort_by_key(|e| e.id);
            prop_assert_eq!(live, model.into_values().collect::<Vec<_>>());
        }
    }
}
