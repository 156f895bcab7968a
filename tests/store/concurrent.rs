//! Readers beside a writer: each sees the index as of one batch, whole, whatever the writer is doing.

use std::{
    fs,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use turnwise::{
    ids::DialogueId,
    store::{Snapshot, Store},
};

use crate::support::{assert_sound, dialogue, put};

/// Every batch gives every one of 20 dialogues the batch's number as text, so that a reader that sees two numbers has
/// seen half a batch. Segments are small and checkpoints frequent: tables are merged and removed all the time.
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
                    assert!(batch >= last, "time ran backwards");
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
    assert!(fs::read_dir(root.join("log")).unwrap().count() > 10, "the log has one segment only");
    store.close().unwrap();
    assert_sound(&root);
}
