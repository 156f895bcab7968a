//! Checks that this version can read an index of format version 1. The fixture contains such an index and its search
//! results.

use std::{fs, fs::File, path::Path};

use serde_json::{Value, json};

use crate::support::{Turnwise, record};

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/index-v1.tar.zst");
/// Searches whose results are part of the fixture.
const SEARCHES: [&str; 6] = [
    "search -i x --mode bm25 refund",
    "search -i x --mode dense refund",
    "search -i x 快递 -k 3 --fusion weighted",
    "search -i x refund --of dialogues --filter role=agent --bm25-weight 0.3",
    "similar -i x kept-03#2 --fusion weighted",
    "similar -i x kept-05",
];

/// Creates an index. After the graphs are built, replaces one dialogue, adds one and deletes one.
fn make(t: &Turnwise) {
    let turns = [
        ("where is my parcel", "it leaves the depot tomorrow"),
        ("I want a refund for the broken lamp", "the refund takes three days"),
        ("the refund has not come yet", "let me look into your refund"),
        ("我的快递还没到", "快递明天送到"),
        ("the app crashes when I log in", "please install the new version"),
        ("can I change my address", "yes, before the parcel leaves the depot"),
        ("where is my parcel", "快递已经到了"),
    ];
    let dialogues: Vec<Value> =
        turns.iter().enumerate().map(|(n, (user, agent))| dialogue(n, user, agent)).collect();
    let lines = |dialogues: &[Value]| dialogues.iter().map(|d| format!("{d}\n")).collect::<String>();
    t.write("in.jsonl", lines(&dialogues));
    t.ok("ingest -i x in.jsonl --no-encode");
    t.ok("model fit in.jsonl -o fitted --dim 8");
    t.ok("encode -i x --model ./fitted");
    t.ok("index build -i x");
    let changed = [
        dialogue(1, "my lamp came in pieces", "a refund is on its way"),
        dialogue(7, "refund please", "done"),
    ];
    t.write("more.jsonl", lines(&changed));
    t.ok("ingest -i x more.jsonl --no-encode");
    t.ok("encode -i x");
    t.ok("delete -i x kept-00");
}

fn dialogue(n: usize, user: &str, agent: &str) -> Value {
    json!({"id": format!("kept-{n:02}"), "domains": ["support"], "turns": [
        {"role": "user", "text": user, "time": "2026-01-02T03:04:05Z"},
        {"role": "agent", "text": agent, "intent": "answer"},
    ]})
}

fn answers(t: &Turnwise) -> Value {
    let hits: Vec<Value> = SEARCHES.iter().map(|search| t.json(search)["hits"].clone()).collect();
    json!({"dialogues": t.dialogues("x"), "hits": hits})
}

/// Checks that two results are equal. Numbers may differ slightly, because processors round differently.
fn nearly_equal(current: &Value, stored: &Value) -> bool {
    match (current, stored) {
        (Value::Number(current), Value::Number(stored)) => {
            let (current, stored) = (current.as_f64().unwrap(), stored.as_f64().unwrap());
            (current - stored).abs() <= 1e-4 * stored.abs().max(1.0)
        }
        (Value::Array(current), Value::Array(stored)) => {
            current.len() == stored.len()
                && current.iter().zip(stored).all(|(current, stored)| nearly_equal(current, stored))
        }
        // Later versions may add fields.
        (Value::Object(current), Value::Object(stored)) => {
            let nearly_equal = |name: &str, stored: &Value| {
                current.get(name).is_some_and(|current| match name {
                    // Many of the few pairs have nearly the same cosine as the hit, so rounding changes the percentile.
                    "percentile" => current.is_number() == stored.is_number(),
                    _ => nearly_equal(current, stored),
                })
            };
            stored.iter().all(|(name, stored)| nearly_equal(name, stored))
        }
        _ => current == stored,
    }
}

#[test]
fn an_index_of_version_1_can_be_read_searched_and_extended() {
    let t = Turnwise::new();
    tar::Archive::new(zstd::Decoder::new(File::open(FIXTURE).unwrap()).unwrap()).unpack(t.path("")).unwrap();
    let stored: Value = serde_json::from_str(&t.read("answers.json")).unwrap();
    t.ok("verify -i x");
    // The fixture contains the model, but in a different folder.
    t.run(SEARCHES[1]).says(2, &[" does not exist", "`turnwise encode -i indexes/x --model FOLDER`"]);
    t.ok("encode -i x --model ./fitted");
    let current = answers(&t);
    for (n, search) in SEARCHES.iter().enumerate() {
        let (current, stored) = (&current["hits"][n], &stored["hits"][n]);
        assert!(
            !stored.as_array().unwrap().is_empty() && nearly_equal(current, stored),
            "{search}\ncurrent {current}\nstored {stored}"
        );
    }
    assert!(nearly_equal(&current["dialogues"], &stored["dialogues"]), "{}", current["dialogues"]);

    // The index accepts writes.
    t.write("new.jsonl", record("new", "a refund for everybody"));
    t.ok("ingest -i x new.jsonl --no-encode");
    t.ok("encode -i x");
    t.ok("index build -i x");
    t.ok("index compact -i x");
    t.ok("verify -i x --recall");
    assert!(t.ok("search -i x refund").contains("everybody"));
}

#[test]
#[ignore = "writes the fixture: once for each version of the format"]
fn write_the_fixture() {
    assert!(!Path::new(FIXTURE).exists(), "{FIXTURE} is frozen: another version has another name");
    let t = Turnwise::new();
    make(&t);
    let answers = answers(&t);
    t.write("answers.json", serde_json::to_string_pretty(&answers).unwrap());
    let out = zstd::Encoder::new(File::create(FIXTURE).unwrap(), 19).unwrap().auto_finish();
    let mut tar = tar::Builder::new(out);
    for name in ["indexes", "fitted"] {
        tar.append_dir_all(name, t.path(name)).unwrap();
    }
    tar.append_path_with_name(t.path("answers.json"), "answers.json").unwrap();
    tar.finish().unwrap();
    assert!(fs::metadata(FIXTURE).unwrap().len() < 200_000);
}
