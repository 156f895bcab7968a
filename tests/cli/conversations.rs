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
