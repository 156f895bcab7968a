use super::*;
use crate::{Snapshot, Store, verify};
use turnwise_core::DialogueId;
use turnwise_corpus::Role;

fn damaged(root: &Path) {
    let mut store = Store::open_or_create(root, "test").unwrap();
    for n in 0..50 {
        let mut dialogue = Dialogue::new(DialogueId::new(format!("d{n}")).unwrap());
        dialogue.push("a", Role::User, format!("text {n}"));
        dialogue.check().unwrap();
        store.put(&Prepared::new(&dialogue).unwrap()).unwrap();
        if n % 10 == 9 {
            store.commit(None).unwrap();
        }
    }
    store.close().unwrap();
    let path = log::segment_path(&IndexPaths::first(root).log(), 1);
    let mut bytes = fs::read(&path).unwrap();
    bytes[700] ^= 1;
    fs::write(&path, bytes).unwrap();
}

#[test]
fn a_repair_can_be_killed_between_any_two_steps() {
    for steps in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        damaged(root);
        let manifest = Manifest::read(root).unwrap();
        if steps >= 1 {
            salvage(root, &manifest, &mut Repaired::default()).unwrap();
        }
        if steps >= 2 {
            writer::forget_derived(root, manifest.clone()).unwrap();
        }
        if steps >= 3 {
            files::remove_folder(&IndexPaths::first(root).records()).unwrap();
        }
        if steps >= 4 {
            fs::rename(IndexPaths::first(root).log(), root.join("log.damaged-1")).unwrap();
        }
        // Verify must report damage in every intermediate state.
        assert!(!verify::verify(root, "test", &mut |_| {}).unwrap().damage.is_empty(), "{steps}");
        // An unfinished repair must block writers, because it will replace the log.
        assert!(steps == 0 || Store::open(root, "test").is_err(), "{steps}");
        repair(root, "test").unwrap();
        assert!(verify::verify(root, "test", &mut |_| {}).unwrap().damage.is_empty(), "{steps}");
        assert_eq!(Snapshot::open(root).unwrap().dialogues().count(), 50, "{steps}");
        assert!(!repaired_log(root).exists() && root.join("log.damaged-1").exists());
    }
}

/// Creates an index of 4 segments and 12 batches: 50 dialogues, then replacements and deletes. Returns its content.
fn filled(root: &Path) -> Vec<Dialogue> {
    let mut store = Store::open_or_create(root, "test").unwrap();
    store.set_segment_bytes(2_500);
    for n in 0..100 {
        let id = DialogueId::new(format!("d{}", n % 50)).unwrap();
        let mut dialogue = Dialogue::new(id.clone());
        dialogue.push("a", Role::User, format!("text {n}"));
        dialogue.check().unwrap();
        match n {
            0..60 => drop(store.put(&Prepared::new(&dialogue).unwrap()).unwrap()),
            _ if n % 7 == 0 => drop(store.delete(&id).unwrap()),
            _ => {}
        }
        if n % 8 == 7 {
            store.commit(None).unwrap();
        }
    }
    store.close().unwrap();
    content(root)
}

fn content(root: &Path) -> Vec<Dialogue> {
    Snapshot::open(root).unwrap().dialogues().map(Result::unwrap).collect()
}

#[test]
fn whole_batches_that_the_log_has_lost_are_restored_from_sled() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("index");
    let all = filled(&root);
    let log = IndexPaths::first(&root).log();
    let segments = log::segments(&log).unwrap();
    // Each injury removes bytes of a segment (the whole segment if the range ends at `usize::MAX`).
    let mut injuries = Vec::new();
    for &number in &segments {
        let segment = Segment::map(&log, number, u64::MAX).unwrap();
        let mut start = log::SEGMENT_HEADER_BYTES as usize;
        // The last segment can be empty; its loss is none.
        if segment.bytes().len() > start {
            injuries.push((number, 0..usize::MAX));
        }
        for (at, frame) in segment.frames(log::SEGMENT_HEADER_BYTES) {
            let frame = frame.unwrap();
            if frame.kind == Kind::Commit {
                let end = (at + frame.bytes()) as usize;
                injuries.push((number, start..end));
                injuries.push((number, start..segment.bytes().len()));
                start = end;
            }
        }
    }
    assert!(segments.len() > 2 && injuries.len() > 20, "{segments:?} {injuries:?}");
    for (number, range) in injuries {
        // Without the manifest, only sled says how long the log was.
        for keeps_manifest in [true, false] {
            let case = format!("segment {number}, {range:?}, {keeps_manifest}");
            let _ = fs::remove_dir_all(&root);
            assert_eq!(filled(&root), all);
            let path = log::segment_path(&log, number);
            if range.end == usize::MAX {
                fs::remove_file(&path).unwrap();
            } else {
                let mut bytes = fs::read(&path).unwrap();
                bytes.drain(range.clone());
                fs::write(&path, bytes).unwrap();
            }
            if !keeps_manifest {
                fs::remove_file(root.join("manifest.json")).unwrap();
            }
            let repaired = repair(&root, "test").unwrap();
            assert!(!repaired.damaged_places.is_empty(), "{case}");
            assert!(verify::verify(&root, "test", &mut |_| {}).unwrap().damage.is_empty(), "{case}");
            assert!(content(&root) == all, "{case}: {repaired:?}");
        }
    }
}

#[test]
fn each_missing_segment_is_reported_once() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("index");
    let all = filled(&root);
    let log = IndexPaths::first(&root).log();
    let segments = log::segments(&log).unwrap();
    assert!(segments.starts_with(&[1, 2, 3, 4]), "{segments:?}");
    for (lost, message) in [
        (&[2][..], "log segment 2 is missing"),
        (&[1, 2], "log segments 1 to 2 are missing"),
        (&[2, 3], "log segments 2 to 3 are missing"),
    ] {
        let _ = fs::remove_dir_all(&root);
        filled(&root);
        for number in lost {
            fs::remove_file(log::segment_path(&log, *number)).unwrap();
        }
        let repaired = repair(&root, "test").unwrap();
        let missing: Vec<&String> =
            repaired.damaged_places.iter().filter(|place| place.contains("missing")).collect();
        assert_eq!(missing, [message], "{:?}", repaired.damaged_places);
        assert_eq!(content(&root), all);
    }
}
