//! Tests of odd input for search in conversations.

use serde_json::{Value, json};

use crate::support::{SAMPLES, Turnwise};

#[test]
fn a_query_that_cannot_be_answered_does_not_stop_the_others() {
    let t = Turnwise::new();
    let long = "refund ".repeat(14_000);
    let dialogues = [
        json!({"id": "blank", "turns": [{"speaker": "A", "text": " "}, {"text": ""}]}),
        json!({"id": "will", "turns": [{"speaker": "Will", "text": "my parcel is late"}]}),
        json!({"id": "first", "time": "0001-01-01T00:00:00Z", "turns": [{"text": "parcel yesterday, last year"}]}),
        json!({"id": "last", "time": "9999-12-31T23:59:59Z", "turns": [{"text": "parcel tomorrow, next year"}]}),
        json!({"id": "may", "turns": [{"speaker": "May \"x\" \\", "text": "parcel on 29 February", "time": "2023-05-08"}]}),
        json!({"id": "long", "turns": [{"speaker": "N".repeat(5000), "text": long}]}),
    ];
    t.write("odd.jsonl", dialogues.map(|dialogue| format!("{dialogue}\n")).concat());
    t.ok("ingest -i x odd.jsonl");
    t.ok(&format!("model fit {SAMPLES} -o fitted --dim 16"));
    t.ok("encode -i x --model ./fitted");
    t.ok("index build -i x");
    let dates: Vec<String> = (1..=28).map(|day| format!("{day} May")).collect();
    let queries = [
        json!({"query": "parcel"}),
        json!({"like": "nobody"}),
        json!({"query": "?!", "mode": "bm25"}),
        json!({"query": "Will"}),
        json!({"query": format!("parcel on {}", dates.join(", ")), "filter": "turn>0", "candidates": 1, "k": 1}),
        json!({"query": "parcel in 9999 or on 1 January 0001"}),
        json!({"query": "N".repeat(5000)}),
        json!({"query": "parcel", "context": ["the", "?!", " ", long]}),
        json!({"query": "parcel", "context": ["a"], "filter": "id=nobody"}),
    ];
    t.write("q.jsonl", queries.map(|query| format!("{query}\n")).concat());
    let outcome = t.run("search -i x --queries q.jsonl");
    outcome.says(
        3,
        &["q.jsonl:2: indexes/x holds no dialogue `nobody`", "q.jsonl:3: `?!` contains no searchable words"],
    );
    let answered: Vec<Value> = outcome.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        answered.iter().map(|answer| answer["id"].as_str().unwrap()).collect::<Vec<_>>(),
        ["1", "4", "5", "6", "7", "8", "9"]
    );
}

#[test]
fn a_dialogue_of_thousands_of_turns_in_one_line_is_read_and_searched() {
    let t = Turnwise::new();
    let turns: Vec<Value> = (0..6_000)
        .map(|n| json!({"speaker": (if n % 2 == 0 { "Ann" } else { "Bo" }), "text": format!("message {n} about the parcel {}", n % 97)}))
        .collect();
    t.write("long.jsonl", format!("{}\n", json!({"id": "long", "turns": turns})));
    assert!(t.ok("ingest -i x long.jsonl").starts_with("1 record from 1 file (jsonl: 1)"));
    let found = t.ok("search -i x --mode bm25 --format json -k 1 4223");
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["hits"][0]["turn"]["text"], "message 4223 about the parcel 52");
}
