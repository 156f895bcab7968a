use std::{path::Path, sync::Arc};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use turnwise_corpus::{Dialogue, filter::Filter};
use turnwise_encoder::{TextOptions, ahead::Options, testing::HashEncoder, transformer::Tokens};
use turnwise_index::{
    Admitted,
    dense::{self, BuildOptions},
    lexical::Lexical,
    vectors::{EncodeTargets, Kind, Mode as Writing, Recipe, VectorWriter, fill, utterance_key},
};
use turnwise_store::{Prepared, Store};

mod context;
mod odd_input;
mod reliability;
mod titles;

const WORDS: [&str; 8] = ["card", "refund", "parcel", "late", "hotel", "room", "please", "thanks"];

/// Generates a dialogue whose fields and words depend on `seed`.
fn dialogue(id: u8, seed: u32) -> Dialogue {
    let word = |n: u32| WORDS[(seed.rotate_left(n * 5) % 8) as usize];
    let turns: Vec<_> = (0..1 + seed % 4)
        .map(|n| {
            let role = if n % 2 == 0 { "user" } else { "agent" };
            let mut turn =
                json!({"role": role, "speaker": word(n + 3), "text": format!("{} {}", word(n), word(n + 1))});
            if seed.rotate_left(n) % 3 > 0 {
                let (day, fraction) =
                    (1 + seed.rotate_left(n * 7) % 5, ["", ".25"][(seed.rotate_left(n) % 2) as usize]);
                turn["time"] = json!(format!("2026-03-0{day}T09:00:00{fraction}Z"));
            }
            turn
        })
        .collect();
    let mut dialogue: Dialogue = serde_json::from_value(json!({
        "id": format!("d{id:02}"), "source": word(9), "domains": [word(2)],
        "metadata": {"n": seed % 7, "tags": [word(4), word(5)]},
        "turns": turns,
    }))
    .unwrap();
    dialogue.check().unwrap();
    dialogue
}

fn write(root: &Path, change: impl FnOnce(&mut Store)) {
    let mut store = Store::open_or_create(root, "test").unwrap();
    change(&mut store);
    store.commit(None).unwrap();
    store.close().unwrap();
}

fn encode(root: &Path) {
    let encoder = HashEncoder::default();
    let recipe = Recipe::of(&encoder, "hashed", "auto", &Tokens::default(), &Options::default());
    let mut writer = VectorWriter::open(root, &recipe, Writing::Continue, "test").unwrap();
    let wanted = EncodeTargets { utterances: true, dialogues: true, chunk: 64 };
    let snapshot = Snapshot::open(root).unwrap();
    fill(&snapshot, &mut writer, &encoder, &wanted, &Options::default(), &|| false, &mut |_| {}).unwrap();
    writer.finish().unwrap();
}

fn build(root: &Path) {
    let snapshot = Snapshot::open(root).unwrap();
    Lexical::update(None, root, &snapshot, &|| false, &mut |_| {}).unwrap();
    dense::build(root, &snapshot, &BuildOptions::default(), "test", &|| false).unwrap();
}

fn searcher(root: &Path) -> Searcher {
    Searcher::open(root).unwrap().with_encoder(Arc::new(HashEncoder::default())).unwrap()
}

fn ids(searcher: &Searcher, request: &SearchRequest) -> Vec<String> {
    searcher.search(request).unwrap().hits.into_iter().map(|hit| hit.id).collect()
}

fn request(mode: Mode, of: HitKind) -> SearchRequest {
    SearchRequest { query: "parcel late".to_owned(), mode: Some(mode), of, k: 5, ..SearchRequest::default() }
}

/// Creates an index in which dialogues were added, replaced and deleted after the last build. If `fresh` is true,
/// updates the lexical index after these changes.
fn index(root: &Path, seeds: &[u32], fresh: bool) {
    write(root, |store| {
        for (n, seed) in seeds.iter().enumerate() {
            store.put(&Prepared::new(&dialogue(n as u8, *seed)).unwrap()).unwrap();
        }
    });
    encode(root);
    build(root);
    write(root, |store| {
        store.put(&Prepared::new(&dialogue(0, seeds[0].wrapping_add(77))).unwrap()).unwrap();
        store.put(&Prepared::new(&dialogue(99, seeds[0] / 3)).unwrap()).unwrap();
        store.delete(&dialogue(1, 0).id).unwrap();
    });
    encode(root);
    if fresh {
        let snapshot = Snapshot::open(root).unwrap();
        Lexical::update(None, root, &snapshot, &|| false, &mut |_| {}).unwrap();
    }
}

/// Creates an index of one dialogue with a turn of each speaker.
pub(super) fn dialogue_index(speakers: &[&str]) -> (tempfile::TempDir, Searcher) {
    let turns: Vec<_> =
        speakers.iter().map(|speaker| json!({"speaker": speaker, "text": "parcel late"})).collect();
    conversation(&json!(turns))
}

/// Creates an index of one dialogue with the given turns.
fn conversation(turns: &serde_json::Value) -> (tempfile::TempDir, Searcher) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("index");
    let mut dialogue: Dialogue = serde_json::from_value(json!({"id": "talk", "turns": turns})).unwrap();
    dialogue.check().unwrap();
    write(&root, |store| {
        store.put(&Prepared::new(&dialogue).unwrap()).unwrap();
    });
    encode(&root);
    build(&root);
    let searcher = searcher(&root);
    (dir, searcher)
}

fn filter() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(vec![
        "role=user",
        "role!=user and turns>1",
        "domain=card or domain=hotel",
        "not domain=room",
        "speaker~a and turn<=2",
        "meta.n>=3 and meta.tags=parcel",
        "text~parcel",
        "not text~late or role=agent",
        "source=refund",
        "id>d05 and id!=d07",
        "length>11",
        "id=nobody",
        "speaker=card",
        "(speaker=card or speaker=nobody) and role=user",
        "speaker=late and not domain=room",
        "speaker=hotel or id=d03 or time=2026-03-02T09:00:00Z",
        "time>=2026-03-02 and time<2026-03-04",
        "time>2026-03-03T09:00:00Z",
        "time<2026-03-03T09:00:00.25Z and turn>1",
        "(time<=2026-03-01T09:00:00.1Z or time>2026-03-04 and time<2026-03-05) and meta.n=3",
        "id=d01 or id=d03 or id=d04 or id=d12",
        "(id=d02 or id=d05) and role=user",
        "not (id=d00 or not id=d02 and id!=d00)",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_filtered_search_equals_filtering_all_hits(
        seeds in proptest::collection::vec(any::<u32>(), 2..30),
        text in filter(),
        whole: bool,
        fresh: bool,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("index");
        index(&root, &seeds, fresh);
        let searcher = searcher(&root);
        let of = if whole { HitKind::Dialogues } else { HitKind::Utterances };
        let filter: Filter = text.parse().unwrap();
        // Evaluating the filter by the lexical index and by the records must give the same result.
        let index = searcher.embedded("test").unwrap();
        let by_records = Admitted::by_records(index.snapshot(), &filter, of.kind()).unwrap();
        let by_facts = index.lexical().unwrap().select(index.snapshot(), &filter, of.kind()).unwrap().unwrap();
        for d in index.snapshot().dialogues().map(Result::unwrap) {
            let seq = index.snapshot().seq_of(d.id.key()).unwrap();
            match of {
                HitKind::Dialogues => {
                    prop_assert_eq!(by_records.holds(seq, None), filter.matches(&d));
                    prop_assert_eq!(by_facts.admitted.holds(seq, None), filter.matches(&d));
                }
                HitKind::Utterances => for turn in &d.turns {
                    let is = filter.matches_turn(&d, turn);
                    prop_assert_eq!(by_records.holds(seq, Some(turn.number)), is);
                    prop_assert_eq!(by_facts.admitted.holds(seq, Some(turn.number)), is);
                },
            }
        }
        // A filtered search must return the matching hits of an unfiltered search.
        for mode in [Mode::Dense, Mode::Bm25] {
            let all = SearchRequest { k: 1000, ..request(mode, of) };
            let mut wanted = Vec::new();
            for id in ids(&searcher, &all) {
                let (d, turn) = searcher.embedded("test").unwrap().snapshot().find(&id).unwrap();
                let turn = turn.and_then(|n| d.turns.iter().find(|t| t.number == n));
                if turn.map_or_else(|| filter.matches(&d), |turn| filter.matches_turn(&d, turn)) {
                    wanted.push(id);
                }
            }
            for exact in [false, mode == Mode::Dense] {
                let k = wanted.len().max(1);
                let some = SearchRequest { filter: Some(filter.clone()), k, exact, ..request(mode, of) };
                prop_assert_eq!(&ids(&searcher, &some), &wanted, "{:?} {}", mode, text);
                let two = SearchRequest { k: 2, ..some };
                prop_assert_eq!(&ids(&searcher, &two)[..], &wanted[..wanted.len().min(2)], "{:?} {}", mode, text);
            }
        }
    }

    #[test]
    fn pages_and_groups_agree_with_the_full_list(
        seeds in proptest::collection::vec(any::<u32>(), 2..25),
        mode in proptest::sample::select(vec![Mode::Hybrid, Mode::Dense, Mode::Bm25]),
        method in proptest::sample::select(vec![FusionMethod::Context, FusionMethod::Weighted, FusionMethod::Rrf]),
        offset in 0usize..6,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("index");
        index(&root, &seeds, true);
        let searcher = searcher(&root);
        // `candidates` is so large that both lists are complete. The score of a hit is then the same on every page.
        let fusion = Some(FusionOptions::from(Fusion::of(method)));
        let base = SearchRequest { fusion, candidates: 500, k: 400, ..request(mode, HitKind::Utterances) };
        let all = searcher.search(&base).unwrap().hits;
        let order = |a: &Hit, b: &Hit| b.score.total_cmp(&a.score).then(b.id.cmp(&a.id));
        prop_assert!(all.is_sorted_by(|a, b| order(a, b).is_lt()), "{:?}", all.iter().map(|h| (h.score, &h.id)).collect::<Vec<_>>());
        let names: Vec<&String> = all.iter().map(|hit| &hit.id).collect();
        let page = ids(&searcher, &SearchRequest { offset, k: 3, ..base.clone() });
        prop_assert_eq!(page.iter().collect::<Vec<_>>(), names.iter().skip(offset).take(3).copied().collect::<Vec<_>>());
        let mut firsts: Vec<(&String, usize)> = Vec::new();
        for hit in &all {
            match firsts.iter_mut().find(|(id, _)| id.starts_with(hit.dialogue.as_str())) {
                Some((_, more)) => *more += 1,
                None => firsts.push((&hit.id, 0)),
            }
        }
        let grouped = SearchRequest { group: Some(Group::Dialogue), ..base.clone() };
        let grouped = searcher.search(&grouped).unwrap().hits;
        prop_assert_eq!(grouped.iter().map(|hit| (&hit.id, hit.more.unwrap())).collect::<Vec<_>>(), firsts);
        if let Some(middle) = all.get(all.len() / 2) {
            let least = SearchRequest { min_score: Some(middle.score), ..base.clone() };
            let above: Vec<&String> = all.iter().filter(|hit| hit.score >= middle.score).map(|hit| &hit.id).collect();
            let least = ids(&searcher, &least);
            prop_assert_eq!(least.iter().collect::<Vec<_>>(), above);
        }
        // A batch search must return the same responses as single searches.
        let requests = [base.clone(), SearchRequest { query: "hotel room".to_owned(), ..base.clone() }, SearchRequest::default()];
        let together = searcher.search_all(&requests);
        for (request, response) in requests.iter().zip(together) {
            match response {
                Ok(response) => {
                    let names: Vec<String> = response.hits.into_iter().map(|hit| hit.id).collect();
                    prop_assert_eq!(names, ids(&searcher, request));
                }
                Err(e) => prop_assert_eq!(e.to_string(), searcher.search(request).unwrap_err().to_string()),
            }
        }
    }
}

fn some_index() -> (tempfile::TempDir, Searcher) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("index");
    let seeds: Vec<u32> = (0..40u32).map(|n| n.wrapping_mul(2_654_435_761)).collect();
    index(&root, &seeds, true);
    let searcher = searcher(&root);
    (dir, searcher)
}

#[test]
fn explanations_add_up_to_the_score() {
    let (_dir, searcher) = some_index();
    for method in [FusionMethod::Context, FusionMethod::Rrf, FusionMethod::Weighted] {
        for of in [HitKind::Utterances, HitKind::Dialogues] {
            let fusion = Some(Fusion { dense: 0.7, bm25: 1.3, ..Fusion::of(method) }.into());
            let request = SearchRequest { explain: true, fusion, ..request(Mode::Hybrid, of) };
            for hit in searcher.search(&request).unwrap().hits {
                let why = hit.explanation.unwrap();
                let fused = why.fusion.unwrap();
                let parts = [fused.from_dense, fused.from_bm25, fused.from_speaker];
                let sum: f32 = parts.into_iter().flatten().sum();
                assert!((sum - hit.score).abs() < 1e-6 && fused.score == hit.score);
                assert_eq!(why.context.is_some(), fused.by.method == FusionMethod::Context);
                if let Some(context) = &why.context {
                    let terms: f32 = context.terms.iter().map(|term| term.score).sum();
                    assert!((terms - context.bm25).abs() < 1e-4, "{context:?}");
                    assert!(why.bm25.is_none_or(|place| context.bm25 > place.score - 1e-4), "{context:?}");
                }
                if fused.by.method == FusionMethod::Weighted {
                    let words =
                        why.bm25.map_or(0.0, |place| 1.3 * place.score / (place.score + BM25_HALF_SCORE));
                    let speaker = fused.from_speaker.unwrap_or_default();
                    assert!((0.7 * why.cosine.unwrap() + words + speaker - hit.score).abs() < 1e-6);
                }
                let terms: f32 = why.terms.iter().map(|term| term.score).sum();
                assert!((terms - why.bm25.map_or(0.0, |place| place.score)).abs() < 1e-4, "{:?}", why.terms);
                for term in &why.terms {
                    let norm = 1.2 * (0.25 + 0.75 * term.length as f32 / term.mean_length);
                    let tf = term.frequency as f32 / (term.frequency as f32 + norm);
                    assert!((term.idf * 2.2 * tf - term.score).abs() < 1e-4, "{term:?}");
                }
            }
        }
    }
}

#[test]
fn similarity_search_excludes_the_item_itself() {
    let (_dir, searcher) = some_index();
    for id in ["d05#1", "d05"] {
        for mode in [Mode::Hybrid, Mode::Dense, Mode::Bm25] {
            let request = SearchRequest {
                like: Some(id.to_owned()),
                mode: Some(mode),
                k: 10,
                ..SearchRequest::default()
            };
            assert!(searcher.needs_encoder(&request).unwrap().is_none());
            let response = searcher.search(&request).unwrap();
            let of = if id.contains('#') { HitKind::Utterances } else { HitKind::Dialogues };
            assert_eq!((response.of, response.hits.len()), (of, 10));
            assert!(response.hits.iter().all(|hit| hit.id != id));
        }
    }
    let request = SearchRequest { like: Some("d77".to_owned()), ..SearchRequest::default() };
    assert!(searcher.search(&request).unwrap_err().to_string().contains("no dialogue `d77`"));
    // A search with a dialogue that is not in the index finds the indexed dialogue with the same text.
    let twin = searcher.embedded("test").unwrap().snapshot().find("d07").unwrap().0;
    let outside = Dialogue { id: turnwise_core::ids::DialogueId::new("elsewhere").unwrap(), ..twin };
    let request = SearchRequest { dialogue: Some(Box::new(outside)), ..SearchRequest::default() };
    assert_eq!(ids(&searcher, &request)[0], "d07");
}

#[test]
fn percentiles_follow_the_cosine_and_limit_the_hits() {
    let (_dir, searcher) = some_index();
    let all = SearchRequest { k: 50, ..request(Mode::Dense, HitKind::Utterances) };
    let hits = searcher.search(&all).unwrap().hits;
    assert!(hits.is_sorted_by(|a, b| a.percentile.unwrap() >= b.percentile.unwrap()));
    let cut = SearchRequest { min_percentile: Some(90.0), ..all };
    let kept = searcher.search(&cut).unwrap().hits;
    assert!(!kept.is_empty() && kept.len() < hits.len());
    assert_eq!(kept.len(), hits.iter().filter(|hit| hit.percentile.unwrap() >= 90.0).count());
}

#[test]
fn a_large_k_returns_all_items() {
    let (_dir, searcher) = some_index();
    let turns = searcher.embedded("test").unwrap().snapshot().totals().turns as usize;
    let all = SearchRequest { k: 100_000, ..request(Mode::Dense, HitKind::Utterances) };
    assert_eq!(ids(&searcher, &all).len(), turns);
    let behind = SearchRequest { offset: turns, k: 10, ..all };
    assert!(ids(&searcher, &behind).is_empty());
    let none = SearchRequest { k: 0, ..request(Mode::Hybrid, HitKind::Dialogues) };
    assert!(ids(&searcher, &none).is_empty());
}
