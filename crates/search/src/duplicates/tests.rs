use std::{collections::BTreeMap, path::Path};

use proptest::prelude::*;

use super::*;
use turnwise_core::{DialogueId, error::Class, vectors::cosine};
use turnwise_corpus::{Dialogue, Role};
use turnwise_encoder::{
    ahead::Options,
    testing::{DIM, HashEncoder},
    transformer::Tokens,
};
use turnwise_index::{
    dense::{BuildOptions, Builder, build},
    vectors::{Mode, Recipe, VectorWriter, fill},
};
use turnwise_store::{Prepared, Store};

pub(crate) fn dialogue(id: &str, texts: &[&str]) -> Dialogue {
    let mut dialogue = Dialogue::new(DialogueId::new(id).unwrap());
    for (n, text) in texts.iter().enumerate() {
        let (speaker, role) = if n % 2 == 0 { ("ann", Role::User) } else { ("bob", Role::Agent) };
        dialogue.push(speaker, role, *text);
    }
    dialogue.check().unwrap();
    dialogue
}

pub(crate) fn put(root: &Path, dialogues: &[Dialogue]) {
    let mut store = Store::open_or_create(root, "test").unwrap();
    for dialogue in dialogues {
        store.put(&Prepared::new(dialogue).unwrap()).unwrap();
    }
    store.commit(None).unwrap();
    store.close().unwrap();
}

/// Encodes all dialogues and their utterances with a test encoder.
pub(crate) fn encode(root: &Path) {
    let encoder = HashEncoder::default();
    let recipe = Recipe::of(&encoder, "hashed", "auto", &Tokens::default(), &Options::default());
    let mut writer = VectorWriter::open(root, &recipe, Mode::Continue, "test").unwrap();
    let wanted = turnwise_index::vectors::EncodeTargets { utterances: true, dialogues: true, chunk: 64 };
    let snapshot = Snapshot::open(root).unwrap();
    fill(&snapshot, &mut writer, &encoder, &wanted, &Options::default(), &|| false, &mut |_| {}).unwrap();
    writer.finish().unwrap();
}

fn build_now(root: &Path) {
    encode(root);
    let options = BuildOptions { builder: Builder::Native, ef: 32, ..BuildOptions::default() };
    build(root, &Snapshot::open(root).unwrap(), &options, "test", &|| false).unwrap().unwrap();
}

fn wanted(kind: Kind, threshold: f32) -> DuplicateOptions<'static> {
    DuplicateOptions { kind, threshold, limit: 1_000, shown: 1_000, exact: false, filter: None }
}

fn look(root: &Path, wanted: &DuplicateOptions<'_>, few: usize) -> Result<Duplicates> {
    let snapshot = Snapshot::open(root).unwrap();
    let reader = DenseReader::open(root, &snapshot).unwrap().unwrap();
    find(&snapshot, &reader, wanted, few, &|| false)
}

fn ids(group: &Group) -> Vec<&str> {
    group.members.iter().flat_map(|m| &m.ids).map(String::as_str).collect()
}

/// Returns the dialogue id, turn number (0 for a dialogue) and vector of each item. Omits zero vectors.
fn everything(all: &BTreeMap<String, Dialogue>, kind: Kind) -> Vec<(DialogueId, u32, [f32; DIM])> {
    let encoder = HashEncoder::default();
    let of = |d: &Dialogue| match kind {
        Kind::Dialogues => vec![(d.id.clone(), 0, encoder.dialogue_vector(d))],
        Kind::Utterances => {
            d.turns.iter().map(|t| (d.id.clone(), t.number.0, encoder.vector(&t.text))).collect()
        }
    };
    let every: Vec<_> = all.values().flat_map(of).collect();
    every.into_iter().filter(|(_, _, vector)| vector.iter().any(|v| *v != 0.0)).collect()
}

/// Finds groups by comparing all pairs, and returns their sizes and greatest ids. Returns `None` if a cosine is so
/// close to the threshold that rounding could change the result.
fn naive(
    all: &BTreeMap<String, Dialogue>,
    kind: Kind,
    threshold: f32,
) -> Option<Vec<(u64, DialogueId, u32)>> {
    let every = everything(all, kind);
    let mut group: Vec<usize> = (0..every.len()).collect();
    for a in 0..every.len() {
        for b in 0..a {
            let cosine = cosine(&every[a].2, &every[b].2);
            if (cosine - threshold).abs() < 1e-4 && every[a].2 != every[b].2 {
                return None;
            }
            if cosine >= threshold - 1e-5 {
                let (old, new) = (group[a], group[b]);
                group.iter_mut().filter(|g| **g == old).for_each(|g| *g = new);
            }
        }
    }
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    group.iter().enumerate().for_each(|(n, g)| groups.entry(*g).or_default().push(n));
    let mut found: Vec<(u64, DialogueId, u32)> = groups
        .into_values()
        .filter(|members| members.len() > 1)
        .map(|members| {
            let greatest = members.iter().map(|n| (every[*n].0.clone(), every[*n].1)).max().unwrap();
            (members.len() as u64, greatest.0, greatest.1)
        })
        .collect();
    found.sort_by(|a, b| b.cmp(a));
    Some(found)
}

#[derive(Debug, Clone)]
enum Step {
    Put(u8, Vec<Vec<u8>>),
    Delete(u8),
    Build,
}

/// Returns a strategy that generates random steps. The texts use a small vocabulary, so many of them are nearly equal.
/// Some texts are empty.
fn step() -> impl Strategy<Value = Step> {
    let text = proptest::collection::vec(0u8..9, 0..6);
    prop_oneof![
        6 => (0u8..25, proptest::collection::vec(text, 1..5)).prop_map(|(id, texts)| Step::Put(id, texts)),
        1 => (0u8..25).prop_map(Step::Delete),
        1 => Just(Step::Build),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn groups_agree_with_the_naive_version(
        steps in proptest::collection::vec(step(), 1..40),
        threshold in prop_oneof![Just(1.0f32), 0.5f32..0.999],
        limit in 1usize..6,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("index");
        put(&root, &[]);
        let mut all = BTreeMap::new();
        for step in steps {
            match step {
                Step::Put(id, texts) => {
                    let word = |n: &u8| ["red", "green", "blue", "one", "two", "of", "the", "my", "you"][*n as usize];
                    let texts: Vec<String> =
                        texts.iter().map(|t| t.iter().map(word).collect::<Vec<_>>().join(" ")).collect();
                    let mut texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                    texts.push("thank you");
                    let dialogue = dialogue(&format!("d{id}"), &texts);
                    put(&root, std::slice::from_ref(&dialogue));
                    all.insert(dialogue.id.to_string(), dialogue);
                }
                Step::Delete(id) => {
                    let id = DialogueId::new(format!("d{id}")).unwrap();
                    all.remove(id.as_str());
                    let mut store = Store::open_or_create(&root, "test").unwrap();
                    store.delete(&id).unwrap();
                    store.commit(None).unwrap();
                    store.close().unwrap();
                }
                Step::Build => build_now(&root),
            }
        }
        encode(&root);
        for kind in Kind::ALL {
            let Some(expected) = naive(&all, kind, threshold) else { continue };
            // Compare all pairs first, then use the graph.
            for few in [MAX_EXHAUSTIVE, 0] {
                let found = look(&root, &wanted(kind, threshold), few).unwrap();
                let named: Vec<(u64, DialogueId, u32)> = found.groups.iter().map(|group| {
                    let id = |id: &&str| match kind {
                        Kind::Dialogues => (DialogueId::new(*id).unwrap(), 0),
                        Kind::Utterances => {
                            let id: turnwise_core::ids::UtteranceId = id.parse().unwrap();
                            (id.dialogue, id.turn.0)
                        }
                    };
                    let greatest = ids(group).iter().map(id).max().unwrap();
                    (group.size, greatest.0, greatest.1)
                }).collect();
                prop_assert_eq!(&named, &expected);
                prop_assert_eq!(found.groups_found as usize, expected.len());
                prop_assert_eq!(found.in_groups, expected.iter().map(|(size, ..)| size).sum::<u64>());
                prop_assert_eq!(found.looked_at as usize, everything(&all, kind).len());
                for group in &found.groups {
                    prop_assert_eq!(group.members.iter().map(|m| m.count).sum::<u64>(), group.size);
                    prop_assert_eq!(group.members.len() as u64, group.different);
                }
                let few_groups = look(&root, &DuplicateOptions { limit, shown: 1, ..wanted(kind, threshold) }, few).unwrap();
                prop_assert_eq!(few_groups.groups.len(), limit.min(expected.len()));
                for (one, all) in few_groups.groups.iter().zip(&found.groups) {
                    prop_assert_eq!((one.size, &one.members[..]), (all.size, &all.members[..1]));
                }
            }
        }
    }
}

#[test]
fn equal_texts_are_one_member() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let many = |from: usize, to: usize| -> Vec<Dialogue> {
        (from..to).map(|n| dialogue(&format!("d{n:03}"), &[&format!("question {n}"), "thank you"])).collect()
    };
    put(root, &many(0, 300));
    build_now(root);
    put(root, &many(300, 310));
    put(root, &[dialogue("near", &["thank thank thank thank you you you you you"])]);
    encode(root);
    let found = look(root, &wanted(Kind::Utterances, 0.9), 0).unwrap();
    let thanks = &found.groups[0];
    assert_eq!((thanks.size, thanks.dialogues, thanks.different), (311, 311, 3));
    // The ten copies that were added after the build form a separate member.
    let shown: Vec<(u64, &str)> = thanks.members.iter().map(|m| (m.count, m.text.as_str())).collect();
    assert_eq!(
        shown,
        [(300, "thank you"), (10, "thank you"), (1, "thank thank thank thank you you you you you")]
    );
    assert_eq!(thanks.members[0].ids, ["d299#2", "d298#2", "d297#2"]);
    assert!((thanks.members[0].similarity - 1.0).abs() < 1e-5 && thanks.members[2].similarity < 0.999);
}

#[test]
fn a_filter_limits_the_items_compared() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let some =
        |ids: &[&str]| -> Vec<Dialogue> { ids.iter().map(|id| dialogue(id, &["same words"])).collect() };
    put(root, &some(&["a1", "a2", "b1"]));
    build_now(root);
    put(root, &some(&["a3", "b2"]));
    encode(root);
    let filter: Filter = "id~a".parse().unwrap();
    for kind in Kind::ALL {
        let of =
            |filter| look(root, &DuplicateOptions { filter, ..wanted(kind, 1.0) }, MAX_EXHAUSTIVE).unwrap();
        assert_eq!((of(None).looked_at, of(None).groups[0].size), (5, 5));
        let found = of(Some(&filter));
        assert_eq!((found.looked_at, found.groups[0].size), (3, 3));
        assert!(ids(&found.groups[0]).iter().all(|id| id.starts_with('a')));
    }
    // If the items are utterances, the filter applies to each utterance.
    put(root, &[dialogue("c", &["same words", "same words"])]);
    encode(root);
    let agents: Filter = "role=agent".parse().unwrap();
    let found = look(
        root,
        &DuplicateOptions { filter: Some(&agents), ..wanted(Kind::Utterances, 1.0) },
        MAX_EXHAUSTIVE,
    )
    .unwrap();
    assert_eq!((found.looked_at, found.groups.len()), (1, 0));
}

#[test]
fn invalid_thresholds_and_interruptions_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), &[dialogue("a", &["x"]), dialogue("b", &["y z", "x"])]);
    encode(dir.path());
    for threshold in [1.01, -2.0, f32::NAN] {
        let refused = look(dir.path(), &wanted(Kind::Utterances, threshold), MAX_EXHAUSTIVE).unwrap_err();
        assert_eq!(refused.class(), Class::Input, "{refused}");
    }
    let snapshot = Snapshot::open(dir.path()).unwrap();
    let reader = DenseReader::open(dir.path(), &snapshot).unwrap().unwrap();
    let stopped = duplicates(&snapshot, &reader, &wanted(Kind::Utterances, 0.9), &|| true).unwrap_err();
    assert_eq!(stopped.class(), Class::Interrupted);
}
