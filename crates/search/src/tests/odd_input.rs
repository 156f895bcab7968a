//! Odd input for search in conversations: odd speakers, times, turns and contexts.

use super::*;

/// Runs a search and checks that the scores of its hits are sorted numbers.
fn checked(searcher: &Searcher, request: &SearchRequest) -> Response {
    let found = searcher.search(request).unwrap();
    let scores: Vec<f32> = found.hits.iter().map(|hit| hit.score).collect();
    assert!(scores.iter().all(|score| score.is_finite()), "{request:?}: {scores:?}");
    assert!(scores.is_sorted_by(|a, b| a >= b), "{request:?}: {scores:?}");
    found
}

fn hybrid(query: &str) -> SearchRequest {
    SearchRequest {
        query: query.to_owned(),
        mode: Some(Mode::Hybrid),
        explain: true,
        ..SearchRequest::default()
    }
}

#[test]
fn a_speaker_with_an_odd_name_is_found() {
    let long = "Ann ".repeat(1250);
    let names = [
        "",
        "  ",
        long.trim(),
        "\u{1F600}",
        "Ann \"Q\" Lee",
        r"Bo\lee",
        "Will",
        "May",
        "An",
        "user",
        "Cy) or (role=user",
    ];
    let mut turns: Vec<_> =
        (0..60).map(|n| json!({"speaker": "Dee", "text": format!("parcel room{n}")})).collect();
    turns.extend(names.map(|name| json!({"speaker": name, "text": "parcel late"})));
    let (_dir, searcher) = conversation(&json!(turns));
    for name in names {
        for query in [name.to_owned(), format!("what parcel did {name} get"), format!("{name}'s parcel late")]
        {
            if query.trim().is_empty() {
                continue;
            }
            for candidates in [1, 100] {
                checked(&searcher, &SearchRequest { candidates, k: 2, ..hybrid(&query) });
            }
        }
    }
    let found = checked(&searcher, &SearchRequest { candidates: 1, k: 1, ..hybrid("parcel late of Bo") });
    assert_eq!(found.hits.len(), 1);
}

#[test]
fn many_dates_and_a_long_filter_can_be_combined() {
    let (_dir, searcher) = super::context::crowd();
    let dates: Vec<String> = (1..=28).map(|day| format!("{day} May 2023")).collect();
    let open: Vec<String> = (1..=28).map(|day| format!("{day} May")).collect();
    let filter = vec!["turn>0"; 63].join(" or ");
    for query in
        [dates.join(", "), open.join(", "), "29 February 2023, 31 December 9999, 1 January 0001".to_owned()]
    {
        for filter in [None, Some(filter.as_str()), Some("turn>9999")] {
            let request = SearchRequest {
                candidates: 1,
                k: 1,
                filter: filter.map(|filter| filter.parse().unwrap()),
                ..hybrid(&format!("parcel late on {query}"))
            };
            checked(&searcher, &request);
        }
    }
    let request = SearchRequest {
        candidates: 1,
        k: 1,
        ..hybrid("parcel late in 2021, 2020, 2019, 8 May, 7 May, 6 May")
    };
    assert_eq!(checked(&searcher, &request).hits[0].id, "talk#41");
}

#[test]
fn odd_contexts_give_finite_scores() {
    let (_dir, searcher) = conversation(&json!([
        {"speaker": "Ann", "text": "   "},
        {"speaker": "Ann", "text": "hotel room please"},
        {"speaker": "Bo", "text": ""},
        {"speaker": "Bo", "text": "the"},
        {"speaker": "Ann", "text": "parcel ".repeat(14_000)},
        {"speaker": "Ann", "text": "?!"},
    ]));
    let contexts: [Vec<String>; 9] = [
        vec![],
        vec![" ".to_owned(), "\n".to_owned()],
        vec!["hotel room".to_owned(); 500],
        vec!["the of and".to_owned()],
        vec!["?!".to_owned(), "\u{1F600}".to_owned()],
        vec!["refund ".repeat(14_000)],
        vec!["thanks".to_owned()],
        vec!["wo bleibt mein Geld".to_owned()],
        vec![String::new()],
    ];
    for context in contexts {
        for (query, decay) in [("thanks", 0.0), ("thanks", 1.0), ("thanks", 1e-30), ("?!", 0.5), ("the", 0.5)]
        {
            let request = SearchRequest { context: context.clone(), decay, ..hybrid(query) };
            let plain = SearchRequest { context: Vec::new(), ..request.clone() };
            let found = checked(&searcher, &request);
            if decay == 0.0 || context.iter().all(|turn| turn.trim().is_empty()) {
                // The weighted sum of the vectors can differ in the last digits.
                let expected = searcher.search(&plain).unwrap().hits;
                assert_eq!(found.hits.len(), expected.len());
                for (hit, expected) in found.hits.iter().zip(&expected) {
                    assert_eq!(hit.id, expected.id);
                    assert!((hit.score - expected.score).abs() < 1e-5);
                }
            }
            let rerank = Rerank { by: RerankMethod::Maxsim, ..Rerank::default() };
            checked(&searcher, &SearchRequest { rerank: Some(rerank), ..request.clone() });
            checked(&searcher, &SearchRequest { mode: Some(Mode::Dense), ..request.clone() });
            checked(&searcher, &SearchRequest { of: HitKind::Dialogues, ..request.clone() });
            checked(&searcher, &SearchRequest { k: 1000, offset: 98_000, ..request });
        }
    }
}

#[test]
fn a_context_without_a_query_is_rejected() {
    let (_dir, searcher) = some_index();
    let like = SearchRequest { like: Some("d02".to_owned()), ..SearchRequest::default() };
    searcher.search(&like).unwrap();
    let said = SearchRequest { context: vec!["hotel room".to_owned()], ..like };
    assert!(searcher.search(&said).unwrap_err().to_string().contains("a context needs a query"));
}

#[test]
fn a_turn_without_text_is_no_hit_even_if_it_has_a_vector() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("index");
    let mut dialogue: Dialogue = serde_json::from_value(
        json!({"id": "talk", "turns": [{"text": "parcel late"}, {"text": " "}, {"text": "refund card"}]}),
    )
    .unwrap();
    dialogue.check().unwrap();
    write(&root, |store| {
        store.put(&Prepared::new(&dialogue).unwrap()).unwrap();
    });
    // A transformer also has a vector for a text without tokens.
    let encoder = HashEncoder::default();
    let recipe = Recipe::of(&encoder, "hashed", "auto", &Tokens::default(), &Options::default());
    let mut writer = VectorWriter::open(&root, &recipe, Writing::Continue, "test").unwrap();
    for turn in &dialogue.turns {
        let text = if turn.text.trim().is_empty() { "parcel late" } else { turn.text.as_str() };
        writer.put(Kind::Utterances, utterance_key(&turn.text), &encoder.vector(text)).unwrap();
    }
    writer.finish().unwrap();
    build(&root);
    let searcher = searcher(&root);
    for mode in [Mode::Dense, Mode::Hybrid] {
        let mut found = ids(&searcher, &request(mode, HitKind::Utterances));
        found.sort_unstable();
        assert_eq!(found, ["talk#1", "talk#3"], "{mode:?}");
    }
}
