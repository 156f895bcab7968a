use std::path::PathBuf;

use super::*;
use crate::{IngestMark, Prepared, Store, verify};
use turnwise_core::{DialogueId, Seq};
use turnwise_corpus::{Dialogue, Role};

fn dialogue(id: &str, text: &str) -> Dialogue {
    let mut dialogue = Dialogue::new(DialogueId::new(id).unwrap());
    dialogue.push("ann", Role::User, text);
    dialogue.check().unwrap();
    dialogue
}

fn mark() -> IngestMark {
    IngestMark {
        fingerprint: "f".into(),
        records: 60,
        rejects_bytes: 3,
        tally: serde_json::json!({"added": 60}),
    }
}

/// Creates an index with small segments and 60 dialogues, of which a third is deleted and a third replaced. The index
/// also has an unfinished ingest with rejected records. Returns the remaining dialogues.
fn filled(root: &Path) -> Vec<Dialogue> {
    let mut store = Store::open_or_create(root, "test").unwrap();
    store.set_segment_bytes(2_000);
    for n in 0..60 {
        store.put(&Prepared::new(&dialogue(&format!("d{n}"), &format!("first {n}"))).unwrap()).unwrap();
        if n % 10 == 9 {
            store.commit(None).unwrap();
        }
    }
    store.set_rejected("f", 4);
    for n in 0..60 {
        let id = format!("d{n}");
        match n % 3 {
            0 => drop(store.delete(&DialogueId::new(id).unwrap()).unwrap()),
            1 => drop(store.put(&Prepared::new(&dialogue(&id, &format!("second {n}"))).unwrap()).unwrap()),
            _ => {}
        }
    }
    store.commit(Some(mark())).unwrap();
    // Drop the store without a checkpoint, so that the manifest is older than the log.
    drop(store);
    let all: Vec<Dialogue> = Snapshot::open(root).unwrap().dialogues().map(Result::unwrap).collect();
    assert_eq!(all.len(), 40);
    all
}

fn assert_holds(root: &Path, all: &[Dialogue]) {
    let snapshot = Snapshot::open(root).unwrap();
    let now: Vec<Dialogue> = snapshot.dialogues().map(Result::unwrap).collect();
    assert_eq!(now, all);
    assert!(all.iter().all(|d| snapshot.get(&d.id).unwrap().as_ref() == Some(d)));
    assert_eq!((snapshot.rejected(), snapshot.state.ingest.as_ref()), (4, Some(&mark())));
    assert_eq!(snapshot.totals().turns as usize, all.len());
}

fn assert_sound(root: &Path) {
    let report = verify::verify(root, "test", &mut |_| {}).unwrap();
    assert!(report.damage.is_empty(), "{:#?}", report.damage);
}

fn compact_now(root: &Path) -> Compacted {
    compact(root, 2_000, "test", &|| false, &mut |_| {}).unwrap()
}

fn folders(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root).unwrap().flatten().filter(|e| e.path().is_dir());
    let mut names: Vec<String> = entries.map(|e| e.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn holds_bytes(folder: &Path, needle: &str) -> bool {
    fs::read_dir(folder).unwrap().any(|entry| {
        let path: PathBuf = entry.unwrap().path();
        match path.is_dir() {
            true => holds_bytes(&path, needle),
            false => memchr::memmem::find(&fs::read(&path).unwrap(), needle.as_bytes()).is_some(),
        }
    })
}

#[test]
fn compaction_removes_deleted_bytes_and_keeps_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let all = filled(root);
    let log_id = Snapshot::open(root).unwrap().log_id().to_owned();
    let numbers = |snapshot: &Snapshot| -> Vec<Option<Seq>> {
        all.iter().map(|d| snapshot.seq_of(d.id.key())).chain([Some(snapshot.state.seq)]).collect()
    };
    let before = numbers(&Snapshot::open(root).unwrap());
    assert!(holds_bytes(root, "first 3\"") && holds_bytes(root, "\"d3\""));
    let mut steps = Vec::new();
    let done = compact(root, 2_000, "test", &|| false, &mut |n| steps.push(n)).unwrap();
    // Dropped frames: 20 deletes, the 20 deleted records, and the 20 replaced records.
    assert_eq!((done.dropped, done.dialogues, done.left), (60, 40, false));
    assert!(done.bytes < done.bytes_before && done.bytes == bytes_of(Snapshot::open(root).unwrap().paths()));
    assert!(steps.is_sorted() && steps.last() == Some(&80), "{steps:?}");
    assert!(
        !holds_bytes(root, "first 3\"") && !holds_bytes(root, "\"d3\"") && !holds_bytes(root, "first 4\"")
    );
    assert!(holds_bytes(root, "second 4\"") && holds_bytes(root, "first 5\""));
    assert_holds(root, &all);
    assert_sound(root);
    assert_eq!(folders(root), ["log-1", "records-1", "tables-1"]);
    let now = Snapshot::open(root).unwrap();
    assert_ne!(now.log_id(), log_id);
    assert_eq!(numbers(&now), before, "sequence numbers do not change and are not reused");
    // A second compaction has nothing to do.
    let before = fs::read(root.join("manifest.json")).unwrap();
    let again = compact_now(root);
    assert_eq!((again.dropped, again.bytes), (0, again.bytes_before));
    assert_eq!(fs::read(root.join("manifest.json")).unwrap(), before);
}

#[test]
fn compaction_removes_an_unacknowledged_batch() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let mut store = Store::open_or_create(root, "test").unwrap();
    store.put(&Prepared::new(&dialogue("a", "x")).unwrap()).unwrap();
    store.commit(None).unwrap();
    store.close().unwrap();
    let path = root.join("log/00000001.log");
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend_from_slice(b"TWf1 a torn secret");
    fs::write(&path, bytes).unwrap();
    assert_eq!(compact_now(root).dropped, 0);
    assert!(!holds_bytes(root, "secret"));
}

#[test]
fn an_index_with_all_dialogues_deleted_can_be_compacted_and_written() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let all = filled(root);
    let mut store = Store::open(root, "test").unwrap();
    all.iter().for_each(|d| assert!(store.delete(&d.id).unwrap()));
    store.commit(Some(mark())).unwrap();
    store.close().unwrap();
    assert_eq!(compact_now(root).dialogues, 0);
    assert_holds(root, &[]);
    let mut store = Store::open(root, "test").unwrap();
    store.put(&Prepared::new(&all[0]).unwrap()).unwrap();
    store.commit(Some(mark())).unwrap();
    store.close().unwrap();
    assert_holds(root, &all[..1]);
    assert_sound(root);
}

#[test]
fn a_compaction_can_be_killed_between_any_two_steps() {
    for steps in 0..=6 {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let all = filled(root);
        {
            let view = Snapshot::open(root).unwrap();
            let (old, new) = (view.paths.clone(), view.paths.next());
            let (stop, progress) = (&|| false, &mut |_| {});
            let mut work = Compaction { view: &view, new: &new, segment_bytes: 2_000, stop, progress };
            if steps == 1 {
                drop(LogWriter::create(&new.unfinished_log()).unwrap());
            }
            if steps >= 2 {
                let (directory, state) = work.write_log().unwrap();
                if steps >= 3 {
                    let mut manifest = work.make_derived(directory, state).unwrap();
                    if steps >= 4 {
                        manifest.write(root).unwrap();
                    }
                    if steps >= 5 {
                        fs::remove_file(old.log().join("00000001.log")).unwrap();
                    }
                    if steps >= 6 {
                        old.remove().unwrap();
                    }
                }
            }
        }
        // Readers work before the leftover folders are removed. The next writer removes them.
        assert_holds(root, &all);
        assert_sound(root);
        let store = Store::open(root, "test").unwrap();
        assert!(store.notices().is_empty(), "{steps}: {:?}", store.notices());
        store.close().unwrap();
        let expected = match steps {
            0..4 => ["log", "records", "tables"],
            _ => ["log-1", "records-1", "tables-1"],
        };
        assert_eq!(folders(root), expected, "{steps}");
        assert_holds(root, &all);
        compact_now(root);
        assert_holds(root, &all);
        assert_sound(root);
        assert!(!holds_bytes(root, "first 3\""));
    }
}

#[test]
fn a_stopped_compaction_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let all = filled(root);
    for allowed in 0..2 {
        let calls = std::cell::Cell::new(0);
        let stop = || calls.replace(calls.get() + 1) >= allowed;
        let e = compact(root, 2_000, "test", &stop, &mut |_| {}).unwrap_err();
        assert!(matches!(e, Error::Interrupted { .. }), "{e}");
        assert_eq!(folders(root), ["log", "records", "tables"]);
        assert_holds(root, &all);
    }
    assert_sound(root);
}

#[test]
fn damage_is_reported_and_nothing_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let all = filled(root);
    Store::open(root, "test").unwrap().close().unwrap();
    let path = root.join("log/00000001.log");
    let mut bytes = fs::read(&path).unwrap();
    bytes[600] ^= 1;
    fs::write(&path, bytes).unwrap();
    let e = compact(root, 2_000, "test", &|| false, &mut |_| {}).unwrap_err();
    assert!(matches!(e, Error::Corrupt { .. }) && e.to_string().contains("00000001.log: at byte"), "{e}");
    assert_eq!(folders(root), ["log", "records", "tables"]);
    // The user can repair the index and then compact it. The repair keeps the damaged log under a known name.
    repair::repair(root, "test").unwrap();
    assert_eq!(repair::kept_logs(root), [root.join("log.damaged-1")]);
    compact_now(root);
    let now: Vec<Dialogue> = Snapshot::open(root).unwrap().dialogues().map(Result::unwrap).collect();
    assert_eq!(now, all);
    assert_sound(root);
}

/// Repairs a compacted index, first without a manifest, and then with a damaged log. The lost record is restored from
/// sled.
#[test]
fn a_compacted_index_is_repaired_like_any_other() {
    for damage in ["manifest", "log"] {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let all = filled(root);
        let last = Snapshot::open(root).unwrap().state.seq;
        compact_now(root);
        if damage == "manifest" {
            fs::remove_file(root.join("manifest.json")).unwrap();
        } else {
            let path = root.join("log-1/00000001.log");
            let mut bytes = fs::read(&path).unwrap();
            bytes[600] ^= 1;
            fs::write(&path, bytes).unwrap();
            assert!(!verify::verify(root, "test", &mut |_| {}).unwrap().damage.is_empty());
        }
        let repaired = repair::repair(root, "test").unwrap();
        // Only the sequence numbers next to the damage may count as missing.
        assert_eq!(repaired.dialogues, 40);
        assert!(repaired.missing <= 4, "{repaired:?}");
        assert_eq!(Snapshot::open(root).unwrap().state.seq, last);
        let now: Vec<Dialogue> = Snapshot::open(root).unwrap().dialogues().map(Result::unwrap).collect();
        assert_eq!(now, all, "{damage}");
        assert_sound(root);
        let dead = Snapshot::open(root).unwrap().log_usage(&mut |_| {}).unwrap().dead_frames;
        assert_eq!(compact_now(root).dropped, dead, "{damage}");
    }
}

#[test]
fn an_unfinished_repair_blocks_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    filled(root);
    fs::create_dir(root.join("log.repaired")).unwrap();
    let e = compact(root, 2_000, "test", &|| false, &mut |_| {}).unwrap_err();
    assert!(e.hint().unwrap().contains("`turnwise repair` finishes it"), "{e}");
}

#[test]
fn a_backup_of_a_compacted_index_is_restored() {
    let dir = tempfile::tempdir().unwrap();
    let (root, saved, copy) = (dir.path().join("i"), dir.path().join("saved"), dir.path().join("copy"));
    let all = filled(&root);
    // A snapshot that was opened before the compaction remains usable.
    let before = Snapshot::open(&root).unwrap();
    compact_now(&root);
    crate::backup::backup(&root, &saved).unwrap();
    crate::backup::restore(&saved, &copy, "test").unwrap();
    assert_sound(&copy);
    assert_eq!(
        compact_now(&copy).dropped,
        0,
        "the numbers that the compaction removed are not counted again"
    );
    let now: Vec<Dialogue> = Snapshot::open(&copy).unwrap().dialogues().map(Result::unwrap).collect();
    assert_eq!(now, all);
    assert_eq!(before.dialogues().count(), 40);
}
