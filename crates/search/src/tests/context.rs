//! Tests of the scores in a conversation: neighbors, speakers, the turns before a query, and reranking.

use super::*;

#[test]
fn context_changes_the_result_and_is_reported() {
    let (_dir, searcher) = some_index();
    let alone =
        SearchRequest { query: "please".to_owned(), mode: Some(Mode::Hybrid), ..SearchRequest::default() };
    let said =
        SearchRequest { context: vec!["hotel room".to_owned(), "hotel room".to_owned()], ..alone.clone() };
    let response = searcher.search(&said).unwrap();
    let effective = response.effective.clone().unwrap();
    assert_eq!(effective.words, ["please"]);
    let weights = |response: &Response| -> Vec<f32> {
        response.effective.as_ref().unwrap().meaning.iter().map(|part| part.weight).collect()
    };
    // A query of one word says little, so the turn before it counts more than the query.
    let [second, first, query] = weights(&response)[..] else { panic!() };
    assert!(second < query && query < first && (first + second + query - 1.0).abs() < 1e-6);
    let weighted = FusionOptions { method: Some(FusionMethod::Weighted), ..FusionOptions::default() };
    let weighted = searcher.search(&SearchRequest { fusion: Some(weighted), ..said.clone() }).unwrap();
    assert!((weights(&weighted)[2] - 4.0 / 7.0).abs() < 1e-6);
    assert!(searcher.search(&alone).unwrap().effective.is_none_or(|effective| effective.meaning.len() == 1));
    let hotels = |response: &Response| {
        response
            .hits
            .iter()
            .filter(|hit| hit.turn.text.contains("hotel") || hit.turn.text.contains("room"))
            .count()
    };
    let dense = SearchRequest { mode: Some(Mode::Dense), ..said.clone() };
    let dense_alone = SearchRequest { mode: Some(Mode::Dense), ..alone };
    assert!(hotels(&searcher.search(&dense).unwrap()) > hotels(&searcher.search(&dense_alone).unwrap()));
    // With decay 0, the context has no effect.
    let forgotten = SearchRequest { decay: 0.0, ..dense };
    assert_eq!(ids(&searcher, &forgotten), ids(&searcher, &dense_alone));
}

#[test]
fn reranking_by_token_vectors_uses_their_scores() {
    let (_dir, searcher) = some_index();
    let encoder = HashEncoder::default();
    let tokens = |texts: &[&str]| encoder.encode_tokens(texts, &TextOptions::default()).unwrap();
    let context = vec!["hotel late".to_owned()];
    for by in [RerankMethod::Maxsim, RerankMethod::MaxsimStatic, RerankMethod::Matching] {
        let request = SearchRequest {
            context: context.clone(),
            fusion: Some(Fusion::of(FusionMethod::Weighted).into()),
            rerank: Some(Rerank { by, top: 30, weight: 0.25 }),
            explain: true,
            ..request(Mode::Hybrid, HitKind::Utterances)
        };
        let before = SearchRequest { rerank: None, k: 30, ..request.clone() };
        let before: Vec<f32> = searcher.search(&before).unwrap().hits.iter().map(|hit| hit.score).collect();

        let hits = searcher.search(&request).unwrap().hits;
        assert!(hits.len() == 5 && hits.is_sorted_by(|a, b| (b.score, &b.id) < (a.score, &a.id)));
        let said = tokens(&["hotel late", "parcel late"]);
        for hit in hits {
            let found = &tokens(&[&hit.turn.text])[0];
            let score = match by {
                RerankMethod::Maxsim | RerankMethod::MaxsimStatic => maxsim(&said[1], found),
                _ => matching_guided(&[&said[0], &said[1]], found),
            };
            let place = hit.explanation.unwrap().before.unwrap();
            assert_eq!(before[place.rank - 1], place.score);
            assert!((hit.score - (place.score + 0.25 * score)).abs() < 1e-6);
        }
    }
    let wrong = Rerank { weight: -1.0, ..Rerank::default() };
    let wrong = SearchRequest { rerank: Some(wrong), ..request(Mode::Hybrid, HitKind::Utterances) };
    assert!(searcher.search(&wrong).unwrap_err().to_string().contains("non-negative"));
    let whole = SearchRequest {
        rerank: Some(Rerank { by: RerankMethod::Maxsim, top: 5, weight: 0.5 }),
        ..request(Mode::Dense, HitKind::Dialogues)
    };
    assert!(searcher.search(&whole).unwrap_err().to_string().contains("for utterances"));
}

#[test]
fn a_turn_is_found_by_the_words_and_the_speakers_around_it() {
    let (_dir, searcher) = conversation(&json!([
        {"speaker": "Ann", "text": "hotel room please"},
        {"speaker": "Bo", "text": "which tournament"},
        {"speaker": "Bo", "text": "   "},
        {"speaker": "Ann", "text": "last saturday and we won"},
        {"speaker": "Bo", "text": "thanks"},
        {"speaker": "Bo", "text": "refund card"},
    ]));
    let search = |query: &str, method| {
        let request = SearchRequest {
            query: query.to_owned(),
            mode: Some(Mode::Hybrid),
            fusion: Some(Fusion { dense: 0.0, ..Fusion::of(method) }.into()),
            explain: true,
            ..SearchRequest::default()
        };
        searcher.search(&request).unwrap()
    };
    let score = |found: &Response, id: &str| found.hits.iter().find(|hit| hit.id == id).map(|hit| hit.score);
    // The blank turn is not a neighbor, so the answer directly follows the question.
    let found = search("tournament", FusionMethod::Context);
    let asked = score(&found, "talk#2").unwrap();
    let answered = score(&found, "talk#4").unwrap();
    assert!(answered > 0.7 * asked && answered < asked, "{answered} {asked}");
    let why = found.hits.iter().find(|hit| hit.id == "talk#4").unwrap().explanation.as_ref().unwrap();
    let terms = &why.context.as_ref().unwrap().terms;
    assert_eq!((terms[0].term.as_str(), terms[0].turn), ("tournament", Some(turnwise_core::TurnNo(2))));
    // The name of the answering speaker turns the order around, and is not a word of the dense query.
    let found = search("Ann tournament", FusionMethod::Context);
    assert_eq!(found.hits[0].id, "talk#4");
    let fusion = found.hits[0].explanation.as_ref().unwrap().fusion.as_ref().unwrap();
    assert_eq!(fusion.from_speaker, Some(0.4));
    assert_eq!(found.effective.unwrap().meaning[0].text, "tournament");
    // Without context, only the question matches.
    let found = search("tournament", FusionMethod::Weighted);
    assert_eq!((found.hits[0].id.as_str(), score(&found, "talk#4").unwrap_or_default()), ("talk#2", 0.0));
}

#[test]
fn reranking_uses_the_tokens_of_neighbors() {
    let (_dir, searcher) = conversation(&json!([
        {"speaker": "Ann", "text": "refund card thanks"},
        {"speaker": "Bo", "text": "hotel parcel"},
        {"speaker": "Ann", "text": "late hotel"},
    ]));
    let request = SearchRequest {
        rerank: Some(Rerank { by: RerankMethod::Maxsim, top: 30, weight: 1.0 }),
        explain: true,
        ..request(Mode::Hybrid, HitKind::Utterances)
    };
    let gain = |id: &str, method| {
        let request = SearchRequest { fusion: Some(Fusion::of(method).into()), ..request.clone() };
        let hits = searcher.search(&request).unwrap().hits;
        let hit = hits.into_iter().find(|hit| hit.id == id).unwrap();
        hit.score - hit.explanation.unwrap().before.unwrap().score
    };
    // "late" is in the next turn, whose words count 0.6 times.
    assert!((gain("talk#2", FusionMethod::Context) - 0.8).abs() < 1e-5);
    let alone = gain("talk#2", FusionMethod::Weighted);
    assert!((0.4..0.7).contains(&alone), "{alone}");
}

#[test]
fn a_turn_is_found_after_turns_like_those_before_the_query() {
    let (_dir, searcher) = conversation(&json!([
        {"speaker": "Ann", "text": "hotel room please"},
        {"speaker": "Bo", "text": "thanks"},
        {"speaker": "Ann", "text": "refund card late"},
        {"speaker": "Bo", "text": "thanks"},
        {"speaker": "Ann", "text": "parcel parcel parcel"},
    ]));
    let search = |context: &str, filter: Option<&str>| {
        let request = SearchRequest {
            query: "thanks".to_owned(),
            context: vec![context.to_owned()],
            candidates: 1,
            k: 1,
            filter: filter.map(|filter| filter.parse().unwrap()),
            explain: true,
            ..SearchRequest::default()
        };
        searcher.search(&request).unwrap().hits.remove(0)
    };
    for (context, id) in [("hotel room", "talk#2"), ("card refund", "talk#4")] {
        let hit = search(context, None);
        assert_eq!(hit.id, id);
        let why = hit.explanation.unwrap();
        let earlier = why.context.unwrap().earlier.unwrap();
        assert!(earlier.cosine > 0.5 && earlier.bm25 > 0.0, "{earlier:?}");
        assert!(why.fusion.unwrap().from_earlier.unwrap() > 0.5);
    }
    // The turn that follows must match the filter, too.
    assert_eq!(search("card refund", Some("speaker=Ann")).turn.speaker, "Ann");
}

/// Creates an index of many turns of Bo about parcels, and one turn of Ann of a different day.
pub(super) fn crowd() -> (tempfile::TempDir, Searcher) {
    let said =
        |n: u32| json!({"speaker": "Bo", "text": format!("parcel late room{n}"), "time": "2023-05-09"});
    let mut turns: Vec<_> = (0..40).map(said).collect();
    turns.push(json!({"speaker": "Ann", "text": "parcel late hotel", "time": "2023-05-08T09:00:00Z"}));
    conversation(&json!(turns))
}

#[test]
fn a_named_speaker_and_a_named_day_are_found_among_many_turns() {
    let (_dir, searcher) = crowd();
    let search = |query: &str, filter: Option<&str>| {
        let request = SearchRequest {
            query: query.to_owned(),
            mode: Some(Mode::Hybrid),
            candidates: 3,
            k: 3,
            filter: filter.map(|filter| filter.parse().unwrap()),
            explain: true,
            ..SearchRequest::default()
        };
        searcher.search(&request).unwrap().hits
    };
    let first = |query| search(query, None).remove(0);
    assert!(search("parcel late", None).iter().all(|hit| hit.id != "talk#41"));
    assert_eq!(first("late parcel from Ann").id, "talk#41");
    for query in ["late parcel on 8 May 2023", "late parcel of May 8"] {
        let hit = first(query);
        assert_eq!(hit.id, "talk#41", "{query}");
        assert_eq!(hit.explanation.unwrap().fusion.unwrap().from_date, Some(0.2));
    }
    // The filter of the request applies to these candidates, too.
    assert!(search("late parcel from Ann", Some("speaker=Bo")).iter().all(|hit| hit.turn.speaker == "Bo"));
    assert!(search("late parcel on 8 May 2023", Some("time>2023-05-09")).is_empty());
}

#[test]
fn a_turn_that_mentions_a_named_day_is_found_among_many_turns() {
    let said =
        |n: u32| json!({"speaker": "Bo", "text": format!("parcel late room{n}"), "time": "2023-06-20"});
    let mut turns: Vec<_> = (0..40).map(said).collect();
    turns.push(json!({"speaker": "Ann", "text": "parcel late yesterday", "time": "2023-05-08"}));
    let (_dir, searcher) = conversation(&json!(turns));
    let request = SearchRequest {
        query: "late parcel on 7 May 2023".to_owned(),
        mode: Some(Mode::Hybrid),
        candidates: 3,
        k: 1,
        ..SearchRequest::default()
    };
    assert_eq!(ids(&searcher, &request), ["talk#41"]);
}

#[test]
fn a_turn_that_mentions_a_named_date_gets_its_score() {
    let (_dir, searcher) = conversation(&json!([
        {"speaker": "Ann", "text": "hotel room last tuesday", "time": "2023-05-08T23:30:00Z"},
        {"speaker": "Bo", "text": "hotel room last tuesday"},
        {"speaker": "Bo", "text": "hotel room on tuesday", "time": "2023-05-20"},
    ]));
    use DateMatch::{Mentioned, Said};
    let dates = |query: &str| -> Vec<Option<DateMatch>> {
        let request = SearchRequest { query: query.to_owned(), explain: true, ..SearchRequest::default() };
        let mut hits = searcher.search(&request).unwrap().hits;
        hits.sort_by(|a, b| a.id.cmp(&b.id));
        hits.into_iter().map(|hit| hit.explanation.unwrap().context.unwrap().date).collect()
    };
    assert_eq!(dates("which hotel on 2 May 2023"), [Some(Mentioned), None, None]);
    assert_eq!(dates("which hotel on 8 May"), [Some(Said), None, None]);
    assert_eq!(dates("which hotel on 16 May"), [None, None, Some(Mentioned)]);
    assert_eq!(dates("which hotel in May"), [Some(Said), None, Some(Said)]);
    assert_eq!(dates("which hotel in May 2022"), [None; 3]);
    assert_eq!(dates("which hotel may it be"), [None; 3]);
}

#[test]
fn whole_dialogues_are_found_by_speaker_and_date() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("index");
    write(&root, |store| {
        for n in 0..30 {
            let (speaker, day) = [("Bo", "2023-05-09"), ("Ann", "2023-05-08")][usize::from(n == 7)];
            let turns = json!([{"speaker": speaker, "text": "parcel late", "time": day}]);
            let mut dialogue: Dialogue =
                serde_json::from_value(json!({"id": format!("d{n:02}"), "turns": turns})).unwrap();
            dialogue.check().unwrap();
            store.put(&Prepared::new(&dialogue).unwrap()).unwrap();
        }
    });
    encode(&root);
    build(&root);
    let searcher = searcher(&root);
    let search = |query: &str, k: usize| {
        let of = HitKind::Dialogues;
        let mode = Some(Mode::Hybrid);
        let query = query.to_owned();
        let request =
            SearchRequest { query, of, mode, k, candidates: k, explain: true, ..SearchRequest::default() };
        searcher.search(&request).unwrap()
    };
    for k in [1, 40] {
        assert_ne!(search("late parcel", k).hits[0].id, "d07");
        for (query, speaker, date) in [
            ("late parcel from Ann", Some(0.2), None),
            ("late parcel on 8 May 2023", None, Some(0.2)),
            ("late parcel, Ann, 8 May", Some(0.2), Some(0.2)),
        ] {
            let found = search(query, k);
            assert_eq!(found.hits[0].id, "d07", "{query}");
            let fusion = found.hits[0].explanation.as_ref().unwrap().fusion.clone().unwrap();
            assert_eq!((fusion.from_speaker, fusion.from_date), (speaker, date), "{query}");
            let effective = found.effective.unwrap();
            assert_eq!(
                (effective.speakers.len(), effective.dates.len()),
                (speaker.iter().count(), date.iter().count())
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn context_scores_agree_with_the_naive_computation(seeds in proptest::collection::vec(any::<u32>(), 2..20), with_context: bool) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("index");
        index(&root, &seeds, true);
        let searcher = searcher(&root);
        let said = if with_context { vec!["hotel room".to_owned(), "refund".to_owned()] } else { Vec::new() };
        let all = SearchRequest { k: 400, candidates: 500, explain: true, context: said.clone(), ..request(Mode::Hybrid, HitKind::Utterances) };
        let words = SearchRequest { mode: Some(Mode::Bm25), context: Vec::new(), ..all.clone() };
        let before = SearchRequest { query: said.join(" "), ..words.clone() };
        let before: std::collections::HashMap<String, f32> = match with_context {
            true => searcher.search(&before).unwrap().hits.into_iter().map(|hit| (hit.id, hit.score)).collect(),
            false => Default::default(),
        };
        let parts: std::collections::HashMap<String, Vec<(String, f32)>> = searcher.search(&words).unwrap().hits.into_iter().map(|hit| {
            let terms = hit.explanation.unwrap().terms;
            let part = |t: &turnwise_index::lexical::TermScore| t.frequency as f32 / (t.frequency as f32 + 1.2);
            let sum: f32 = terms.iter().map(part).sum();
            let parts = terms.iter().map(|t| (t.term.clone(), hit.score * part(t) / sum)).collect();
            (hit.id, parts)
        }).collect();
        let encoder = HashEncoder::default();
        let vector = |text: &str| {
            let mut vectors = encoder.encode(&[text], &TextOptions::default()).unwrap().vectors;
            vectors.normalize();
            vectors.row(0).to_vec()
        };
        let found = searcher.search(&all).unwrap();
        // The words of the query can be names of speakers.
        let dense = found.effective.map_or("parcel late".to_owned(), |effective| effective.meaning.last().unwrap().text.clone());
        let query = vector(&dense);
        let snapshot = Snapshot::open(&root).unwrap();
        // For each hit, the expected score without the words, that of the words, and the share of the words.
        let mut expected = Vec::new();
        for hit in found.hits {
            let (dialogue, _) = snapshot.find(&hit.dialogue).unwrap();
            let at = dialogue.turns.iter().position(|t| t.number == hit.turn.number).unwrap() as isize;
            let mut sum = vec![0.0f32; query.len()];
            let mut best: std::collections::HashMap<String, (f32, f32)> = Default::default();
            for (distance, dense, lexical) in [(-3, 0.0, 0.4), (-2, 0.25, 0.6), (-1, 0.5, 0.8), (0, 1.0, 1.0), (1, 0.4, 0.6), (2, 0.2, 0.4), (3, 0.0, 0.2)] {
                let Some(turn) = usize::try_from(at + distance).ok().and_then(|n| dialogue.turns.get(n)) else { continue };
                sum.iter_mut().zip(vector(&turn.text)).for_each(|(s, v)| *s += dense * v);
                for (term, score) in parts.get(&format!("{}#{}", dialogue.id, turn.number)).into_iter().flatten() {
                    let known = best.entry(term.clone()).or_default();
                    if lexical * score > known.0 || lexical * score == known.0 && distance == 0 {
                        *known = (lexical * score, lexical);
                    }
                }
            }
            let named = |turn: &turnwise_corpus::Turn| ["parcel", "late"].contains(&turn.speaker.as_str());
            let in_dialogue = dialogue.turns.iter().any(named);
            // In the dialogues of a named speaker, the name is no word.
            let is_word = |term: &str| !in_dialogue || dense.split(' ').any(|word| word == term);
            let counted: Vec<&str> = ["parcel", "late"].into_iter().filter(|term| is_word(term)).collect();
            let own = || best.iter().filter(|(term, _)| is_word(term)).map(|(_, best)| best);
            let words: f32 = own().map(|(score, _)| score).sum();
            let covered: f32 = own().map(|(_, weight)| weight).sum();
            // The turns before the query: one with two content words, and one with one.
            let mut conversation = vec![0.0f32; query.len()];
            let shares = [0.5 * 2.0 / 5.0, 1.0 / 4.0];
            said.iter().zip(shares).for_each(|(text, share)| {
                conversation.iter_mut().zip(vector(text)).for_each(|(s, v)| *s += share * v);
            });
            let (mut turns, mut matched) = (vec![0.0f32; query.len()], 0.0f32);
            for n in 1..=5 {
                let Some(turn) = usize::try_from(at - n).ok().map(|n| &dialogue.turns[n]) else { break };
                let weight = 0.5f32.powi(n as i32 - 1);
                turns.iter_mut().zip(vector(&turn.text)).for_each(|(s, v)| *s += weight * v);
                matched = matched.max(weight * before.get(&format!("{}#{}", dialogue.id, turn.number)).copied().unwrap_or_default());
            }
            let content = dense.split(' ').count() as f32;
            let earlier = match with_context {
                true => 0.42 / (content / (content + 3.0)) * (turnwise_core::vectors::cosine(&conversation, &turns) + 0.5 * matched / (matched + 60.0)),
                false => 0.0,
            };
            let speaker = 0.2 * (f32::from(u8::from(named(&hit.turn))) + f32::from(u8::from(in_dialogue)));
            let half = hit.explanation.as_ref().unwrap().context.as_ref().unwrap().half_score;
            match (with_context, content as u32) {
                (true, _) => prop_assert_eq!(half, 20.0),
                (false, 1) => prop_assert_eq!(half, 8.0),
                // If both words are names, neither is left out, and no word counts.
                _ => prop_assert!(half == 16.0 || half == 20.0),
            }
            let others = turnwise_core::vectors::cosine(&query, &sum) + speaker + earlier;
            expected.push((hit, others, 0.5 * words / (words + half), (counted.len() == 2 && !with_context).then_some(covered / 2.0)));
        }
        for (hit, others, words, share) in &expected {
            let covering = expected.iter().filter(|(other, _, _, covered)| {
                let covers = covered.zip(*share).is_some_and(|(covered, share)| covered >= share - 1e-4);
                other.explanation.as_ref().unwrap().bm25.is_some() && covers
            });
            let dialogues: std::collections::HashSet<&str> = covering.map(|(other, ..)| other.dialogue.as_str()).collect();
            let factor = share.map_or(1.0, |share| (0.6 + 0.4 * share) * (1.0 + 2.0 * share.powi(4) / dialogues.len().max(1) as f32));
            let expected = others + words * factor;
            prop_assert!((expected - hit.score).abs() < 1e-3, "{}: {expected} {:?}", hit.id, hit.explanation);
        }
    }
}
