//! What every engine must do alike.

use std::{collections::BTreeSet, ops::Range};

use turnwise_core::ids::DialogueId;
use turnwise_corpus::Dialogue;
use turnwise_search::{
    Fusion, FusionMethod, Group, Hit, HitKind, Mode, Rerank, RerankMethod, SearchRequest, Searcher,
};
use turnwise_store::PutOutcome;

use crate::{
    corpus::{Numbers, dialogue, of_one_corpus},
    places::{Here, Place},
};

/// Scores that are nearer to each other than this may come in any order: some engines count in 32 bits.
const ALIKE: f32 = 2e-4;
/// The same of long texts by their words: Tantivy rounds how long they are.
const ALIKE_BY_WORDS: f32 = 0.02;
/// Who ask at the same time.
const CLIENTS: usize = 20;
/// Dialogues of the scenarios.
const MANY: usize = 100;

fn request(query: &str) -> SearchRequest {
    SearchRequest { query: query.to_owned(), k: 10, ..SearchRequest::default() }
}

/// Questions of every kind, each with a name that tells what it is.
fn questions() -> Vec<(String, SearchRequest)> {
    let mut n = Numbers(4711);
    let mut all = Vec::new();
    for mode in [Mode::Dense, Mode::Bm25, Mode::Hybrid] {
        for of in [HitKind::Utterances, HitKind::Dialogues] {
            for _ in 0..4 {
                let words = 1 + n.below(4);
                let asked = SearchRequest { mode: Some(mode), of, ..request(&n.sentence(words)) };
                all.push((format!("{mode:?} {of:?} `{}`", asked.query), asked));
            }
        }
    }
    let hybrid = |query: &str| SearchRequest { mode: Some(Mode::Hybrid), ..request(query) };
    let rrf = Fusion { method: FusionMethod::Rrf, bm25: 1.0, ..Fusion::default() };
    all.extend([
        ("unasked".to_owned(), request("parcel late tomorrow")),
        ("rrf".to_owned(), SearchRequest { fusion: Some(rrf), ..hybrid("refund 订单 invoice") }),
        (
            "weights".to_owned(),
            SearchRequest {
                fusion: Some(Fusion { bm25: 2.0, ..Fusion::default() }),
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
            "context by meaning".to_owned(),
            SearchRequest {
                context: vec!["cancel ticket".to_owned()],
                mode: Some(Mode::Dense),
                ..request("什么时候 到货")
            },
        ),
        ("page".to_owned(), SearchRequest { offset: 7, k: 6, ..hybrid("card refund") }),
        ("groups".to_owned(), SearchRequest { group: Some(Group::Dialogue), ..hybrid("card refund") }),
        (
            "least score".to_owned(),
            SearchRequest { min_score: Some(0.55), mode: Some(Mode::Dense), ..request("parcel late") },
        ),
        ("neighbours".to_owned(), SearchRequest { window: 3, ..hybrid("invoice tomorrow") }),
        (
            "again by cosines".to_owned(),
            SearchRequest {
                rerank: Some(Rerank { by: RerankMethod::Exact, top: 30 }),
                ..hybrid("broken screen card")
            },
        ),
        (
            "again by tokens".to_owned(),
            SearchRequest {
                rerank: Some(Rerank { by: RerankMethod::Maxsim, top: 20 }),
                ..hybrid("hotel room late")
            },
        ),
        (
            "again by matching".to_owned(),
            SearchRequest {
                rerank: Some(Rerank { by: RerankMethod::Matching, top: 20 }),
                ..hybrid("thanks please")
            },
        ),
        (
            "like a turn".to_owned(),
            SearchRequest { like: Some("d0011#1".to_owned()), query: String::new(), ..hybrid("") },
        ),
        (
            "like a dialogue".to_owned(),
            SearchRequest {
                like: Some("d0023".to_owned()),
                query: String::new(),
                mode: Some(Mode::Dense),
                ..request("")
            },
        ),
        (
            "like one that is not there".to_owned(),
            SearchRequest {
                dialogue: Some(Box::new(dialogue(9_999, 3))),
                query: String::new(),
                mode: Some(Mode::Dense),
                ..request("")
            },
        ),
        ("many".to_owned(), SearchRequest { k: 400, ..hybrid("card") }),
        ("explained".to_owned(), SearchRequest { explain: true, ..hybrid("card refund") }),
    ]);
    for filter in FILTERS {
        for of in [HitKind::Utterances, HitKind::Dialogues] {
            let asked = SearchRequest {
                filter: Some(filter.parse().unwrap()),
                of,
                k: 400,
                mode: Some(Mode::Dense),
                ..request("card late room")
            };
            all.push((format!("{filter} of {of:?}"), asked));
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

/// As it is written, near ones in any order.
#[track_caller]
fn assert_alike(what: &str, place: &str, expected: &[Hit], found: &[Hit], asked: &SearchRequest) {
    let by_words = asked.mode != Some(Mode::Dense);
    let alike = if by_words && asked.of == HitKind::Dialogues { ALIKE_BY_WORDS } else { ALIKE };
    let ids = |hits: &[Hit]| hits.iter().map(|hit| hit.id.clone()).collect::<Vec<_>>();
    let told = || {
        let line = |hits: &[Hit]| {
            hits.iter().map(|h| format!("{} {:.5}", h.id, h.score)).collect::<Vec<_>>().join("\n  ")
        };
        format!("{what} at {place}\nexpected\n  {}\nfound\n  {}", line(expected), line(found))
    };
    assert_eq!(expected.len(), found.len(), "{}", told());
    let mut at = 0;
    while at < expected.len() {
        // What is alike is compared as a set; at the end of a list other ones may stand in its place.
        let mut end = at + 1;
        while end < expected.len() && expected[end - 1].score - expected[end].score < alike {
            end += 1;
        }
        let set = |hits: &[Hit]| ids(&hits[at..end]).into_iter().collect::<BTreeSet<_>>();
        if end < expected.len() || expected.len() < 10 {
            assert_eq!(set(expected), set(found), "{}", told());
        }
        at = end;
    }
    if !by_words {
        let near = expected.iter().zip(found).all(|(a, b)| (a.score - b.score).abs() < 1e-3);
        assert!(near, "{}", told());
    }
}

fn answers(searcher: &Searcher, asked: &SearchRequest) -> Vec<Hit> {
    searcher.search(asked).unwrap_or_else(|e| panic!("{asked:?}: {e}")).hits
}

/// What is lived through.
#[derive(Clone, Copy)]
pub struct Life {
    /// Of one corpus are the dialogues, or of three.
    pub corpus: Option<&'static str>,
    /// Whether the statistics of words are those of all that is there, as they should be. The small server counts the words
    /// of each corpus by itself: then only what is found by words is compared, and not in which order.
    pub counts_all: bool,
}

impl Life {
    fn dialogues(self, numbers: Range<usize>, version: u64) -> Vec<Dialogue> {
        numbers.map(|n| of_one_corpus(n, version, self.corpus)).collect()
    }

    fn compares(self, asked: &SearchRequest) -> bool {
        self.counts_all || asked.mode == Some(Mode::Dense)
    }
}

/// Whatever is asked, both give the same.
fn answer_alike(life: Life, reference: &dyn Place, place: &dyn Place) {
    let (expected, found) = (reference.searcher(), place.searcher());
    for (what, asked) in questions() {
        let hits = answers(&found, &asked);
        let wanted = answers(&expected, &asked);
        match life.compares(&asked) {
            true => assert_alike(&what, &place.name(), &wanted, &hits, &asked),
            false => found_alike(&what, &expected, &found, asked.clone()),
        }
        for (a, b) in wanted.iter().filter_map(|a| Some((a, hits.iter().find(|b| b.id == a.id)?))) {
            // Which turn of a dialogue is shown where several have as many of the words is nobody's promise.
            if asked.of == HitKind::Utterances || asked.mode == Some(Mode::Dense) {
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

/// All that have any of the words are found, in whatever order.
fn found_alike(what: &str, expected: &Searcher, found: &Searcher, asked: SearchRequest) {
    if asked.query.is_empty() {
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
        ..asked
    };
    let ids = |searcher: &Searcher| -> BTreeSet<String> {
        answers(searcher, &all).into_iter().map(|hit| hit.id).collect()
    };
    let there = ids(expected);
    assert!(there.len() < 2_000 && there == ids(found), "{what}");
}

/// The whole life of an index, in both.
pub fn live_alike(life: Life, place: &dyn Place, restart: &mut dyn FnMut()) {
    let here = Here::new();
    let both: [&dyn Place; 2] = [&here, place];
    let first = life.dialogues(0..MANY, 1);
    for place in both {
        assert!(place.ingest(&first).iter().all(|put| *put == PutOutcome::Added), "{}", place.name());
        assert!(
            place.ingest(&first[..30]).iter().all(|put| *put == PutOutcome::Unchanged),
            "{}",
            place.name()
        );
    }
    answer_alike(life, &here, place);
    // Changed, with other numbers of turns; gone; come again; and gone by a filter.
    let second = life.dialogues(20..60, 2);
    let again = life.dialogues(3..4, 5);
    let gone: Vec<DialogueId> =
        ["d0003", "d0021", "d0090", "nothing"].map(|id| DialogueId::new(id).unwrap()).to_vec();
    let filter = "meta.channel=phone and turns<3".parse().unwrap();
    let by_filter = both.map(|place| {
        assert!(place.ingest(&second).iter().all(|put| *put == PutOutcome::Replaced), "{}", place.name());
        assert_eq!(place.delete(&gone), 3, "{}", place.name());
        assert_eq!(place.ingest(&again), [PutOutcome::Added], "{}", place.name());
        place.delete_matching(&filter)
    });
    assert!(by_filter[0] > 3 && by_filter[0] == by_filter[1], "{by_filter:?}");
    answer_alike(life, &here, place);
    restart();
    answer_alike(life, &here, place);
}

/// Twenty who ask at the same time get what one gets.
pub fn many_ask(place: &dyn Place) {
    let searcher = place.searcher();
    let asked = questions();
    let alone: Vec<Vec<Hit>> = asked.iter().map(|(_, asked)| answers(&searcher, asked)).collect();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (searcher, asked, alone) = (&searcher, &asked, &alone);
            scope.spawn(move || {
                // Each asks some of them, and all of them are asked by somebody.
                for n in (0..asked.len()).filter(|n| n % CLIENTS == client || n % 11 == client % 11) {
                    let (what, asked) = &asked[n];
                    assert_alike(what, &client.to_string(), &alone[n], &answers(searcher, asked), asked);
                }
            });
        }
    });
}

#[test]
fn an_index_on_this_machine_is_as_it_is() {
    live_alike(Life { corpus: None, counts_all: true }, &Here::new(), &mut || {});
}

#[test]
fn an_index_on_this_machine_is_asked_by_many() {
    let here = Here::new();
    here.ingest(&(0..MANY).map(|n| dialogue(n, 1)).collect::<Vec<_>>());
    many_ask(&here);
}

#[cfg(feature = "milvus")]
mod in_milvus {
    use super::*;
    use turnwise_milvus::Target;

    use crate::{places::Far, server::Server};

    #[test]
    fn a_small_milvus_is_as_an_index_on_this_machine() {
        for (name, corpus) in [("one_corpus", Some("shop")), ("three_corpora", None)] {
            let Some(mut server) = Server::start() else { return };
            let place = Far { target: server.target(name) };
            live_alike(Life { corpus, counts_all: corpus.is_some() }, &place, &mut || server.restart());
            if corpus.is_some() {
                many_ask(&place);
            }
        }
    }

    /// `TURNWISE_MILVUS_URI=milvus://host:19530/a_name_that_is_free cargo test --features milvus --test engines`
    #[test]
    fn a_cluster_is_as_an_index_on_this_machine() {
        let Ok(address) = std::env::var("TURNWISE_MILVUS_URI") else {
            eprintln!("skipped: TURNWISE_MILVUS_URI names no cluster");
            return;
        };
        let target: Target = address.parse().unwrap();
        let place = Far { target: target.with_token(std::env::var("TURNWISE_MILVUS_TOKEN").ok()) };
        live_alike(Life { corpus: None, counts_all: true }, &place, &mut || {});
        many_ask(&place);
    }
}
