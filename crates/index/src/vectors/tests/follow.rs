//! Tests that changes of dialogues update the vectors, that no text is encoded twice, and that different encoders do
//! not share vectors.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::vectors::{
    tests::{BOTH, assert_complete, delete, dialogue, encode, pass, put, recipe},
    *,
};
use turnwise_core::error::Error;
use turnwise_encoder::{DialogueMode, ahead::Options, testing::HashEncoder};
use turnwise_store::{Snapshot, repair as mend_records};

fn numbered(from: usize, to: usize) -> Vec<turnwise_corpus::Dialogue> {
    (from..to).map(|n| dialogue(&format!("d{n}"), &format!("text number {n}"))).collect()
}

#[test]
fn vectors_follow_the_log_and_nothing_is_encoded_twice() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let encoder = HashEncoder::default();
    put(root, &numbered(0, 40));
    let filled = encode(root, &encoder);
    // Two utterances of each dialogue are unique. The third is the same in all dialogues.
    assert_eq!((filled.utterances, filled.dialogues, filled.known), (81, 40, 39));
    assert_eq!(filled.seen, 40);
    assert_complete(root, &encoder);

    let again = encode(root, &encoder);
    assert_eq!((again.seen, again.utterances, again.dialogues), (0, 0, 0));

    // One dialogue changes, one is new, one is deleted, and one is a copy under a different id.
    put(root, &[dialogue("d7", "another text"), dialogue("e1", "new"), dialogue("e2", "text number 3")]);
    delete(root, "d9");
    let before = encoder.encoded.load(Ordering::Relaxed);
    let filled = encode(root, &encoder);
    assert_eq!((filled.seen, filled.utterances, filled.dialogues), (3, 4, 2));
    assert_eq!(encoder.encoded.load(Ordering::Relaxed) - before, 6);
    assert_complete(root, &encoder);

    let reader = VectorReader::open(root).unwrap().unwrap();
    let coverage = Coverage::new(&reader);
    Snapshot::open(root).unwrap().dialogues().for_each(|d| coverage.add(&d.unwrap()));
    // Four utterance vectors are not live: two of the deleted dialogue, and two of the changed dialogue.
    let utterances = coverage.of(Kind::Utterances).unwrap();
    assert_eq!(utterances, VectorCounts { vectors: 85, live: 81, without: 0 });
    assert_eq!(coverage.of(Kind::Dialogues).unwrap(), VectorCounts { vectors: 42, live: 40, without: 0 });
}

#[test]
fn each_kind_stores_its_log_position() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let encoder = HashEncoder::default();
    put(root, &numbered(0, 20));
    let only = EncodeTargets { dialogues: false, ..BOTH };
    let filled = pass(root, &encoder, only, Mode::Continue).unwrap();
    assert_eq!((filled.utterances, filled.dialogues), (41, 0));
    put(root, &numbered(20, 25));
    let filled = pass(root, &encoder, BOTH, Mode::Continue).unwrap();
    assert_eq!((filled.seen, filled.utterances, filled.dialogues, filled.known), (25, 10, 25, 5));
    assert_complete(root, &encoder);
}

#[test]
fn a_stopped_pass_continues_where_it_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let encoder = HashEncoder::default();
    put(root, &numbered(0, 300));
    let snapshot = Snapshot::open(root).unwrap();
    let mut rounds = 0;
    loop {
        rounds += 1;
        let mut writer = VectorWriter::open(root, &recipe(&encoder), Mode::Continue, "test").unwrap();
        let steps = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        let filled = fill(
            &snapshot,
            &mut writer,
            &encoder,
            &BOTH,
            &Options::default(),
            &|| stop.load(Ordering::Relaxed),
            &mut |_| {
                if steps.fetch_add(1, Ordering::Relaxed) == 9 {
                    stop.store(true, Ordering::Relaxed);
                }
            },
        )
        .unwrap();
        // Drop the writer without `close` or `finish`, as if it was killed right after the last commit.
        drop(writer);
        let reader = VectorReader::open(root).unwrap().unwrap();
        let begun = |kind| reader.manifest().extent(kind).reached.is_some();
        assert!(Kind::ALL.into_iter().all(begun), "a kind is marked as never requested");
        if filled.complete {
            break;
        }
    }
    assert!(rounds > 3, "{rounds}");
    assert_complete(root, &encoder);
    // Texts that were being encoded when a pass stopped were stored, so no text was encoded twice.
    assert_eq!(encoder.encoded.load(Ordering::Relaxed), 601 + 300);
}

#[test]
fn vectors_before_an_encoder_failure_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    put(root, &numbered(0, 100));
    let failing = HashEncoder { fail_on: Some("number 60"), ..HashEncoder::default() };
    assert!(pass(root, &failing, BOTH, Mode::Continue).is_err());
    let reader = VectorReader::open(root).unwrap().unwrap();
    assert!((60..=120).contains(&reader.rows(Kind::Utterances)), "{}", reader.rows(Kind::Utterances));
    let sound = HashEncoder::default();
    encode(root, &sound);
    assert_complete(root, &sound);
    let twice = failing.encoded.load(Ordering::Relaxed) + sound.encoded.load(Ordering::Relaxed) - 301;
    assert!(twice < 20, "{twice} were encoded twice");
}

#[test]
fn another_encoder_is_refused_and_a_replacement_switches_when_complete() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let (old, new) = (HashEncoder::default(), HashEncoder { salt: 1, ..HashEncoder::default() });
    put(root, &numbered(0, 30));
    encode(root, &old);

    let e = pass(root, &new, BOTH, Mode::Continue).unwrap_err();
    assert!(matches!(e, Error::Input { .. }), "{e}");
    let hint = e.hint().unwrap();
    assert!(
        hint.contains(&format!("turnwise encode -i {} --model hashed --replace", root.display())),
        "{hint}"
    );
    let mut other_options = recipe(&old);
    other_options.dialogue_mode = DialogueMode::Utterances;
    let e = VectorWriter::open(root, &other_options, Mode::Continue, "test").err().unwrap();
    assert!(e.to_string().contains("dialogue vectors with sequence, mean, not utterances, mean"), "{e}");

    // After half of the vectors, the replacement fails. Readers still see the old vectors.
    let half = HashEncoder { salt: 1, fail_on: Some("number 20"), ..HashEncoder::default() };
    assert!(pass(root, &half, BOTH, Mode::Replace).is_err());
    assert_complete(root, &old);
    // The replacement can be continued.
    put(root, &numbered(30, 31));
    encode(root, &old);
    assert_complete(root, &old);
    let before = new.encoded.load(Ordering::Relaxed);
    pass(root, &new, BOTH, Mode::Replace).unwrap();
    assert!(new.encoded.load(Ordering::Relaxed) - before < 70, "the first half is encoded again");
    assert_complete(root, &new);
    assert_eq!(super::super::sets::all(root).len(), 1);
    assert!(pass(root, &old, BOTH, Mode::Continue).is_err());
}

#[test]
fn leftovers_of_a_removed_set_are_not_continued() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let (old, new) = (HashEncoder::default(), HashEncoder { salt: 1, ..HashEncoder::default() });
    put(root, &numbered(0, 30));
    encode(root, &old);
    let set = VectorReader::open(root).unwrap().unwrap().folder().to_owned();
    let manifest = std::fs::read(set.join("manifest.json")).unwrap();
    pass(root, &new, BOTH, Mode::Replace).unwrap();
    // Simulates a kill while the old set was being removed: some of its files are gone, in any order.
    std::fs::create_dir(&set).unwrap();
    std::fs::write(set.join("utterances.f32"), [1; 64]).unwrap();
    encode(root, &new);
    std::fs::write(set.join("manifest.json"), manifest).unwrap();
    encode(root, &new);
    assert_complete(root, &new);
    pass(root, &old, BOTH, Mode::Replace).unwrap();
    assert_complete(root, &old);
    assert_eq!(super::super::sets::all(root).len(), 1);
}

#[test]
fn a_replacement_without_an_existing_set_is_used_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    put(root, &numbered(0, 30));
    let half = HashEncoder { fail_on: Some("number 20"), ..HashEncoder::default() };
    assert!(pass(root, &half, BOTH, Mode::Replace).is_err());
    assert!(check(root).unwrap().unwrap().damage.is_empty());
    encode(root, &HashEncoder::default());
    assert_complete(root, &HashEncoder::default());
}

#[test]
fn another_log_is_read_from_its_start_and_finds_its_vectors() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("i");
    let encoder = HashEncoder::default();
    put(&root, &numbered(0, 30));
    encode(&root, &encoder);
    let log = root.join("log/00000001.log");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[700] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    mend_records::repair(&root, "test").unwrap();
    let before = encoder.encoded.load(Ordering::Relaxed);
    let filled = encode(&root, &encoder);
    assert_eq!(filled.seen, 30);
    assert_eq!(encoder.encoded.load(Ordering::Relaxed), before);
    assert_complete(&root, &encoder);
}

#[test]
fn a_backup_brings_the_vectors_along() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("i");
    let encoder = HashEncoder::default();
    put(&root, &numbered(0, 30));
    assert_eq!(backup(&root, &dir.path().join("none")).unwrap(), None);
    encode(&root, &encoder);
    let saved = dir.path().join("saved");
    turnwise_store::backup::backup(&root, &saved).unwrap();
    assert_eq!(backup(&root, &saved).unwrap(), Some(61 + 30));
    let copy = dir.path().join("copy");
    turnwise_store::backup::restore(&saved, &copy, "test").unwrap();
    assert_eq!(restore(&saved, &copy, "test").unwrap(), Some(61 + 30));
    let before = encoder.encoded.load(Ordering::Relaxed);
    assert_complete(&copy, &encoder);
    encode(&copy, &encoder);
    assert_eq!(encoder.encoded.load(Ordering::Relaxed), before);

    // A damaged backup is refused, and the restored index has no vectors.
    let rows = VectorReader::open(&saved).unwrap().unwrap().folder().join("utterances.f32");
    let mut bytes = std::fs::read(&rows).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&rows, bytes).unwrap();
    let other = dir.path().join("other");
    turnwise_store::backup::restore(&saved, &other, "test").unwrap();
    assert!(matches!(restore(&saved, &other, "test"), Err(Error::Corrupt { .. })));
    assert!(VectorReader::open(&other).unwrap().is_none());
}
