//! Damages each file. `verify` must name the file. `repair` must restore records that the log or sled still has.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use turnwise_core::{error::Error, ids::DialogueId};
use turnwise_corpus::Dialogue;
use turnwise_store::{
    Snapshot, Store, backup,
    records::{Records, SyncState},
    repair, verify,
};

use crate::support::{assert_sound, content, dialogue, put};

/// Fills a store with 30 dialogues in 6 batches, replaces one, deletes two, and closes the store properly. Returns the
/// remaining dialogues, by id.
fn filled(root: &Path) -> BTreeMap<String, Dialogue> {
    let mut store = Store::open_or_create(root, "test").unwrap();
    for n in 0..30 {
        put(&mut store, &dialogue(&format!("d{n}"), &format!("text {n}")));
        if n % 5 == 4 {
            store.commit(None).unwrap();
        }
    }
    put(&mut store, &dialogue("d7", "another text"));
    for id in ["d3", "d20"] {
        assert!(store.delete(&DialogueId::new(id).unwrap()).unwrap());
    }
    store.commit(None).unwrap();
    store.close().unwrap();
    assert_sound(root);
    let all = content(root);
    assert_eq!(all.len(), 28);
    all
}

fn log(root: &Path) -> PathBuf {
    root.join("log/00000001.log")
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

#[test]
fn only_an_incomplete_last_batch_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("i");
    let all = filled(&root);
    let whole = fs::read(log(&root)).unwrap();
    // Bytes that a kill can leave after the last commit: parts of a batch that was not acknowledged.
    for length in [1, 3, 24, 60, 200] {
        let mut torn = whole.clone();
        torn.extend_from_slice(&whole[16..16 + length]);
        fs::write(log(&root), &torn).unwrap();
        assert_eq!(content(&root), all);
        drop(Store::open(&root, "test").unwrap());
        assert_eq!(fs::read(log(&root)).unwrap(), whole);
    }
}

#[test]
fn a_log_that_lost_acknowledged_batches_is_an_error_until_it_is_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("i");
    filled(&root);
    let mut store = Store::open(&root, "test").unwrap();
    let mut ends = Vec::new();
    for n in 30..33 {
        put(&mut store, &dialogue(&format!("d{n}"), "after the checkpoint"));
        ends.push(fs::metadata(log(&root)).unwrap().len());
        store.commit(None).unwrap();
    }
    // Without `close`, there is no checkpoint: only sled knows these batches.
    drop(store);
    let all = content(&root);
    let whole = fs::read(log(&root)).unwrap();
    let good = copy_of(&root, dir.path(), "good");
    let mut cuts: Vec<Vec<u8>> = ends.iter().map(|end| whole[..*end as usize].to_vec()).collect();
    // A last batch whose bytes are damaged looks like one that was not written completely.
    cuts.push(whole.clone());
    *cuts[3].last_mut().unwrap() ^= 1;
    for (n, bytes) in cuts.into_iter().enumerate() {
        fs::remove_dir_all(&root).unwrap();
        copy_tree(&good, &root);
        fs::write(log(&root), &bytes).unwrap();
        let e = Store::open(&root, "test").err().unwrap();
        assert!(
            matches!(e, Error::Corrupt { .. }) && e.to_string().contains("had been committed"),
            "{n}: {e}"
        );
        assert_eq!(fs::read(log(&root)).unwrap(), bytes, "{n}: the log is not truncated");
        let report = verify::verify(&root, "test", &mut |_| {}).unwrap();
        assert_eq!(report.damage.len(), 1, "{n}: {:?}", report.damage);
        assert!(report.damage[0].path.ends_with("log"), "{n}: {:?}", report.damage);
        repair::repair(&root, "test").unwrap();
        assert_sound(&root);
        assert_eq!(content(&root), all, "{n}");
    }
}

#[test]
fn a_log_that_ends_before_the_last_checkpoint_is_not_extended() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("i");
    let all = filled(&root);
    let whole = fs::read(log(&root)).unwrap();
    let good = copy_of(&root, dir.path(), "good");
    let lengths = [whole.len() - 1, whole.len() / 2, 16, 3, 0].map(Some);
    for length in lengths.into_iter().chain([None]) {
        fs::remove_dir_all(&root).unwrap();
        copy_tree(&good, &root);
        match length {
            Some(length) => fs::write(log(&root), &whole[..length]).unwrap(),
            None => fs::remove_file(log(&root)).unwrap(),
        }
        let e = Store::open(&root, "test").err().unwrap();
        assert!(matches!(e, Error::Corrupt { .. }), "{length:?}: {e}");
        assert_eq!(fs::metadata(log(&root)).ok().map(|m| m.len() as usize), length);
        repair::repair(&root, "test").unwrap();
        assert_sound(&root);
        assert!(content(&root) == all, "{length:?}");
    }
}

#[test]
fn every_byte_of_the_log_is_checked_and_repair_restores_it_from_sled() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("i");
    let all = filled(&root);
    let length = fs::metadata(log(&root)).unwrap().len() as usize;
    let good = copy_of(&root, dir.path(), "good");
    for at in (0..length).step_by(97).chain([0, 9, 17, length - 1]) {
        fs::remove_dir_all(&root).unwrap();
        copy_tree(&good, &root);
        flip(&log(&root), at);
        let report = verify::verify(&root, "test", &mut |_| {}).unwrap();
        assert!(!report.damage.is_empty(), "byte {at} was not detected");
        assert!(
            report.damage.iter().all(|d| d.path.ends_with("00000001.log")),
            "byte {at}: {:?}",
            report.damage
        );
        repair::repair(&root, "test").unwrap();
        assert_sound(&root);
        // Damage in the last batch looks like an incomplete batch, so this batch can be lost.
        let now = content(&root);
        assert_eq!(now, all, "byte {at}");
    }
}

#[test]
fn damage_in_the_middle_is_an_error_that_names_file_and_byte() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("i");
    filled(&root);
    // Without the checkpoint, opening reads the log from the start.
    let mut manifest: serde_json::Value =
        serde_json::from_slice(&fs::read(root.join("manifest.json")).unwrap()).unwrap();
    manifest["tables"] = serde_json::json!([]);
    manifest["checkpoint"] = serde_json::json!({"at": {"segment": 1, "offset": 16}, "seq": 0, "batch": 0, "totals": {"dialogues": 0, "turns": 0}});
    fs::write(root.join("manifest.json"), manifest.to_string()).unwrap();
    assert_eq!(content(&root).len(), 28);
    flip(&log(&root), 500);
    for e in [Snapshot::open(&root).err().unwrap(), Store::open(&root, "test").err().unwrap()] {
        assert!(matches!(e, Error::Corrupt { .. }));
        assert!(e.to_string().contains("00000001.log: at byte"), "{e}");
        assert!(e.hint().unwrap().contains("turnwise repair"));
    }
}

type Damage<'a> = Box<dyn Fn() + 'a>;

#[test]
fn derived_files_can_be_damaged_or_missing() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("i");
    let all = filled(&root);
    let table = fs::read_dir(root.join("tables")).unwrap().next().unwrap().unwrap().path();
    let cases: [(&str, Damage); 6] = [
        ("a table's entry", Box::new(|| flip(&table_of(&root), 200))),
        ("the tables", Box::new(|| fs::remove_dir_all(root.join("tables")).unwrap())),
        ("sled", Box::new(|| fs::write(root.join("records/db"), [9; 3000]).unwrap())),
        ("no sled", Box::new(|| fs::remove_dir_all(root.join("records")).unwrap())),
        ("the manifest", Box::new(|| fs::write(root.join("manifest.json"), "{").unwrap())),
        ("no manifest", Box::new(|| fs::remove_file(root.join("manifest.json")).unwrap())),
    ];
    assert!(table.exists());
    for (what, damage) in cases {
        damage();
        if what != "no manifest" {
            let report = verify::verify(&root, "test", &mut |_| {}).unwrap();
            assert!(!report.damage.is_empty(), "{what}");
        }
        assert_eq!(root.join("records").exists(), what != "no sled", "verify changes nothing");
        repair::repair(&root, "test").unwrap();
        assert_sound(&root);
        assert_eq!(content(&root), all, "{what}");
    }
}

fn table_of(root: &Path) -> PathBuf {
    fs::read_dir(root.join("tables")).unwrap().next().unwrap().unwrap().path()
}

#[test]
fn a_missing_sled_database_is_rebuilt_with_a_notice_by_the_next_writer() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("i");
    let all = filled(&root);
    fs::write(root.join("records/db"), [9; 3000]).unwrap();
    let store = Store::open(&root, "test").unwrap();
    assert_eq!(store.notices().len(), 1, "{:?}", store.notices());
    drop(store);
    assert_sound(&root);
    assert_eq!(content(&root), all);
}

#[test]
fn an_incomplete_sled_database_is_not_damage_and_is_completed_by_the_next_writer() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("i");
    let all = filled(&root);
    let records = Records::open(&root.join("records")).unwrap();
    let everything: Vec<_> = records.iter().map(|record| record.unwrap().0).collect();
    records.apply(SyncState::Rebuilding, std::iter::empty(), everything.into_iter().skip(5)).unwrap();
    records.flush().unwrap();
    drop(records);
    let report = verify::verify(&root, "test", &mut |_| {}).unwrap();
    assert_eq!(report.damage, []);
    assert!(matches!(report.records, verify::RecordsChecked::BeingMade));
    let store = Store::open(&root, "test").unwrap();
    assert!(store.notices()[0].ends_with("an earlier rebuild was interrupted; rebuilt from the log"));
    drop(store);
    let report = verify::verify(&root, "test", &mut |_| {}).unwrap();
    assert_eq!(report.damage, []);
    assert!(matches!(report.records, verify::RecordsChecked::Compared(28)));
    assert_eq!(content(&root), all);
}

#[test]
fn a_backup_can_be_restored_and_a_damaged_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("i");
    let all = filled(&root);
    let saved = dir.path().join("saved");
    // Another process may be writing.
    let mut store = Store::open(&root, "test").unwrap();
    put(&mut store, &dialogue("later", "not yet committed"));
    backup::backup(&root, &saved).unwrap();
    store.commit(None).unwrap();
    drop(store);
    let copy = dir.path().join("copy");
    backup::restore(&saved, &copy, "test").unwrap();
    assert_sound(&copy);
    assert_eq!(content(&copy), all);
    // The repaired store accepts writes, and repeating a put changes nothing.
    let mut store = Store::open(&copy, "test").unwrap();
    assert_eq!(put(&mut store, &all["d1"]), turnwise_store::PutOutcome::Unchanged);
    drop(store);

    assert!(backup::backup(&root, &saved).is_err(), "a backup must not be overwritten");
    assert!(backup::restore(&saved, &copy, "test").is_err(), "an index must not be overwritten");
    flip(&saved.join("00000001.log"), 300);
    let e = backup::restore(&saved, &dir.path().join("other"), "test").unwrap_err();
    assert!(matches!(e, Error::Corrupt { .. }) && e.to_string().contains("checksum"), "{e}");
    assert!(!dir.path().join("other").exists());
}

#[test]
fn a_second_writer_is_refused_but_readers_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("i");
    let all = filled(&root);
    let store = Store::open(&root, "turnwise ingest x").unwrap();
    let e = Store::open(&root, "second").err().unwrap();
    assert!(matches!(e, Error::Busy { .. }) && e.to_string().contains("turnwise ingest x"), "{e}");
    assert_eq!(content(&root), all);
    let report = verify::verify(&root, "test", &mut |_| {}).unwrap();
    assert!(report.damage.is_empty() && matches!(report.records, verify::RecordsChecked::InUse(_)));
    drop(store);
}

fn copy_of(root: &Path, dir: &Path, name: &str) -> PathBuf {
    let to = dir.join(name);
    copy_tree(root, &to);
    to
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
