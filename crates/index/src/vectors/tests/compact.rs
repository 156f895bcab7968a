//! Tests that a compaction removes the vectors of deleted texts, and only these.

use std::{fs, path::Path};

use super::*;
use crate::vectors::*;
use turnwise_core::error::Error;
use turnwise_encoder::testing::HashEncoder;
use turnwise_store as store;
use turnwise_store::Snapshot;

/// Creates twenty dialogues with vectors and deletes every third dialogue. The log is compacted, but not the vectors.
fn with_orphans(root: &Path, encoder: &HashEncoder) {
    let all: Vec<_> = (0..20).map(|n| dialogue(&format!("d{n}"), &format!("question {n}"))).collect();
    put(root, &all);
    encode(root, encoder);
    (0..20).step_by(3).for_each(|n| delete(root, &format!("d{n}")));
    store::compact::compact(root, 1 << 20, "test", &|| false, &mut |_| {}).unwrap();
}

fn compact_now(root: &Path) -> CompactReport {
    compact(root, "test", &|| false, &mut |_| {}).unwrap().unwrap()
}

fn rows(root: &Path) -> [usize; 2] {
    let reader = VectorReader::open(root).unwrap().unwrap();
    Kind::ALL.map(|kind| reader.rows(kind))
}

#[test]
fn only_vectors_without_a_text_are_dropped_and_nothing_is_encoded_again() {
    let dir = tempfile::tempdir().unwrap();
    let (root, encoder) = (dir.path(), HashEncoder::default());
    with_orphans(root, &encoder);
    assert_eq!(rows(root), [41, 20]);
    let old = VectorReader::open(root).unwrap().unwrap();
    // The vectors of seven questions and their answers are removed. The utterance "one moment please" is still in use.
    assert_eq!(compact_now(root), CompactReport { utterances: 14, dialogues: 7 });
    assert_eq!(rows(root), [27, 13]);
    assert_complete(root, &encoder);
    assert_eq!(fs::read_dir(root.join("vectors")).unwrap().count(), 2, "one set and current.json");
    // A reader that was opened before the compaction can continue to read the old vectors.
    let gone = utterance_key("question 3");
    assert_eq!(old.get(Kind::Utterances, &gone).unwrap().unwrap(), encoder.vector("question 3"));
    assert_eq!(VectorReader::open(root).unwrap().unwrap().get(Kind::Utterances, &gone).unwrap(), None);
    // The compacted log has new positions, and the vectors store them.
    let fresh = HashEncoder::default();
    assert_eq!(encode(root, &fresh).seen, 0);
    assert_eq!(fresh.encoded.into_inner(), 0);
    let before = files(root);
    assert_eq!(compact_now(root), CompactReport::default());
    assert_eq!(files(root), before);
}

#[test]
fn texts_without_a_vector_are_still_encoded_later() {
    let dir = tempfile::tempdir().unwrap();
    let (root, encoder) = (dir.path(), HashEncoder::default());
    put(root, &[dialogue("a", "one"), dialogue("b", "two")]);
    encode(root, &encoder);
    delete(root, "a");
    put(root, &[dialogue("c", "two"), dialogue("d", "three"), dialogue("e", "four")]);
    store::compact::compact(root, 1 << 20, "test", &|| false, &mut |_| {}).unwrap();
    assert_eq!(compact_now(root), CompactReport { utterances: 2, dialogues: 1 });
    // Both b and c have vectors, because they have the same text.
    assert_eq!(encode(root, &HashEncoder::default()).seen, 2);
    assert_complete(root, &encoder);
    // The log positions are updated even if nothing is dropped.
    put(root, &[dialogue("b", "one more"), dialogue("f", "two")]);
    encode(root, &encoder);
    delete(root, "f");
    store::compact::compact(root, 1 << 20, "test", &|| false, &mut |_| {}).unwrap();
    let set = VectorReader::open(root).unwrap().unwrap().folder().to_owned();
    assert_eq!(compact_now(root), CompactReport::default());
    assert_eq!(VectorReader::open(root).unwrap().unwrap().folder(), set);
    assert_eq!(encode(root, &HashEncoder::default()).seen, 0);
}

#[test]
fn an_index_without_vectors_gets_none() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), &[dialogue("a", "one")]);
    assert_eq!(compact(dir.path(), "test", &|| false, &mut |_| {}).unwrap(), None);
    assert!(!dir.path().join("vectors").exists());
}

#[test]
fn stopping_leaves_the_old_set_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (root, encoder) = (dir.path(), HashEncoder::default());
    with_orphans(root, &encoder);
    let before = files(root);
    // Interrupt the compaction while it reads the dialogues, and while it copies rows.
    for asked in [3, 20, 40] {
        let n = std::cell::Cell::new(0);
        let stop = || n.replace(n.get() + 1) >= asked;
        let e = compact(root, "test", &stop, &mut |_| {}).unwrap_err();
        assert!(matches!(e, Error::Interrupted { .. }), "{e}");
        assert_eq!(files(root), before, "{asked}");
    }
    assert_complete(root, &encoder);
}

/// The vectors are being replaced by those of a second encoder, and the replacement is unfinished. Compaction drops the
/// vectors of deleted texts from both sets of vectors.
#[test]
fn an_unfinished_replacement_is_compacted_too() {
    let dir = tempfile::tempdir().unwrap();
    let (root, encoder) = (dir.path(), HashEncoder::default());
    let all: Vec<_> = (0..20).map(|n| dialogue(&format!("d{n}"), &format!("question {n}"))).collect();
    put(root, &all);
    encode(root, &encoder);
    let other = HashEncoder { salt: 1, ..HashEncoder::default() };
    let snapshot = Snapshot::open(root).unwrap();
    let mut writer = VectorWriter::open(root, &recipe(&other), Mode::Replace, "test").unwrap();
    let options = turnwise_encoder::ahead::Options::default();
    fill(&snapshot, &mut writer, &other, &BOTH, &options, &|| false, &mut |_| {}).unwrap();
    writer.close().unwrap();
    drop(snapshot);
    delete(root, "d0");
    store::compact::compact(root, 1 << 20, "test", &|| false, &mut |_| {}).unwrap();
    assert_eq!(compact_now(root), CompactReport { utterances: 2, dialogues: 1 });
    assert_eq!(sets::all(root).len(), 2);
    for set in sets::all(root) {
        assert_eq!(Manifest::read(&set).unwrap().rows(), 39 + 19);
    }
    assert_complete(root, &encoder);
    let fresh = HashEncoder { salt: 1, ..HashEncoder::default() };
    assert_eq!(pass(root, &fresh, BOTH, Mode::Replace).unwrap().seen, 0);
    assert_eq!(fresh.encoded.load(std::sync::atomic::Ordering::Relaxed), 0);
    assert_complete(root, &fresh);
}

/// A killed compaction leaves an unused copy of the vectors. A later replacement of the vectors must not add to this
/// copy.
#[test]
fn a_copy_that_is_not_in_use_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let (root, encoder) = (dir.path(), HashEncoder::default());
    with_orphans(root, &encoder);
    let current = fs::read(root.join("vectors/current.json")).unwrap();
    let old = VectorReader::open(root).unwrap().unwrap().folder().to_owned();
    let saved = dir.path().join("saved");
    fs::create_dir(&saved).unwrap();
    for entry in fs::read_dir(&old).unwrap().flatten() {
        fs::copy(entry.path(), saved.join(entry.file_name())).unwrap();
    }
    compact_now(root);
    let copy = VectorReader::open(root).unwrap().unwrap().folder().to_owned();
    fs::rename(&saved, &old).unwrap();
    fs::write(root.join("vectors/current.json"), current).unwrap();
    assert!(Manifest::read(&copy).unwrap().copy);

    assert_eq!(sets::unfinished(root, &recipe(&encoder)).unwrap(), None);
    assert_eq!(compact_now(root), CompactReport { utterances: 14, dialogues: 7 });
    assert_eq!(sets::all(root).len(), 1);
    let fresh = HashEncoder::default();
    pass(root, &fresh, BOTH, Mode::Replace).unwrap();
    assert_eq!(fresh.encoded.into_inner(), 27 + 13, "everything is encoded again");
}
