use std::{collections::BTreeMap, fs, path::Path};

use proptest::prelude::*;
use turnwise_nearest::{BuildOptions, Builder, Metric, Scorer, VectorFormat};

use super::*;
use crate::{
    engine::Candidate,
    vectors::{self, EncodeTargets, Kind, Mode, Recipe, VectorWriter, fill},
};
use turnwise_core::{
    error::Class,
    ids::{DialogueId, UtteranceId},
};
use turnwise_corpus::{Dialogue, Role};
use turnwise_encoder::{ahead::Options, testing::HashEncoder, transformer::Tokens};
use turnwise_store as store;
use turnwise_store::{Prepared, Snapshot, Store};

fn dialogue(id: &str, texts: &[String]) -> Dialogue {
    let mut dialogue = Dialogue::new(DialogueId::new(id).unwrap());
    for (n, text) in texts.iter().enumerate() {
        let (speaker, role) = if n % 2 == 0 { ("ann", Role::User) } else { ("bob", Role::Agent) };
        dialogue.push(speaker, role, text);
    }
    dialogue.check().unwrap();
    dialogue
}

fn write(root: &Path, change: impl FnOnce(&mut Store)) {
    let mut store = Store::open_or_create(root, "test").unwrap();
    change(&mut store);
    store.commit(None).unwrap();
    store.close().unwrap();
}

fn encode(root: &Path, encoder: &HashEncoder) {
    let recipe = Recipe::of(encoder, "hashed", "auto", &Tokens::default(), &Options::default());
    let mut writer = VectorWriter::open(root, &recipe, Mode::Continue, "test").unwrap();
    let wanted = EncodeTargets { utterances: true, dialogues: true, chunk: 64 };
    let snapshot = Snapshot::open(root).unwrap();
    fill(&snapshot, &mut writer, encoder, &wanted, &Options::default(), &|| false, &mut |_| {}).unwrap();
    writer.finish().unwrap();
}

fn options() -> BuildOptions {
    BuildOptions { builder: Builder::Native, ef: 32, ..BuildOptions::default() }
}

fn build_now(root: &Path) -> Built {
    let snapshot = Snapshot::open(root).unwrap();
    build(root, &snapshot, &options(), "test", &|| false).unwrap().unwrap()
}

/// Compacts the log, the vectors and the graphs.
fn compact_all(root: &Path) {
    store::compact::compact(root, 1 << 20, "test", &|| false, &mut |_| {}).unwrap();
    vectors::compact(root, "test", &|| false, &mut |_| {}).unwrap();
    compact(root, &Snapshot::open(root).unwrap(), "test", &|| false).unwrap();
}

fn search(root: &Path, kind: Kind, query: &[f32], k: usize, exact: bool) -> Vec<(f32, String)> {
    let snapshot = Snapshot::open(root).unwrap();
    let reader = DenseReader::open(root, &snapshot).unwrap().unwrap();
    let hits = reader
        .search(&snapshot, kind, query, &SearchSettings { k, exact, ..SearchSettings::default() })
        .unwrap();
    let name = |hit: Candidate| {
        let dialogue = snapshot.record(hit.dialogue).unwrap().unwrap().1.id;
        match hit.turn {
            Some(turn) => (hit.score, UtteranceId { dialogue, turn }.to_string()),
            None => (hit.score, dialogue.to_string()),
        }
    };
    hits.into_iter().map(name).collect()
}

/// Computes a cosine with the same arithmetic as the graph, bit for bit.
fn cosine(query: &[f32], vector: &[f32]) -> f32 {
    Scorer::new(Metric::Cosine, query).unwrap().unwrap().score(vector).unwrap().unwrap()
}

/// Returns the `k` nearest items from an exact search of a map, best first. Equal scores are in descending order of id.
fn naive(
    all: &BTreeMap<String, Dialogue>,
    kind: Kind,
    encoder: &HashEncoder,
    query: &[f32],
    k: usize,
) -> Vec<(f32, String)> {
    let mut found = Vec::new();
    for dialogue in all.values() {
        match kind {
            Kind::Dialogues => {
                let score = cosine(query, &encoder.dialogue_vector(dialogue));
                found.push((score, dialogue.id.clone(), None));
            }
            Kind::Utterances => found.extend(dialogue.turns.iter().map(|turn| {
                (cosine(query, &encoder.vector(&turn.text)), dialogue.id.clone(), Some(turn.number))
            })),
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)).then(b.2.cmp(&a.2)));
    let name = |(score, dialogue, turn)| match turn {
        Some(turn) => (score, UtteranceId { dialogue, turn }.to_string()),
        None => (score, dialogue.to_string()),
    };
    found.into_iter().take(k).map(name).collect()
}

#[derive(Debug, Clone)]
enum Step {
    Put(u8, Vec<u8>),
    Delete(u8),
    Build,
    Compact,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u8..20, proptest::collection::vec(0u8..12, 1..5)).prop_map(|(id, texts)| Step::Put(id, texts)),
        2 => (0u8..20).prop_map(Step::Delete),
        2 => Just(Step::Build),
        1 => Just(Step::Compact),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 25, ..ProptestConfig::default() })]
    #[test]
    fn search_results_equal_those_of_a_map(
        steps in proptest::collection::vec(step(), 1..25),
        asked in 0u8..12,
        k in 1usize..12,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("index");
        let encoder = HashEncoder::default();
        let mut all = BTreeMap::new();
        write(&root, |_| {});
        for step in steps {
            match step {
                Step::Put(id, texts) => {
                    let texts: Vec<String> = texts.iter().map(|t| format!("text {t}")).collect();
                    let dialogue = dialogue(&format!("d{id}"), &texts);
                    write(&root, |store| { store.put(&Prepared::new(&dialogue).unwrap()).unwrap(); });
                    all.insert(dialogue.id.to_string(), dialogue);
                }
                Step::Delete(id) => {
                    let id = DialogueId::new(format!("d{id}")).unwrap();
                    let there = all.remove(id.as_str()).is_some();
                    write(&root, |store| assert_eq!(store.delete(&id).unwrap(), there));
                }
                Step::Build => {
                    encode(&root, &encoder);
                    let built = build_now(&root);
                    prop_assert_eq!(built.manifest.dialogues_there, all.len() as u64);
                }
                Step::Compact => {
                    // Encode first: a text without a vector would not get into the rebuilt graphs.
                    encode(&root, &encoder);
                    compact_all(&root);
                }
            }
        }
        encode(&root, &encoder);
        let query = encoder.vector(&format!("text {asked}"));
        for kind in Kind::ALL {
            let expected = naive(&all, kind, &encoder, &query, k);
            prop_assert_eq!(search(&root, kind, &query, k, false), expected.clone());
            prop_assert_eq!(search(&root, kind, &query, k, true), expected);
        }
    }
}

fn filled(root: &Path) {
    write(root, |store| {
        for n in 0..60 {
            let texts = [format!("question {n}"), "thank you".to_owned(), format!("answer {}", n % 7)];
            store.put(&Prepared::new(&dialogue(&format!("d{n:02}"), &texts)).unwrap()).unwrap();
        }
    });
    encode(root, &HashEncoder::default());
}

#[test]
fn a_very_frequent_utterance_does_not_hide_other_hits() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let built = build_now(dir.path());
    assert_eq!(
        (built.new, built.manifest.utterances.there, built.manifest.utterances.nodes),
        (true, 180, 68)
    );
    assert_eq!(built.manifest.utterances.recall, 1.0);
    let thanks = HashEncoder::default().vector("thank you");
    let found = search(dir.path(), Kind::Utterances, &thanks, 100, false);
    assert!(found[..60].iter().all(|(score, _)| *score > 0.9999) && found[60].0 < 0.99);
    assert_eq!((found[0].1.as_str(), found[59].1.as_str(), found.len()), ("d59#2", "d00#2", 100));
}

#[test]
fn a_new_generation_replaces_the_old_one_and_open_readers_keep_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    filled(root);
    build_now(root);
    let snapshot = Snapshot::open(root).unwrap();
    let old = DenseReader::open(root, &snapshot).unwrap().unwrap();
    write(root, |store| assert!(store.delete(&DialogueId::new("d07").unwrap()).unwrap()));
    assert!(build_now(root).new);
    // A build that is killed at its end leaves the folder of the old graphs. The next build removes this folder, even
    // if it builds nothing.
    let left = folder(root).join("1");
    fs::create_dir_all(&left).unwrap();
    assert!(!build_now(root).new && !left.exists());
    assert_eq!(fs::read_dir(folder(root)).unwrap().count(), 2, "one generation and current.json");
    let query = HashEncoder::default().vector("question 7");
    let look = SearchSettings { k: 1, ..SearchSettings::default() };
    let found = old.search(&snapshot, Kind::Utterances, &query, &look).unwrap();
    assert_eq!(found[0].dialogue, DialogueId::new("d07").unwrap().key());
    assert_ne!(search(root, Kind::Utterances, &query, 1, false)[0].1, "d07#1");
}

#[test]
fn a_build_with_other_options_is_not_skipped() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let snapshot = Snapshot::open(dir.path()).unwrap();
    let smaller = BuildOptions { m: 8, ..options() };
    let slower = BuildOptions { ef: 64, ..smaller };
    for options in [options(), smaller, slower, BuildOptions { format: VectorFormat::F16, ..slower }] {
        for new in [true, false] {
            let built = build(dir.path(), &snapshot, &options, "test", &|| false).unwrap().unwrap();
            assert_eq!(built.new, new, "{options:?}");
        }
    }
}

#[test]
fn graphs_are_rebuilt_by_the_same_builder_after_a_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    filled(root);
    compact_all(root);
    assert!(!folder(root).exists(), "an index without graphs gets none");
    let snapshot = Snapshot::open(root).unwrap();
    let by_hnsw = BuildOptions { builder: Builder::HnswRs, ..options() };
    build(root, &snapshot, &by_hnsw, "test", &|| false).unwrap();
    let old = DenseReader::open(root, &snapshot).unwrap().unwrap();
    let made = |root: &Path| compact(root, &Snapshot::open(root).unwrap(), "test", &|| false).unwrap();
    assert!(!made(root));

    write(root, |store| assert!(store.delete(&DialogueId::new("d07").unwrap()).unwrap()));
    store::compact::compact(root, 1 << 20, "test", &|| false, &mut |_| {}).unwrap();
    let query = HashEncoder::default().vector("question 7");
    // Until the graphs are rebuilt, the search compares the query with all vectors.
    let found = search(root, Kind::Utterances, &query, 3, false);
    vectors::compact(root, "test", &|| false, &mut |_| {}).unwrap();
    assert_eq!(search(root, Kind::Utterances, &query, 3, false), found);
    // Files of a killed build are removed too.
    fs::create_dir(folder(root).join("7")).unwrap();
    assert!(made(root) && !made(root));
    assert_eq!(fs::read_dir(folder(root)).unwrap().count(), 2, "one generation and current.json");
    let manifest = in_use(root).unwrap().unwrap();
    assert_eq!((manifest.builder.as_str(), manifest.dialogues_there), ("hnsw_rs", 59));
    assert_eq!(search(root, Kind::Utterances, &query, 3, false), found);
    // A reader that opened the old graphs still finds the same dialogue.
    let look = SearchSettings { k: 1, ..SearchSettings::default() };
    let then = old.search(&snapshot, Kind::Utterances, &query, &look).unwrap();
    assert_eq!(then[0].dialogue, DialogueId::new("d07").unwrap().key());

    fs::create_dir(folder(root).join("9")).unwrap();
    assert!(!made(root) && !folder(root).join("9").exists());
    fs::write(folder(root).join("current.json"), "{").unwrap();
    assert!(made(root));
    verify(root).unwrap();
    fs::remove_dir_all(root.join("vectors")).unwrap();
    assert!(!made(root) && !folder(root).exists(), "graphs without their vectors");
}

#[test]
fn missing_vectors_are_counted_and_a_cancelled_build_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    filled(root);
    build_now(root);
    write(root, |store| {
        let texts = ["never encoded".to_owned(), "thank you".to_owned()];
        store.put(&Prepared::new(&dialogue("new", &texts)).unwrap()).unwrap();
    });
    let snapshot = Snapshot::open(root).unwrap();
    let reader = DenseReader::open(root, &snapshot).unwrap().unwrap();
    assert_eq!((reader.tail(), reader.without(Kind::Utterances), reader.without(Kind::Dialogues)), (1, 1, 1));
    let stopped = build(root, &snapshot, &options(), "test", &|| true).unwrap_err();
    assert_eq!(stopped.class(), Class::Interrupted);
    assert_eq!(fs::read_dir(folder(root)).unwrap().count(), 2);
    let thanks = HashEncoder::default().vector("thank you");
    assert_eq!(search(root, Kind::Utterances, &thanks, 1, false)[0].1, "new#2");
    // A killed build leaves files that are not used; the next build removes them.
    fs::create_dir(folder(root).join("2")).unwrap();
    fs::write(folder(root).join("2/utterances.graph"), b"half").unwrap();
    assert_eq!(search(root, Kind::Utterances, &thanks, 1, false)[0].1, "new#2");
    assert!(build_now(root).new);
    assert_eq!(fs::read_dir(folder(root)).unwrap().count(), 2);
}

#[test]
fn every_damaged_byte_is_reported_without_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    filled(root);
    build_now(root);
    let query = HashEncoder::default().vector("question 7");
    let generation = folder(root).join("1");
    let mut files: Vec<_> = fs::read_dir(&generation).unwrap().map(|e| e.unwrap().path()).collect();
    files.push(folder(root).join("current.json"));
    for file in files {
        let good = fs::read(&file).unwrap();
        for step in 0..40 {
            let at = step * good.len() / 40;
            let mut bad = good.clone();
            if step % 8 == 7 {
                bad.truncate(at)
            } else {
                bad[at] ^= 0x24
            }
            fs::write(&file, &bad).unwrap();
            let snapshot = Snapshot::open(root).unwrap();
            let error = DenseReader::open(root, &snapshot).and_then(|reader| {
                let reader = reader.unwrap();
                let look = SearchSettings { exact: step % 2 == 0, ..SearchSettings::default() };
                let _ = reader.search(&snapshot, Kind::Utterances, &query, &look);
                verify(root)
            });
            let error = error.expect_err(&format!("{} at {at}", file.display()));
            assert_eq!(error.class(), Class::Corrupt, "{error}");
            assert!(error.hint().unwrap().contains("index build"), "{error}");
        }
        fs::write(&file, &good).unwrap();
    }
}

#[test]
fn percentile_is_the_share_of_lower_values() {
    let background = SimilarityDistribution::of((0..=10_000).map(|n| n as f32 / 10_000.0).collect());
    for score in [0.0, 0.123, 0.5, 0.77, 0.995, 0.9995] {
        let percentile = background.percentile(score).unwrap();
        assert!((percentile - 100.0 * f64::from(score)).abs() < 0.01, "{score}: {percentile}");
    }
    assert_eq!(background.percentile(-0.5), Some(0.0));
    assert_eq!((background.percentile(1.0), background.percentile(7.0)), (Some(100.0), Some(100.0)));
}

#[test]
fn percentiles_of_equal_values_and_of_an_empty_sample() {
    let same = SimilarityDistribution::of(vec![0.5; 100]);
    assert_eq!((same.percentile(0.4), same.percentile(0.5)), (Some(0.0), Some(100.0)));
    assert_eq!(SimilarityDistribution::of(Vec::new()).percentile(0.5), None);
    assert_eq!(SimilarityDistribution::of(vec![0.3]).percentile(0.2), Some(0.0));
}
