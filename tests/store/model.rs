//! Compares the store with a `BTreeMap` after random puts, deletes, commits, checkpoints, compactions and reopenings.

use std::collections::BTreeMap;

use proptest::prelude::*;
use turnwise_core::ids::DialogueId;
use turnwise_store::{PutOutcome, Snapshot, Store, compact::compact};

use crate::support::{assert_sound, content, content_of, dialogue, put};

#[derive(Debug, Clone)]
enum Step {
    Put(u8, u8),
    Delete(u8),
    Commit,
    /// Writes a checkpoint, after a commit if `committed` is set. Uncommitted changes prevent a checkpoint.
    Checkpoint {
        committed: bool,
    },
    /// Opens the store again, after a commit if `committed` is set. Uncommitted changes are lost, even if it is closed.
    Reopen {
        committed: bool,
        closed: bool,
    },
    /// Removes the sled database. The store must then rebuild it from the log.
    LoseSled,
    /// Compacts while a reader is open.
    Compact,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u8..12, 0u8..3).prop_map(|(id, text)| Step::Put(id, text)),
        2 => (0u8..12).prop_map(Step::Delete),
        3 => Just(Step::Commit),
        1 => any::<bool>().prop_map(|committed| Step::Checkpoint { committed }),
        1 => any::<(bool, bool)>().prop_map(|(committed, closed)| Step::Reopen { committed, closed }),
        1 => Just(Step::LoseSled),
        1 => Just(Step::Compact),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn the_store_behaves_like_a_map(steps in proptest::collection::vec(step(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("index");
        let mut store = Store::open_or_create(&root, "test").unwrap();
        store.set_segment_bytes(2_000);
        let mut committed = BTreeMap::new();
        let mut gathered = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(id, text) => {
                    let d = dialogue(&format!("d{id}"), &format!("text {text}"));
                    let expected = match gathered.get(d.id.as_str()) {
                        None => PutOutcome::Added,
                        Some(old) if *old == d => PutOutcome::Unchanged,
                        Some(_) => PutOutcome::Replaced,
                    };
                    prop_assert_eq!(put(&mut store, &d), expected);
                    gathered.insert(d.id.to_string(), d);
                }
                Step::Delete(id) => {
                    let id = DialogueId::new(format!("d{id}")).unwrap();
                    prop_assert_eq!(store.delete(&id).unwrap(), gathered.remove(id.as_str()).is_some());
                }
                Step::Commit => {
                    store.commit(None).unwrap();
                    committed = gathered.clone();
                }
                Step::Checkpoint { committed: commits } => {
                    if commits {
                        store.commit(None).unwrap();
                        committed = gathered.clone();
                    }
                    store.checkpoint().unwrap();
                }
                Step::Reopen { committed: commits, closed } => {
                    if commits {
                        store.commit(None).unwrap();
                        committed = gathered.clone();
                    }
                    gathered = committed.clone();
                    if closed {
                        store.close().unwrap();
                    } else {
                        drop(store);
                    }
                    store = Store::open(&root, "test").unwrap();
                    prop_assert!(store.notices().is_empty());
                }
                Step::LoseSled => {
                    drop(store);
                    gathered = committed.clone();
                    std::fs::remove_dir_all(Snapshot::open(&root).unwrap().paths().records()).unwrap();
                    store = Store::open(&root, "test").unwrap();
                }
                Step::Compact => {
                    drop(store);
                    gathered = committed.clone();
                    let reader = Snapshot::open(&root).unwrap();
                    let order = ids(&reader);
                    let compacted = compact(&root, 2_000, "test", &|| false, &mut |_| {}).unwrap();
                    prop_assert_eq!(compacted.dialogues as usize, committed.len());
                    prop_assert_eq!(&ids(&reader), &order);
                    prop_assert_eq!(&content_of(&reader), &committed);
                    let now = Snapshot::open(&root).unwrap();
                    prop_assert_eq!(ids(&now), order);
                    prop_assert_eq!(now.log_usage(&mut |_| {}).unwrap().dead_frames, 0);
                    assert_sound(&root);
                    store = Store::open(&root, "test").unwrap();
                    prop_assert!(store.notices().is_empty());
                }
            }
            store.set_segment_bytes(2_000);
            // A reader sees the last commit, but no uncommitted changes.
            prop_assert_eq!(&content(&root), &committed);
            // The writer also sees its uncommitted changes.
            for id in (0..12).map(|n| DialogueId::new(format!("d{n}")).unwrap()) {
                prop_assert_eq!(store.get(&id).unwrap(), gathered.get(id.as_str()).cloned());
            }
        }
        drop(store);
        drop(Store::open(&root, "test").unwrap());
        assert_sound(&root);
    }
}

/// Returns the ids in insertion order.
fn ids(snapshot: &Snapshot) -> Vec<String> {
    snapshot.dialogues().map(|d| d.unwrap().id.to_string()).collect()
}

#[test]
fn closing_discards_uncommitted_changes() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open_or_create(dir.path(), "test").unwrap();
    put(&mut store, &dialogue("a", "x"));
    store.commit(None).unwrap();
    let before = content(dir.path());
    put(&mut store, &dialogue("a", "y"));
    put(&mut store, &dialogue("b", "x"));
    store.checkpoint().unwrap();
    assert_sound(dir.path());
    store.close().unwrap();
    assert_sound(dir.path());
    assert_eq!(content(dir.path()), before);
    let mut store = Store::open(dir.path(), "test").unwrap();
    assert_eq!(put(&mut store, &dialogue("b", "x")), PutOutcome::Added);
    store.commit(None).unwrap();
    store.close().unwrap();
    assert_sound(dir.path());
    assert_eq!(content(dir.path()).len(), 2);
}

#[test]
fn repeating_a_put_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open_or_create(dir.path(), "test").unwrap();
    put(&mut store, &dialogue("a", "x"));
    store.commit(None).unwrap();
    store.close().unwrap();
    let bytes = || std::fs::read(dir.path().join("log/00000001.log")).unwrap();
    let manifest = || std::fs::read(dir.path().join("manifest.json")).unwrap();
    let before = (bytes(), manifest());
    let mut store = Store::open(dir.path(), "test").unwrap();
    assert_eq!(put(&mut store, &dialogue("a", "x")), PutOutcome::Unchanged);
    store.commit(None).unwrap();
    store.close().unwrap();
    assert_eq!((bytes(), manifest()), before);
}

#[test]
fn a_folder_with_other_files_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("thesis.tex"), "x").unwrap();
    let e = Store::open_or_create(dir.path(), "test").err().unwrap();
    assert!(e.to_string().contains("thesis.tex"), "{e}");
    assert!(!dir.path().join("lock").exists());
}
