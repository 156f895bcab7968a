//! Scenarios that must have the same results on every engine.

use std::{collections::BTreeSet, ops::Range};

use turnwise_core::ids::DialogueId;
use turnwise_corpus::Dialogue;
use turnwise_search::{
    Fusion, FusionMethod, Group, Hit, HitKind, Mode, Rerank, RerankMethod, SearchRequest, Searcher,
};
use turnwise_store::PutOutcome;

use crate::{
    corpus::{Numbers, dialogue, dialogue_in},
    test_engines::{LocalEngine, TestEngine},
};

/// If the scores of two hits differ by less than this value, the hits may be in any order. Some engines compute in 32
/// bits.
const TIE: f32 = 2e-4;
/// Maximum score difference of ties, instead of [`TIE`], for BM25 scores of dialogues. It is larger because Tantivy
/// rounds the length of long texts.
const LEXICAL_TIE: f32 = 0.02;
/// Number of concurrent clients.
const CLIENTS: usize = 20;
/// Number of dialogues in a scenario.
const DIALOGUES: usize = 100;

/// Returns a search request. Its lists of candidates are complete: engines can cut off a shorter list differently if
/// candidates at its end have equal scores.
fn request(query: &str) -> SearchRequest {
    SearchRequest { query: query.to_owned(), k: 10, candidates: 10 * DIALOGUES, ..SearchRequest::default() }
}

/// Returns search requests with all modes, fusion methods, filters and other options, each with a description.
fn requests() -> Vec<(String, SearchRequest)> {
    let mut n = Numbers(4711);
    let mut all = Vec::new();
    for mode in [Mode::Dense, Mode::Bm25, Mode::Hybrid] {
        for of in [HitKind::Utterances, HitKind::Dialogues] {
            for _ in 0..4 {
                let words = 1 + n.below(4);
                let request = SearchRequest { mode: Some(mode), of, ..request(&n.sentence(words)) };
                all.push((format!("{mode:?} {of:?} `{}`", request.query), request));
            }
        }
    }
    let hybrid = |query: &str| SearchRequest { mode: Some(Mode::Hybrid), ..request(query) };
    let rrf = Fusion { method: FusionMethod::Rrf, bm25: 1.0, ..Fusion::default() };
    all.extend([
        ("default mode".to_owned(), request("parcel late tomorrow")),
        ("rrf".to_owned(), SearchRequest { fusion: Some(rrf.into()), ..hybrid("refund 订单 invoice") }),
        (
            "weights".to_owned(),
            SearchRequest {
                fusion: Some(Fusion { bm25: 2.0, ..Fusion::default() }.into()),
                ..hybrid("train ticket")
            },
        ),
        (
            "context".to_owned(),
            SearchRequest {
                context: vec!["hotel room".to_owned(), "broken screen".to_owned()],
                ..hybrid("password reset please")
            },
        ),
        (
            "dense search with context".to_owned(),
            SearchRequest {
                context: vec!["cancel ticket".to_owned()],
                mode: Some(Mode::Dense),
                ..request("什么时候 到货")
            },
        ),
        ("titles".to_owned(), hybrid("another case of a late parcel")),
        (
            "titles of dialogues".to_owned(),
            SearchRequest { of: HitKind::Dialogues, ..hybrid("another case of a late parcel") },
        ),
        (
            "titles with a filter".to_owned(),
            SearchRequest {
                of: HitKind::Dialogues,
                mode: Some(Mode::Bm25),
                filter: Some("role=agent".parse().unwrap()),
                ..request("case")
            },
        ),
        ("page".to_owned(), SearchRequest { offset: 7, k: 6, ..hybrid("card refund") }),
        ("groups".to_owned(), SearchRequest { group: Some(Group::Dialogue), ..hybrid("card refund") }),
        (
            "minimum score".to_owned(),
            SearchRequest { min_score: Some(0.55), mode: Some(Mode::Dense), ..request("parcel late") },
        ),
        ("window".to_owned(), SearchRequest { window: 3, ..hybrid("invoice tomorrow") }),
        (
            "reranking by cosine".to_owned(),
            SearchRequest {
                rerank: Some(Rerank { by: RerankMethod::Exact, top: 30, ..Rerank::default() }),
                ..hybrid("broken screen card")
            },
        ),
        (
            "reranking by MaxSim".to_owned(),
            SearchRequest {
                rerank: Some(Rerank { by: RerankMethod::Maxsim, top: 20, ..Rerank::default() }),
                ..hybrid("hotel room late")
            },
        ),
        (
            "reranking by matching".to_owned(),
            SearchRequest {
                rerank: Some(Rerank { by: RerankMethod::Matching, top: 20, ..Rerank::default() }),
                ..hybrid("thanks please")
            },
        ),
        (
            "after turns of a conversation".to_owned(),
            SearchRequest {
                context: vec!["the card was broken".to_owned(), "refund please".to_owned()],
                candidates: 10_000,
                ..hybrid("thanks")
            },
        ),
        // A name in lower case is a name only because there are few speakers.
        ("a speaker".to_owned(), SearchRequest { candidates: 10_000, ..hybrid("ann late parcel") }),
        ("two speakers".to_owned(), SearchRequest { candidates: 10_000, ..hybrid("refund by Bo and ÇE") }),
        (
            "dialogues of a speaker".to_owned(),
            SearchRequest {
                of: HitKind::Dialogues,
                candidates: 10_000,
                ..hybrid("what did Ann say about the hotel")
            },
        ),
        ("a date".to_owned(), SearchRequest { candidates: 10_000, ..hybrid("parcel late in March 2026") }),
        (
            "a date of dialogues".to_owned(),
            SearchRequest {
                of: HitKind::Dialogues,
                candidates: 10_000,
                ..hybrid("parcel late in March 2026")
            },
        ),
        (
            "similar to a turn".to_owned(),
            SearchRequest { like: Some("d0011#1".to_owned()), query: String::new(), ..hybrid("") },
        ),
        (
            "similar to a dialogue".to_owned(),
            SearchRequest {
                like: Some("d0023".to_owned()),
                query: String::new(),
                mode: Some(Mode::Dense),
                ..request("")
            },
        ),
        (
            "similar to a dialogue that is not stored".to_owned(),
            SearchRequest {
                dialogue: Some(Box::new(dialogue(9_999, 3))),
                query: String::new(),
                mode: Some(Mode::Dense),
                ..request("")
            },
        ),
        ("long list".to_owned(), SearchRequest { k: 400, ..hybrid("card") }),
        ("explained".to_owned(), SearchRequest { explain: true, ..hybrid("card refund") }),
    ]);
    for filter in FILTERS {
        for of in [HitKind::Utterances, HitKind::Dialogues] {
            let request = SearchRequest {
                filter: Some(filter.parse().unwrap()),
                of,
                k: 400,
                mode: Some(Mode::Dense),
                ..request("card late room")
            };
            all.push((format!("{filter} of {of:?}"), request));
        }
    }
    all
}

const FILTERS: [&str; 32] = [
    "role=user",
    "role!=user",
    "domain=hotels and not domain=taxi",
    "domain=\"it's\" or intent=ask",
    "corpus=shop",
    "corpus=\"\"",
    "corpus=\"bank \\\\ \\\"new\\\"\"",
    "source!=shop",
    "speaker=\"Bo \\\"B\\\"\"",
    "speaker~\"o \\\"b\"",
    "speaker~ÇE",
    "title~\"_case 50%\"",
    "title~\"50_\"",
    "language=zh",
    "id=d0007",
    "id>=d0040 and id<d0060",
    "time>=2026-05-01",
    "time<2026-03-01 or time>2026-09-01T00:00:00Z",
    "turns=3",
    "turns>4",
    "length>30",
    "length<=12",
    "meta.channel=phone",
    "meta.score>=20",
    "meta.score<1.5",
    "meta.score=12.5",
    "meta.list=2",
    "meta.list=many and meta.list<1",
    "meta.stars>2",
    "meta.tag_%=x",
    "meta.none!=3",
    "not (meta.none>3)",
];

/// Checks that two lists of hits are equal. Hits with nearly equal scores may be in any order.
#[track_caller]
fn assert_same_hits(what: &str, engine: &str, expected: &[Hit], found: &[Hit], request: &SearchRequest) {
    let lexical = request.mode != Some(Mode::Dense);
    let tie = if lexical && request.of == HitKind::Dialogues { LEXICAL_TIE } else { TIE };
    let ids = |hits: &[Hit]| hits.iter().map(|hit| hit.id.clone()).collect::<Vec<_>>();
    let message = || {
        let line = |hits: &[Hit]| {
            hits.iter().map(|h| format!("{} {:.5}", h.id, h.score)).collect::<Vec<_>>().join("\n  ")
        };
        format!("{what} on {engine}\nexpected\n  {}\nfound\n  {}", line(expected), line(found))
    };
    assert_eq!(expected.len(), found.len(), "{}", message());
    let mut at = 0;
    while at < expected.len() {
        // Ties may be in any order. Ties at the end of a full list are not compared, because the list may cut them off.
        let mut end = at + 1;
        while end < expected.len() && expected[end - 1].score - expected[end].score < tie {
            end += 1;
        }
        let set = |hits: &[Hit]| ids(&hits[at..end]).into_iter().collect::<BTreeSet<_>>();
        if end < expected.len() || expected.len() < 10 {
            assert_eq!(set(expected), set(found), "{}", message());
        }
        at = end;
    }
    if !lexical {
        let near = expected.iter().zip(found).all(|(a, b)| (a.score - b.score).abs() < 1e-3);
        assert!(near, "{}", message());
    }
}

fn hits(searcher: &Searcher, request: &SearchRequest) -> Vec<Hit> {
    searcher.search(request).unwrap_or_else(|e| panic!("{request:?}: {e}")).hits
}

/// Conditions of a scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Corpus of all dialogues; `None` if the dialogues are from three corpora.
    pub corpus: Option<&'static str>,
    /// Whether the engine computes term statistics over all dialogues. Milvus Lite computes them for each corpus, so
    /// with several corpora, the order of its lexical hits is not compared.
    pub global_statistics: bool,
}

impl Scenario {
    fn dialogues(self, numbers: Range<usize>, version: u64) -> Vec<Dialogue> {
        numbers.map(|n| dialogue_in(n, version, self.corpus)).collect()
    }

    fn compares_order(self, request: &SearchRequest) -> bool {
        self.global_statistics || request.mode == Some(Mode::Dense)
    }
}

/// Checks that two engines return the same results for all requests.
fn compare(scenario: Scenario, reference: &dyn TestEngine, engine: &dyn TestEngine) {
    let (expected, found) = (reference.searcher(), engine.searcher());
    for (what, request) in requests() {
        let got = hits(&found, &request);
        let wanted = hits(&expected, &request);
        match scenario.compares_order(&request) {
            true => assert_same_hits(&what, &engine.name(), &wanted, &got, &request),
            false => compare_lexical_hits(&what, &expected, &found, request.clone()),
        }
        for (a, b) in wanted.iter().filter_map(|a| Some((a, got.iter().find(|b| b.id == a.id)?))) {
            // The shown turn of a lexically found dialogue is not compared: several turns can match equally well.
            if request.of == HitKind::Utterances || request.mode == Some(Mode::Dense) {
                assert_eq!(
                    (&a.turn, &a.matched, &a.before, &a.after),
                    (&b.turn, &b.matched, &b.before, &b.after),
                    "{what}"
                );
            }
            assert_eq!((&a.title, a.turns), (&b.title, b.turns), "{what}");
        }
    }
}

/// Checks that a lexical search finds the same items, in any order.
fn compare_lexical_hits(what: &str, expected: &Searcher, found: &Searcher, request: SearchRequest) {
    if request.query.is_empty() {
        return;
    }
    let all = SearchRequest {
        k: 2_000,
        offset: 0,
        mode: Some(Mode::Bm25),
        context: Vec::new(),
        rerank: None,
        group: None,
        fusion: None,
        min_score: None,
        ..request
    };
    let ids = |searcher: &Searcher| -> BTreeSet<String> {
        hits(searcher, &all).into_iter().map(|hit| hit.id).collect()
    };
    let wanted = ids(expected);
    assert!(wanted.len() < 2_000 && wanted == ids(found), "{what}");
}

/// Makes the same changes in a local index and in an engine. Compares results after each step, also after `restart`.
pub fn compare_with_local(scenario: Scenario, engine: &dyn TestEngine, restart: &mut dyn FnMut()) {
    let local = LocalEngine::new();
    let both: [&dyn TestEngine; 2] = [&local, engine];
    let first = scenario.dialogues(0..DIALOGUES, 1);
    for engine in both {
        assert!(engine.ingest(&first).iter().all(|put| *put == PutOutcome::Added), "{}", engine.name());
        assert!(
            engine.ingest(&first[..30]).iter().all(|put| *put == PutOutcome::Unchanged),
            "{}",
            engine.name()
        );
    }
    compare(scenario, &local, engine);
    // Replace dialogues, delete some, add one of them again, and delete some by a filter.
    let second = scenario.dialogues(20..60, 2);
    let restored = scenario.dialogues(3..4, 5);
    let deleted: Vec<DialogueId> =
        ["d0003", "d0021", "d0090", "nothing"].map(|id| DialogueId::new(id).unwrap()).to_vec();
    let filter = "meta.channel=phone and turns<3".parse().unwrap();
    let by_filter = both.map(|engine| {
        assert!(engine.ingest(&second).iter().all(|put| *put == PutOutcome::Replaced), "{}", engine.name());
        assert_eq!(engine.delete(&deleted), 3, "{}", engine.name());
        assert_eq!(engine.ingest(&restored), [PutOutcome::Added], "{}", engine.name());
        engine.delete_matching(&filter)
    });
    assert!(by_filter[0] > 3 && by_filter[0] == by_filter[1], "{by_filter:?}");
    compare(scenario, &local, engine);
    restart();
    compare(scenario, &local, engine);
}

/// Checks that two engines know the same words.
#[cfg(feature = "milvus")]
fn compare_absent_terms(reference: &dyn TestEngine, engine: &dyn TestEngine) {
    // "case" is only in titles.
    let terms = ["parcel", "parcels", "case", "订单", "zebra", "zq"].map(str::to_owned);
    let absent = |engine: &dyn TestEngine| engine.searcher().engine().absent_terms(&terms).unwrap();
    assert_eq!(absent(reference), absent(engine));
    assert_eq!(absent(engine), ["parcels", "zebra", "zq"]);
}

/// Checks that two engines estimate nearly the same spread of the cosines of random pairs.
#[cfg(feature = "milvus")]
fn compare_spreads(reference: &dyn TestEngine, engine: &dyn TestEngine) {
    let (expected, found) = (reference.searcher(), engine.searcher());
    use turnwise_index::vectors::Kind;
    for from in Kind::ALL {
        for to in Kind::ALL {
            let spread = |searcher: &Searcher| searcher.engine().spread(from, to).unwrap();
            let [(center, deviation), (other_center, other_deviation)] =
                [&expected, &found].map(|searcher| spread(searcher).expect("there are enough vectors"));
            let same = (center - other_center).abs() < 0.03 && (deviation - other_deviation).abs() < 0.03;
            assert!(same, "{from:?} {to:?}: {center} {deviation}, {other_center} {other_deviation}");
        }
    }
}

/// Checks that concurrent clients get the same results as a single client.
pub fn compare_concurrent(engine: &dyn TestEngine) {
    let searcher = engine.searcher();
    let requests = requests();
    let alone: Vec<Vec<Hit>> = requests.iter().map(|(_, request)| hits(&searcher, request)).collect();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (searcher, requests, alone) = (&searcher, &requests, &alone);
            scope.spawn(move || {
                // Each client sends some of the requests; together they send all of them.
                for n in (0..requests.len()).filter(|n| n % CLIENTS == client || n % 11 == client % 11) {
                    let (what, request) = &requests[n];
                    let got = hits(searcher, request);
                    assert_same_hits(what, &format!("client {client}"), &alone[n], &got, request);
                }
            });
        }
    });
}

#[test]
fn a_local_index_gives_the_same_results_as_a_second_one() {
    compare_with_local(Scenario { corpus: None, global_statistics: true }, &LocalEngine::new(), &mut || {});
}

#[test]
fn a_local_index_serves_concurrent_clients() {
    let local = LocalEngine::new();
    local.ingest(&(0..DIALOGUES).map(|n| dialogue(n, 1)).collect::<Vec<_>>());
    compare_concurrent(&local);
}

#[cfg(feature = "milvus")]
mod in_milvus {
    use serde_json::json;

    use super::*;
    use turnwise_milvus::Target;

    use crate::{server::Server, test_engines::MilvusEngine};

    #[test]
    fn milvus_lite_gives_the_same_results_as_a_local_index() {
        for (name, corpus) in [("one_corpus", Some("shop")), ("three_corpora", None)] {
            let Some(mut server) = Server::start() else { return };
            let engine = MilvusEngine { target: server.target(name) };
            compare_with_local(
                Scenario { corpus, global_statistics: corpus.is_some() },
                &engine,
                &mut || server.restart(),
            );
            if corpus.is_some() {
                compare_concurrent(&engine);
                let (local, other) = (LocalEngine::new(), MilvusEngine { target: server.target("spreads") });
                for engine in [&local as &dyn TestEngine, &other] {
                    engine.ingest(&(0..150).map(|n| dialogue(n, 1)).collect::<Vec<_>>());
                }
                compare_spreads(&local, &other);
                compare_absent_terms(&local, &other);
            }
        }
    }

    #[test]
    fn milvus_finds_the_names_of_many_speakers() {
        let Some(server) = Server::start() else { return };
        let engine = MilvusEngine { target: server.target("speakers") };
        let local = LocalEngine::new();
        let odd = ["Ann 50%", "Ann_B", "Bo \"B\"", "back\\slash", "Çe Özil", "多多", "Ann"];
        let names = (0..120).map(|n| format!("Ann P{n}")).chain(odd.map(str::to_owned));
        let dialogues: Vec<Dialogue> = names
            .enumerate()
            .map(|(n, name)| {
                let turns = json!([{"role": "user", "speaker": name, "text": "hello"}]);
                let mut dialogue: Dialogue =
                    serde_json::from_value(json!({"id": format!("s{n}"), "turns": turns})).unwrap();
                dialogue.check().unwrap();
                dialogue
            })
            .collect();
        engine.ingest(&dialogues);
        local.ingest(&dialogues);
        let (expected, found) = (local.searcher(), engine.searcher());
        let asked = [
            "ann",
            "Ann P7",
            "bo",
            "ANN_B",
            "back\\slash",
            "çe",
            "Çe",
            "多多",
            "Ann 50%",
            "nobody",
            "p7",
            "%",
            "_",
        ];
        let speakers = |searcher: &Searcher, most: usize| {
            let mut speakers = searcher.engine().speakers(&asked, most).unwrap();
            speakers.iter_mut().for_each(|names| names.sort_unstable());
            speakers
        };
        assert_eq!(speakers(&expected, 1_000), speakers(&found, 1_000));
        assert_eq!(speakers(&found, 1_000)[0].len(), 122);
        // If one name has more speakers than fit into a response, the speakers with the other names are found nevertheless.
        let few = speakers(&found, 3);
        assert_eq!((few[0].len(), &few[1..]), (3, &speakers(&expected, 3)[1..]));
        let all = |searcher: &Searcher, most: usize| searcher.engine().all_speakers(most).unwrap();
        assert_eq!(all(&expected, 1_000), all(&found, 1_000));
        assert_eq!((all(&found, 1_000).len(), all(&found, 21).len()), (127, 21));
    }

    /// Skipped unless a cluster is set. To run the test:
    ///
    /// `TURNWISE_MILVUS_URI=milvus://host:19530/an_unused_name cargo test --features milvus --test engines`
    #[test]
    fn a_cluster_gives_the_same_results_as_a_local_index() {
        let Ok(address) = std::env::var("TURNWISE_MILVUS_URI") else {
            eprintln!("skipped: TURNWISE_MILVUS_URI is not set");
            return;
        };
        let target: Target = address.parse().unwrap();
        let engine = MilvusEngine { target: target.with_token(std::env::var("TURNWISE_MILVUS_TOKEN").ok()) };
        compare_with_local(Scenario { corpus: None, global_statistics: true }, &engine, &mut || {});
        compare_concurrent(&engine);
    }
}
