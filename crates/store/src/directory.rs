//! The directory, which maps dialogue ids to log positions. It is a log-structured merge tree, which consists of
//! immutable tables and an in-memory map of newer entries.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    path::Path,
};

use crate::table::{Entry, Table};
use turnwise_core::{IdKey, Result};

/// Hasher for keys that are already hashes. It uses the first 8 bytes of the key.
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

    // `Hash` passes the length of the key before its bytes. All keys have the same length, so it is ignored.
    fn write_usize(&mut self, _: usize) {}
}

/// Hash map with [`IdKey`] keys.
pub type KeyMap<V> = HashMap<IdKey, V, BuildHasherDefault<KeyHasher>>;

/// The directory of an index. It finds the log position of a dialogue by the key of the dialogue's id.
#[derive(Default)]
pub struct Directory {
    /// Tables, oldest first. An entry overrides entries with the same id in older tables.
    tables: Vec<Table>,
    /// Newer entries that have not been written to a table yet.
    delta: KeyMap<Entry>,
}

impl Directory {
    pub fn open(folder: &Path, tables: &[String]) -> Result<Self> {
        let tables = tables.iter().map(|name| Table::open(&folder.join(name))).collect::<Result<_>>()?;
        Ok(Directory { tables, delta: KeyMap::default() })
    }

    /// Returns the entry of a dialogue, or `None` if the dialogue does not exist or is deleted.
    pub fn get(&self, id: IdKey) -> Option<Entry> {
        self.latest(id).filter(|entry| !entry.deleted)
    }

    fn latest(&self, id: IdKey) -> Option<Entry> {
        self.delta.get(&id).copied().or_else(|| self.tables.iter().rev().find_map(|t| t.get(id)))
    }

    /// Inserts an entry. Returns the replaced entry, or `None` if the dialogue did not exist or was deleted.
    pub fn insert(&mut self, entry: Entry) -> Option<Entry> {
        let before = self.get(entry.id);
        self.delta.insert(entry.id, entry);
        before
    }

    /// Returns the number of entries that have not been written to a table yet.
    pub fn delta_len(&self) -> usize {
        self.delta.len()
    }

    /// Iterates over the entries of all live dialogues, in no particular order.
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

    /// Returns the file names of the directory's tables, oldest first.
    pub fn table_names(&self) -> Vec<String> {
        let name = |t: &Table| t.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.tables.iter().map(name).collect()
    }

    /// Returns the directory's tables, oldest first.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// Writes the in-memory entries to a new table in `folder`. The file name of the table starts with the number
    /// `batch`. Also merges tables of similar size, so that the number of tables grows only logarithmically. The files
    /// of merged tables remain until [`Directory::remove_unused`] removes them.
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
            // The entry of a delete hides entries with the same id in older tables. Without older tables, it is not
            // needed.
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

    /// Removes all files in `folder` except the current tables. Open readers can still use removed files that they have
    /// memory-mapped.
    pub fn remove_unused(&self, folder: &Path) {
        let used = self.table_names();
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        for entry in entries.flatten() {
            if !used.iter().any(|name| entry.file_name() == name.as_str()) {
                // On failure, the next checkpoint tries again.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// Merges two lists of entries that are sorted by id. If both lists have an entry for an id, keeps the newer one. If
/// `drop_deleted` is true, omits the entries of deletes.
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
    use turnwise_core::Seq;

    proptest! {
        /// Applies random inserts, deletes and checkpoints to a directory and to a `BTreeMap`. Compares the results.
        #[test]
        fn directory_behaves_like_a_map(steps in proptest::collection::vec((0u8..40, 0u8..10), 1..300)) {
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
