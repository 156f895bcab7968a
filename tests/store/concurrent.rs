//! Tests readers and a writer at the same time. Each reader must see the state after a complete batch.

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use turnwise_core::ids::DialogueId;
use turnwise_store::{Snapshot, Store, compact::compact};

use crate::support::{assert_sound, dialogue, put};

/// Every batch sets the text of all 20 dialogues to the number of the batch. A reader that sees two numbers has seen a
/// partial batch. Segments are small and checkpoints frequent, so tables are often merged and removed.
#[test]
fn a_reader_never_sees_half_a_batch() {
    const BATCHES: u64 = 300;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("i");
    let mut store = Store::open_or_create(&root, "test").unwrap();
    store.set_segment_bytes(20_000);
    let write = |store: &mut Store, batch: u64| {
        for n in 0..20 {
            put(store, &dialogue(&format!("d{n}"), &format!("batch {batch}")));
        }
        store.commit(None).unwrap();
    };
    write(&mut store, 0);
    let done = AtomicBool::new(false);
    let looked = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let snapshot = Snapshot::open(&root).unwrap();
                    let texts: Vec<String> =
                        snapshot.dialogues().map(|d| d.unwrap().turns[0].text.clone()).collect();
                    assert_eq!(texts.len(), 20);
                    assert!(texts.iter().all(|t| *t == texts[0]), "{texts:?}");
                    let batch: u64 = texts[0]["batch ".len()..].parse().unwrap();
                    assert!(batch >= last, "a reader saw an older batch after a newer one");
                    last = batch;
                    let one = snapshot.get(&DialogueId::new("d7").unwrap()).unwrap().unwrap();
                    assert_eq!(one.turns[0].text, texts[0]);
                    looked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for batch in 1..=BATCHES {
            write(&mut store, batch);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(looked.load(Ordering::Relaxed) > 10);
    assert!(fs::read_dir(root.join("log")).unwrap().count() > 10, "the log has few segments");
    store.close().unwrap();
    assert_sound(&root);
}

/// Opens readers while the index is compacted repeatedly. No reader sees a partial batch, and the first reader still
/// sees its original state.
#[test]
fn readers_continue_while_the_log_is_compacted() {
    const ROUNDS: u64 = 40;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("i");
    let write = |round: u64| {
        let mut store = Store::open_or_create(&root, "test").unwrap();
        store.set_segment_bytes(3_000);
        for n in 0..20 {
            put(&mut store, &dialogue(&format!("d{n}"), &format!("round {round}")));
            if n % 5 == 4 && round == 0 {
                store.commit(None).unwrap();
            }
        }
        store.commit(None).unwrap();
    };
    write(0);
    let first = Snapshot::open(&root).unwrap();
    let done = AtomicBool::new(false);
    let looked = AtomicU64::new(0);
    let texts = |snapshot: &Snapshot| -> Vec<String> {
        snapshot.dialogues().map(|d| d.unwrap().turns[0].text.clone()).collect()
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let snapshot = Snapshot::open(&root).unwrap();
                    let texts = texts(&snapshot);
                    assert!(texts.len() == 20 && texts.iter().all(|t| *t == texts[0]), "{texts:?}");
                    let round: u64 = texts[0]["round ".len()..].parse().unwrap();
                    assert!(round >= last, "a reader saw an older batch after a newer one");
                    last = round;
                    looked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 1..=ROUNDS {
            write(round);
            let compacted = compact(&root, 3_000, "test", &|| false, &mut |_| {}).unwrap();
            assert_eq!((compacted.dropped, compacted.dialogues), (20, 20));
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(looked.load(Ordering::Relaxed) > 10);
    assert_eq!(texts(&first), vec!["round 0"; 20]);
    assert_eq!(first.get(&DialogueId::new("d7").unwrap()).unwrap().unwrap().turns[0].text, "round 0");
    assert_sound(&root);
    assert!(root.join(format!("log-{ROUNDS}")).is_dir());
    assert_eq!(fs::read_dir(&root).unwrap().filter(|e| e.as_ref().unwrap().path().is_dir()).count(), 3);
}
