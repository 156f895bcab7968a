//! Tests of `bench respond`, which compares suggested replies with the true ones.

use serde_json::{Value, json};

use crate::{
    bench::value,
    support::{SAMPLES, Turnwise, lines},
    train::with_encoder,
};

/// Writes a sample whose context is one turn.
fn sample(id: &str, question: &str, reply: &str) -> String {
    let context = json!([{"role": "user", "text": question}]);
    json!({"id": id, "context": context, "candidates": ["no", reply], "answer": 1}).to_string() + "\n"
}

fn dialogue(id: &str, question: &str, reply: &str) -> String {
    let turns = json!([{"role": "user", "text": question}, {"role": "agent", "text": reply}]);
    json!({"id": id, "turns": turns}).to_string() + "\n"
}

#[test]
fn suggestions_are_compared_with_the_true_replies() {
    let t = Turnwise::new();
    let chats = [
        dialogue("a", "where is my parcel", "It is on its way."),
        dialogue("b", "where is my parcel now", "it is on its way"),
        dialogue("c", "cancel the order", "Done, it was cancelled."),
        dialogue("d", "the invoice number", "I need your name"),
    ];
    t.write("chats.jsonl", chats.concat());
    t.ok("ingest -i chats chats.jsonl --no-encode");
    // The index contains the first and the third dialogue, so these are answered by the others only.
    let samples = [
        sample("a@1", "where is my parcel", "It is on its way."),
        sample("x@1", "cancel the order", "It was done"),
        sample("d@1", "invoice number", "I need your name"),
    ];
    t.write("samples.jsonl", samples.concat());
    let results = t.json("bench respond samples.jsonl -i chats -k 2 -o said.jsonl");
    assert_eq!(results[0]["ranker"], "search");
    assert_eq!(results[0]["queries"], json!(["a@1", "x@1", "d@1"]));
    let each = |measure: &str| {
        let values = results[0]["values"].as_array().unwrap();
        values.iter().find(|value| value["measure"] == measure).unwrap()["each"].clone()
    };
    assert_eq!(each("same words@1"), json!([1.0, 0.0, 0.0]));
    // Three of three and three of four words are shared.
    assert_eq!(each("word F1@1"), json!([1.0, 6.0 / 7.0, 0.0]));
    assert_eq!(value(&results, 0, "word F1@2"), (1.0 + 6.0 / 7.0) / 3.0);
    let said = lines(&t.read("said.jsonl"));
    assert_eq!(said.len(), 3);
    assert_eq!(said[0]["suggestions"], json!(["it is on its way"]));
    assert_eq!((&said[0]["context"], &said[0]["ranker"]), (&json!(["where is my parcel"]), &json!("search")));
    assert_eq!(said[2]["suggestions"], json!([]));
    // Without vectors, there are no cosines.
    let printed = t.ok("bench respond samples.jsonl -i chats -k 1");
    assert!(printed.contains("random baseline") && !printed.contains("cosine"), "{printed}");
    assert!(
        printed.contains("samples.jsonl, index indexes/chats: 3 contexts, 1 suggestion each"),
        "{printed}"
    );
    // All replies of this role are questions, which answer nothing.
    let users = t.json("bench respond samples.jsonl -i chats --role user");
    assert_eq!(value(&users, 0, "word F1@5"), 0.0);
}

#[test]
fn selectors_are_compared_with_the_search() {
    let t = with_encoder();
    t.ok(&format!(
        "train selector --corpus {SAMPLES} -m ./small --steps 2 --batch 4 --evaluate-every 0 --held-out 0 -o replies"
    ));
    t.ok(&format!("ingest -i chats {SAMPLES} --no-encode"));
    t.ok("encode -i chats --model ./small");
    t.ok(&format!("bench build response {SAMPLES} --role agent --samples 60 -o samples.jsonl"));
    let line = "bench respond samples.jsonl -i chats --role agent --selector ./replies -o said.jsonl";
    let results = t.json(line);
    let names: Vec<&str> =
        results.as_array().unwrap().iter().map(|result| result["ranker"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 2);
    assert!(names[0] == "search" && names[1].starts_with("selector "), "{names:?}");
    for (n, result) in results.as_array().unwrap().iter().enumerate() {
        for measure in ["same words", "word F1", "cosine"] {
            let [first, best] = [1, 5].map(|k| value(&results, n, &format!("{measure}@{k}")));
            assert!((0.0..=best).contains(&first) && best <= 1.0, "{measure}: {first} {best}");
        }
        // The words of real replies are more similar than those of random ones.
        let f1 = &result["values"][3];
        assert!(f1["value"].as_f64() > f1["floor"].as_f64(), "{f1}");
    }
    // The reply of the sample itself is never suggested, only one with the same words.
    let said = lines(&t.read("said.jsonl"));
    assert_eq!(said.len(), 120);
    assert_eq!(said[0]["id"], said[60]["id"]);
    assert_eq!(said[60]["ranker"], names[1]);
    let suggested = |said: &Value| said["suggestions"].as_array().unwrap().len();
    assert!(said.iter().all(|said| suggested(said) == 5));
    assert_ne!(results[0]["values"], results[1]["values"]);
    // The same run gives the same values, and the results can be compared.
    assert_eq!(t.json(line)[1]["values"], results[1]["values"]);
    let mut files: Vec<String> = std::fs::read_dir(t.path("benchmark-results"))
        .unwrap()
        .map(|entry| format!("benchmark-results/{}", entry.unwrap().file_name().to_str().unwrap()))
        .collect();
    files.sort();
    assert_eq!(files.len(), 2, "{files:?}");
    let compared = t.json(&format!("bench compare {} {}", files[0], files[1]));
    assert_eq!(compared["differences"].as_array().unwrap().len(), 6);
    let report = t.ok("bench report -o report.md") + &t.read("report.md");
    assert!(report.contains("## respond: samples.jsonl") && report.contains("cosine@5"), "{report}");
    // The lexical search needs no vectors, but the comparison uses them.
    let lexical = t.json("bench respond samples.jsonl -i chats --mode bm25 -k 1");
    assert_eq!(lexical[0]["ranker"], "search --mode bm25");
    assert!(value(&lexical, 0, "cosine@1") > 0.0);
}

#[test]
fn wrong_arguments_are_reported() {
    let t = Turnwise::new();
    t.write("chats.jsonl", dialogue("a", "where is my parcel", "It is on its way."));
    t.ok("ingest -i chats chats.jsonl --no-encode");
    t.write("samples.jsonl", sample("x@1", "cancel the order", "It was done"));
    t.write("blank.jsonl", sample("x@1", " ", "It was done") + &sample("y@1", "hello", "Hi"));
    let skipped = t.json("bench respond blank.jsonl -i chats");
    assert_eq!(skipped[0]["queries"], json!(["y@1"]));
    assert_eq!(skipped[0]["skipped"][0]["first"], "x@1");
    t.write("only-blank.jsonl", sample("x@1", " ", "It was done"));
    for (line, code, texts) in [
        ("only-blank.jsonl -i chats", 3, vec!["only-blank.jsonl: no context has text"]),
        (
            "chats.jsonl -i chats",
            3,
            vec!["chats.jsonl:1: not a sample of response selection", "bench build response"],
        ),
        ("samples.jsonl -i nothere", 2, vec!["nothere"]),
        (
            "samples.jsonl -i chats --selector runs/nothere",
            2,
            vec!["runs/nothere", "turnwise train selector"],
        ),
        ("samples.jsonl -i chats --mode dense", 2, vec!["turnwise encode"]),
        ("samples.jsonl -i chats --decay 2", 2, vec!["the context decay must be a number from 0 to 1"]),
        ("samples.jsonl -i chats -k 0", 2, vec!["0"]),
        ("samples.jsonl -i chats -k 5000", 2, vec!["k must be from 1 to 1000"]),
        ("samples.jsonl -i chats -o .", 6, vec!["cannot create ."]),
    ] {
        t.run(&format!("bench respond {line}")).says(code, &texts);
    }
    assert!(!t.path("said.jsonl").exists());
}
