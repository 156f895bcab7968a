//! Random puts, commits, reopenings and kills, compared with a `HashMap`.

use std::{collections::HashMap, fs, path::Path};

use proptest::prelude::*;

use crate::vectors::{tests::recipe, *};
use turnwise_core::ids::IdKey;
use turnwise_encoder::testing::{DIM, HashEncoder};

#[derive(Debug, Clone)]
enum Step {
    Put(Kind, u8),
    Commit,
    Close,
    /// Simulates a kill: drops the writer, and appends this number of meaningless bytes to the data files.
    Kill(u16),
    /// Deletes the lookup table file, which maps keys to rows.
    LoseTable(Kind),
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Utterances), Just(Kind::Dialogues)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (kind(), any::<u8>()).prop_map(|(kind, n)| Step::Put(kind, n)),
        3 => Just(Step::Commit),
        1 => Just(Step::Close),
        2 => (0u16..400).prop_map(Step::Kill),
        1 => kind().prop_map(Step::LoseTable),
    ]
}

type Model = HashMap<(Kind, u8), [f32; DIM]>;

fn key(n: u8) -> IdKey {
    // Some keys have the same prefix, which determines their slot in the table.
    let mut key = IdKey::of(&n.to_string());
    if n.is_multiple_of(3) {
        key.0[..8].copy_from_slice(&[n % 2; 8]);
    }
    key
}

fn open(root: &Path) -> VectorWriter {
    VectorWriter::open(root, &recipe(&HashEncoder::default()), Mode::Continue, "test").unwrap()
}

fn same(root: &Path, committed: &Model) -> Result<(), TestCaseError> {
    let reader = VectorReader::open(root).unwrap().unwrap();
    for kind in Kind::ALL {
        prop_assert_eq!(reader.rows(kind), committed.keys().filter(|(k, _)| *k == kind).count());
        prop_assert_eq!(reader.keys(kind).len() * DIM, reader.flat(kind).len());
        for n in 0..=255 {
            let expected = committed.get(&(kind, n)).map(|row| &row[..]);
            prop_assert_eq!(reader.get(kind, &key(n)).unwrap(), expected);
        }
        for (row, key) in reader.keys(kind).enumerate() {
            prop_assert_eq!(reader.row_of(kind, &key), Some(row));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn vectors_behave_like_a_map(steps in proptest::collection::vec(step(), 1..120)) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let mut writer = open(root);
        let mut committed = Model::new();
        let mut gathered = Model::new();
        let mut version = 0.0;
        for step in steps {
            match step {
                Step::Put(kind, n) => {
                    version += 1.0;
                    let row = [version; DIM];
                    let new = !gathered.contains_key(&(kind, n));
                    prop_assert_eq!(writer.contains(kind, &key(n)), !new);
                    prop_assert_eq!(writer.put(kind, key(n), &row).unwrap(), new);
                    gathered.entry((kind, n)).or_insert(row);
                }
                Step::Commit => {
                    writer.commit().unwrap();
                    committed = gathered.clone();
                    same(root, &committed)?;
                }
                Step::Close => {
                    writer.close().unwrap();
                    committed = gathered.clone();
                    writer = open(root);
                }
                Step::Kill(bytes) => {
                    let set = VectorReader::open(root).unwrap().unwrap().folder().to_owned();
                    drop(writer);
                    for entry in fs::read_dir(set).unwrap() {
                        let path = entry.unwrap().path();
                        if path.extension().is_some_and(|e| e == "f32" || e == "keys") {
                            let mut content = fs::read(&path).unwrap();
                            content.extend(vec![0xa5; usize::from(bytes)]);
                            fs::write(&path, content).unwrap();
                        }
                    }
                    gathered = committed.clone();
                    same(root, &committed)?;
                    writer = open(root);
                }
                Step::LoseTable(kind) => {
                    let set = VectorReader::open(root).unwrap().unwrap().folder().to_owned();
                    drop(writer);
                    let _ = fs::remove_file(set.join(format!("{}.table", kind.name())));
                    gathered = committed.clone();
                    same(root, &committed)?;
                    writer = open(root);
                }
            }
        }
        writer.close().unwrap();
        same(root, &gathered)?;
        prop_assert_eq!(check(root).unwrap().unwrap().damage.len(), 0);
    }
}

#[test]
fn keys_in_memory_are_moved_to_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let many = 30_000u32;
    let key = |n: u32| IdKey::of(&n.to_string());
    for round in 0..3 {
        let mut writer = open(root);
        for n in round * many / 3..(round + 1) * many / 3 {
            assert!(writer.put(Kind::Utterances, key(n), &[n as f32; DIM]).unwrap());
        }
        writer.close().unwrap();
    }
    let reader = VectorReader::open(root).unwrap().unwrap();
    assert!(reader.folder().join("utterances.table").exists());
    assert!(!reader.folder().join("dialogues.table").exists());
    for n in 0..many {
        assert_eq!(reader.get(Kind::Utterances, &key(n)).unwrap().unwrap(), [n as f32; DIM]);
    }
    assert_eq!(reader.row_of(Kind::Utterances, &key(many)), None);
    assert_eq!(reader.row_of(Kind::Dialogues, &key(1)), None);
}

#[test]
fn only_one_process_encodes_and_the_error_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let recipe = recipe(&HashEncoder::default());
    let writer = VectorWriter::open(root, &recipe, Mode::Continue, "turnwise encode -i x").unwrap();
    let e = VectorWriter::open(root, &recipe, Mode::Continue, "second").err().unwrap();
    assert!(
        matches!(e, turnwise_core::Error::Busy { .. }) && e.to_string().contains("turnwise encode -i x"),
        "{e}"
    );
    drop(writer);
    assert!(VectorWriter::open(root, &recipe, Mode::Continue, "second").is_ok());
}
