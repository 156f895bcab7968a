//! Tests of searches in titles, and of the coverage of the words of a query.

use super::*;
use crate::Explanation;

/// Creates an index of dialogues. Each has a title, which may be empty, and turns.
fn titled(dialogues: &[(&str, &str, &[&str])]) -> (tempfile::TempDir, Searcher) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("index");
    write(&root, |store| {
        for (id, title, turns) in dialogues {
            let turns: Vec<_> = turns.iter().map(|text| json!({"speaker": "Ann", "text": text})).collect();
            let dialogue = json!({"id": id, "title": title, "turns": turns});
            let mut dialogue: Dialogue = serde_json::from_value(dialogue).unwrap();
            dialogue.check().unwrap();
            store.put(&Prepared::new(&dialogue).unwrap()).unwrap();
        }
    });
    encode(&root);
    build(&root);
    let searcher = searcher(&root);
    (dir, searcher)
}

fn search(searcher: &Searcher, query: &str, of: HitKind, filter: &str) -> Vec<Hit> {
    let request = SearchRequest {
        query: query.to_owned(),
        of,
        // The vectors of the test encoder say nothing here.
        fusion: Some(FusionOptions { dense: Some(0.0), ..FusionOptions::default() }),
        filter: (!filter.is_empty()).then(|| filter.parse().unwrap()),
        candidates: 4,
        k: 2,
        explain: true,
        ..SearchRequest::default()
    };
    searcher.search(&request).unwrap().hits
}

fn why(hit: &Hit) -> &Explanation {
    hit.explanation.as_ref().unwrap()
}

#[test]
fn the_words_of_a_title_count_for_the_dialogue_and_its_turns() {
    let turns: &[&str] = &["hotel please", "the room is late"];
    let mut dialogues = vec![("trip", "Journey to Kyoto", turns), ("untitled", "", turns)];
    let ids: Vec<String> = (0..30).map(|n| format!("other-{n}")).collect();
    dialogues.extend(ids.iter().map(|id| (id.as_str(), "Refund", turns)));
    let (_dir, searcher) = titled(&dialogues);

    // No turn contains the word of the title, and the first candidates of both lists are other dialogues.
    let hits = search(&searcher, "which room in kyoto", HitKind::Utterances, "");
    assert_eq!(hits[0].id, "trip#2");
    let terms = &why(&hits[0]).context.as_ref().unwrap().terms;
    assert!(terms.iter().any(|term| term.term == "kyoto" && term.turn.is_none()), "{terms:?}");
    assert_eq!(hits[0].title_matched, [[11, 16]]);
    // The filter of the request applies to these candidates, too.
    assert!(
        search(&searcher, "which room in kyoto", HitKind::Utterances, "not id=trip")
            .iter()
            .all(|hit| hit.dialogue != "trip")
    );

    for mode in [Mode::Hybrid, Mode::Bm25] {
        let request = SearchRequest {
            mode: Some(mode),
            explain: true,
            query: "kyoto".to_owned(),
            ..request(mode, HitKind::Dialogues)
        };
        let hits = searcher.search(&request).unwrap().hits;
        assert_eq!(hits[0].id, "trip", "{mode:?}");
        let explanation = why(&hits[0]);
        let title = explanation.title.unwrap();
        assert_eq!((title.rank, explanation.bm25), (1, None));
        assert_eq!(explanation.bm25_with_title(), Some(0.5 * title.score));
    }
    assert!(
        search(&searcher, "kyoto", HitKind::Dialogues, "not id=trip")
            .iter()
            .all(|hit| why(hit).title.is_none())
    );
    // All dialogues with the same title get the same score.
    let refunds = search(&searcher, "refund", HitKind::Dialogues, "");
    assert_eq!(refunds[0].score, refunds[1].score);
    assert!(why(&refunds[0]).title.is_some());
}

#[test]
fn words_that_are_found_together_in_few_dialogues_count_more() {
    let (_dir, searcher) = titled(&[
        ("both", "", &["the parcel is late", "thanks"]),
        ("apart", "", &["the parcel is here", "thanks", "thanks", "thanks", "the room is late"]),
        ("third", "", &["refund please", "hotel card"]),
        ("fourth", "", &["refund thanks", "hotel card"]),
    ]);
    let coverage = |query: &str, id: &str| {
        let hits = search(&searcher, query, HitKind::Utterances, &format!("id={id}"));
        why(&hits[0]).context.as_ref().unwrap().coverage
    };
    let both = coverage("late parcel", "both");
    assert_eq!((both.share, both.dialogues, both.factor), (1.0, 1, 3.0));
    assert_eq!(coverage("late parcel", "apart").share, 0.5);
    // Of one word, all turns that contain it contain all.
    assert_eq!(coverage("parcel", "both").factor, 1.0);
    // Two dialogues have both words in adjacent turns.
    let hits = search(&searcher, "refund card", HitKind::Utterances, "");
    let two = why(&hits[0]).context.as_ref().unwrap().coverage;
    assert_eq!((two.share, two.dialogues), (0.9, 2));
    assert!((two.factor - 0.96 * (1.0 + 0.9f32.powi(4))).abs() < 1e-6);
}

#[test]
fn a_dialogue_with_few_words_of_the_query_counts_less() {
    let (_dir, searcher) = titled(&[
        ("two", "hotel", &["the parcel is late", "thanks"]),
        ("one", "", &["the parcel is here", "parcel parcel"]),
    ]);
    let hits = search(&searcher, "late parcel hotel", HitKind::Dialogues, "");
    let of = |id: &str| why(hits.iter().find(|hit| hit.id == id).unwrap());
    for (id, share) in [("two", 1.0), ("one", 1.0 / 3.0)] {
        let explanation = of(id);
        assert_eq!(explanation.words.unwrap().share, share, "{id}");
        let words = explanation.bm25_with_title().map(|score| 1.5 * score / (score + 10.0));
        let expected = words.map(|words| words * share.powi(3));
        let found = explanation.fusion.as_ref().unwrap().from_bm25;
        assert!((found.unwrap_or_default() - expected.unwrap_or_default()).abs() < 1e-6, "{id}");
    }
    // A single word is contained or not.
    assert!(search(&searcher, "parcel", HitKind::Dialogues, "").iter().all(|hit| why(hit).words.is_none()));
}
