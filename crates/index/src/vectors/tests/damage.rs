//! Damages the files by changing bytes and by truncation. The damage must be reported, have no effect or be repaired.
//! It must never cause a panic or a wrong vector.

use std::{fs, path::Path, sync::atomic::Ordering};

use crate::vectors::{
    tests::{assert_complete, dialogue, encode, files, put},
    *,
};
use turnwise_core::error::Error;
use turnwise_encoder::testing::HashEncoder;
use turnwise_store::Snapshot;

fn filled(root: &Path) {
    let all: Vec<_> = (0..40).map(|n| dialogue(&format!("d{n}"), &format!("text number {n}"))).collect();
    put(root, &all);
    encode(root, &HashEncoder::default());
    // Small sets have no table file, but these tests need a table file.
    for kind in Kind::ALL {
        let reader = VectorReader::open(root).unwrap().unwrap();
        let path = super::super::table::path(reader.folder(), kind);
        super::super::table::write(&path, reader.column(kind)).unwrap();
    }
    assert_complete(root, &HashEncoder::default());
}

/// Reads all vectors. Returns true if a vector is missing or an error is reported. A wrong vector fails the test.
fn reading_reports_damage(root: &Path) -> bool {
    let encoder = HashEncoder::default();
    let reader = match VectorReader::open(root) {
        Ok(Some(reader)) => reader,
        Ok(None) => return true,
        Err(Error::Corrupt { .. }) => return true,
        Err(e) => panic!("{e:?}"),
    };
    let mut reported = false;
    for dialogue in Snapshot::open(root).unwrap().dialogues().map(Result::unwrap) {
        for turn in &dialogue.turns {
            match reader.get(Kind::Utterances, &utterance_key(&turn.text)) {
                Ok(Some(row)) => assert_eq!(row, encoder.vector(&turn.text)),
                Ok(None) => reported = true,
                Err(e) => reported |= matches!(e, Error::Corrupt { .. }),
            }
        }
        match reader.get(Kind::Dialogues, &dialogue_key(&dialogue)) {
            Ok(Some(row)) => assert_eq!(row, encoder.dialogue_vector(&dialogue)),
            Ok(None) => reported = true,
            Err(e) => reported |= matches!(e, Error::Corrupt { .. }),
        }
    }
    reported
}

/// Checks that [`check`] reports the damage that reading finds, and that `repair` and a new encoding restore all
/// vectors.
fn check_repair(root: &Path, what: &str) {
    let reported = reading_reports_damage(root);
    let found = check(root).unwrap_or_else(|e| panic!("{what}: {e:?}"));
    let damaged = found.is_none_or(|found| !found.damage.is_empty());
    assert!(damaged || !reported, "{what}: reading reports an error, and verify does not");
    let repaired = repair(root, "test").unwrap();
    let encoder = HashEncoder::default();
    encode(root, &encoder);
    assert_complete(root, &encoder);
    if let Some(repaired) = repaired.filter(|m| !m.all_removed) {
        let again = encoder.encoded.load(Ordering::Relaxed) as u64;
        assert_eq!(again, repaired.dropped, "{what}: undamaged vectors are encoded again");
    }
}

fn each_damage(points: usize, damage: impl Fn(&mut Vec<u8>, usize)) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let master = dir.path().join("master");
    filled(&master);
    let mut tried = 0;
    for path in files(&master) {
        let inner = path.strip_prefix(&master).unwrap();
        let good = fs::read(&path).unwrap();
        for step in 0..points {
            let at = step * good.len() / points;
            let root = dir.path().join("copy");
            let _ = fs::remove_dir_all(&root);
            copy_tree(&master, &root);
            let mut bad = good.clone();
            damage(&mut bad, at);
            fs::write(root.join(inner), bad).unwrap();
            check_repair(&root, &format!("{} at {at}", inner.display()));
            tried += 1;
        }
    }
    tried
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_tree(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

#[test]
fn a_flipped_byte_never_returns_a_wrong_vector() {
    assert!(each_damage(10, |bytes, at| bytes[at] ^= 0x21) >= 80);
}

#[test]
fn a_truncated_file_never_returns_a_wrong_vector() {
    assert!(each_damage(5, |bytes, at| bytes.truncate(at)) >= 40);
}

#[test]
fn a_missing_file_is_reported_and_restored() {
    let dir = tempfile::tempdir().unwrap();
    let master = dir.path().join("master");
    filled(&master);
    for path in files(&master) {
        let root = dir.path().join("copy");
        let _ = fs::remove_dir_all(&root);
        copy_tree(&master, &root);
        let inner = path.strip_prefix(&master).unwrap();
        fs::remove_file(root.join(inner)).unwrap();
        // If the table file is missing, a table is built in memory.
        assert_eq!(
            reading_reports_damage(&root),
            path.extension().is_none_or(|e| e != "table"),
            "{}",
            inner.display()
        );
        check_repair(&root, &inner.display().to_string());
    }
}

#[test]
fn two_swapped_rows_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let set = VectorReader::open(dir.path()).unwrap().unwrap().folder().to_owned();
    for (name, width) in [("utterances.f32", 64), ("utterances.keys", 32)] {
        let path = set.join(name);
        let good = fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[..width].copy_from_slice(&good[width..2 * width]);
        bad[width..2 * width].copy_from_slice(&good[..width]);
        fs::write(&path, bad).unwrap();
        assert!(reading_reports_damage(dir.path()), "{name}");
        assert_eq!(check(dir.path()).unwrap().unwrap().damage.len(), 2, "{name}");
        fs::write(&path, good).unwrap();
    }
    assert_complete(dir.path(), &HashEncoder::default());
}
