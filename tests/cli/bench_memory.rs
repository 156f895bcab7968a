//! Tests of `bench memory` on a small conversation in the layout of LoCoMo.

use serde_json::{Value, json};

use crate::{bench::value, support::Turnwise};

/// Conversation of Ines and Tom with three sessions. Four of its questions have evidence.
const CONVERSATION: &str = include_str!("../corpora/fixtures/locomo/kite.json");

fn group<'a>(result: &'a Value, category: Option<&str>) -> &'a Value {
    let groups = result["groups"].as_array().unwrap();
    groups.iter().find(|group| group["category"].as_str() == category).unwrap()
}

#[test]
fn a_conversation_is_searched_in_all_modes() {
    let t = Turnwise::new();
    t.write("data/kite.json", CONVERSATION);
    t.write("data/README.md", "# About this data");
    let model = t.model();
    let results = t.json(&format!("bench memory data --model {model}"));
    let names: Vec<_> = results.as_array().unwrap().iter().map(|r| r["ranker"].as_str().unwrap()).collect();
    assert_eq!(names, ["search", "search --mode bm25", "search --mode dense"]);
    assert_eq!(results[1]["queries"], json!(["kite/1", "kite/2", "kite/3"]));
    assert_eq!(results[1]["categories"], json!(["4 single-hop", "1 multi-hop", "2 temporal"]));
    let each = |n: usize| results[1]["values"][n]["each"].as_array().unwrap().clone();
    // The third question shares the word `kayak` with its evidence and with two other turns.
    assert!(each(0)[2] == 1.0 && each(3)[2].as_f64().unwrap() >= 1.0 / 3.0, "{results}");
    let all = group(&results[1], None);
    assert_eq!(all["queries"], 3);
    let r5 = &all["values"][0];
    let interval: Vec<f64> = r5["interval"].as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect();
    let mean = value(&results, 1, "R@5");
    assert_eq!(r5["value"].as_f64(), Some(mean));
    assert!(interval[0] <= mean && mean <= interval[1], "{r5}");
    assert_eq!(group(&results[1], Some("2 temporal"))["queries"], 1);
    let skipped: Vec<_> =
        results[0]["skipped"].as_array().unwrap().iter().map(|s| s["what"].clone()).collect();
    assert_eq!(
        skipped,
        [
            "questions without an answer (category 5)",
            "evidence ids that do not exist",
            "questions without evidence",
        ]
    );
    assert_eq!(std::fs::read_dir(t.path("benchmark-results")).unwrap().count(), 3);
}

#[test]
fn the_hits_are_those_of_ingest_and_search() {
    let t = Turnwise::new();
    t.write("kite.json", CONVERSATION);
    t.ok("ingest -q -i kite kite.json --no-encode");
    t.ok("bench memory kite.json --mode bm25 -r search --export runs");
    let mut files = std::fs::read_dir(t.path("runs")).unwrap().map(|e| e.unwrap().path());
    let run = files.find(|path| path.extension().is_some_and(|e| e == "run")).unwrap();
    let run = std::fs::read_to_string(run).unwrap();
    let ids = |query: &str| -> Vec<String> {
        let lines = run.lines().filter(|line| line.starts_with(&format!("{query} ")));
        lines.map(|line| line.split_whitespace().nth(2).unwrap().to_owned()).collect()
    };
    let question = "When did Tom buy a kayak?";
    let searched =
        t.run_args(&["search", "-i", "kite", "--mode", "bm25", "-k", "100", question, "--format", "json"]);
    let hits: Vec<String> = searched.json()["hits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hit| hit["id"].as_str().unwrap().to_owned())
        .collect();
    assert!(hits.len() >= 3 && hits.contains(&"kite-D2#1".to_owned()), "{hits:?}");
    assert_eq!(ids("kite/3")[..hits.len()], hits);
}

#[test]
fn a_saved_result_is_reused_and_options_give_another_row() {
    let t = Turnwise::new();
    t.write("kite.json", CONVERSATION);
    let line = "bench memory kite.json -r bm25 --mode bm25 --candidates 50";
    let first = t.json(line);
    assert_eq!(first[0]["ranker"], "search --mode bm25 --candidates 50");
    assert_eq!(first[1]["ranker"], "BM25");
    assert_eq!(t.json(line), first, "a new run would report other seconds");
    let out = t.ok(line);
    assert!(out.contains("kite.json: 3 questions, 10 turns in 3 dialogues"), "{out}");
    assert!(out.contains("1 multi-hop: 1 question ") && out.contains("95% confidence intervals"), "{out}");
    t.run_args(&["bench", "memory", "kite.json", "-r", "search --modus bm25"])
        .says(2, &["the ranker `search --modus bm25`: unexpected argument '--modus'"]);
    t.write("select.txt", crate::bench::select());
    t.run("bench sr select.txt -r search").says(2, &["the ranker `search` works only in `bench memory`"]);
}

#[test]
fn a_corpus_can_have_its_own_questions() {
    let t = Turnwise::new();
    t.write("a/kite.json", CONVERSATION);
    t.write("a/kilo.json", CONVERSATION.replace("kayak", "canoe"));
    t.write(
        "q.jsonl",
        "{\"query\": \"kayak\", \"evidence\": [\"kite-D2#1\"], \"within\": \"meta.thread=kite\"}\n\
         {\"query\": \"kayak\", \"evidence\": [\"kilo-D2#1\"], \"within\": \"meta.thread=kilo\"}\n",
    );
    let line = "bench memory --corpus a --questions q.jsonl --mode bm25 -r search";
    let results = t.json(line);
    assert_eq!(results[0]["values"][0]["each"], json!([1.0, 0.0]));
    assert_eq!(results[0]["groups"].as_array().unwrap().len(), 1);
    t.run("bench memory --corpus a").says(2, &["--questions"]);
    t.run("bench memory a --corpus a --questions q.jsonl").says(2, &["cannot be used with"]);
    t.run("bench memory").says(2, &["PATH"]);
    t.write("q.jsonl", "{\"query\": \"kayak\", \"evidence\": [\"kite-D2#99\"]}\n");
    t.run(line).says(3, &["no question has a turn as evidence", "1 evidence ids that do not exist"]);
    t.write("q.jsonl", "{\"query\": \"kayak\", \"evidence\": 7}\n");
    t.run(line).says(3, &["q.jsonl:1: expected an object with `query` and `evidence`"]);
}

#[test]
fn bad_conversations_are_reported_and_the_rest_is_searched() {
    let t = Turnwise::new();
    t.write("bad.json", CONVERSATION.replace("\"D3:2\"", "\"D3:9\"").replace("\"D2:2\"", "\"D1:2\""));
    let outcome = t.run("bench memory bad.json --mode bm25 -r search");
    // The reader accepts D3:9, but not the turn number after it, and no turn of another session.
    outcome.says(
        0,
        &[
            "bad.json:14 (bad-D2): turn 2 of `session_2` has the `dia_id` \"D1:2\", not D2:N",
            "bad.json:18 (bad-D3): turn number 3 follows 9; turn numbers must be ascending",
        ],
    );
    assert!(outcome.out.contains("2 questions, 4 turns in 1 dialogue"), "{}", outcome.out);
    t.write("cut.json", &CONVERSATION[..CONVERSATION.len() / 2]);
    t.run("bench memory cut.json --mode bm25").says(3, &["the file ends in the middle of a JSON value"]);
    t.write("chat.jsonl", "{\"id\": \"a\", \"turns\": [{\"text\": \"x\"}]}\n");
    t.run("bench memory chat.jsonl --mode bm25").says(3, &["1 files that are not in the format locomo"]);
}

#[test]
fn a_recipe_checks_the_expected_values() {
    let t = Turnwise::new();
    t.write("data/kite.json", CONVERSATION);
    let recipe = |expected: &str| {
        format!(
            "about = \"Kites\"\npaper = \"own\"\ntable = \"Kites\"\n[task]\nkind = \"memory\"\ndata = \"kite.json\"\n\
             [[rows]]\nranker = \"search --mode bm25\"\nexpected = {{ \"hit@5\" = {expected} }}\n"
        )
    };
    t.write("recipes/kites.toml", recipe("100.0"));
    let out = t.ok("bench reproduce --recipes recipes --data data");
    assert!(out.contains("holds") && out.contains("search --mode bm25"), "{out}");
    t.write("recipes/kites.toml", recipe("12.0"));
    t.run("bench reproduce --recipes recipes --data data")
        .says(1, &["1 of the expected numbers were missed"]);
}
