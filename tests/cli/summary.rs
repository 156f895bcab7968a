//! Tests of the summary of an ingest: every record is counted, and a repeated ingest changes nothing.

use serde_json::{Value, json};

use crate::support::{SAMPLES, Turnwise, files, record};

#[track_caller]
fn assert_adds_up(summary: &Value) -> &Value {
    let tally = &summary["tally"];
    let count = |name: &str| tally[name].as_u64().unwrap();
    let parts = ["added", "replaced", "unchanged", "repeated", "too_short", "duplicates", "rejected"];
    assert_eq!(count("records"), parts.iter().map(|name| count(name)).sum::<u64>(), "{tally}");
    tally
}

fn messy_corpus() -> String {
    let turn = |speaker: &str, text: &str| json!({"speaker": speaker, "role": if speaker == "Ann" {"user"} else {"agent"}, "text": text});
    let dialogue = |id: &str, turns: &[Value]| format!("{}\n", json!({"id": id, "turns": turns}));
    [
        dialogue("short", &[turn("Ann", "hello")]),
        dialogue("merged", &[turn("Ann", "hello"), turn("Ann", "is anybody there?"), turn("Bob", "Yes.")]),
        dialogue("once", &[turn("Ann", "one"), turn("Bob", "two")]),
        dialogue("again", &[turn("Ann", "one"), turn("Bob", "two")]),
        dialogue(
            "private",
            &[turn("Ann", "I am ann@example.com, +44 20 7946 0958"), turn("Bob", "4111 1111 1111 1111")],
        ),
        dialogue("wide", &[turn("Ann", "ＡＢＣ１２"), turn("Bob", "ok")]),
        dialogue("bad", &[]),
        dialogue("once", &[turn("Ann", "one"), turn("Bob", "two")]),
    ]
    .concat()
}

#[test]
fn the_counts_add_up_without_cleaning() {
    let t = Turnwise::new();
    t.write("in.jsonl", messy_corpus());
    let summary = t.json("ingest -i x in.jsonl");
    let tally = assert_adds_up(&summary);
    assert_eq!((&tally["records"], &tally["added"]), (&8.into(), &6.into()));
    assert_eq!((&tally["repeated"], &tally["rejected"]), (&1.into(), &1.into()));
    assert_eq!(summary["totals"], json!({"dialogues": 6, "turns": 12}));
    assert_eq!(summary["files"]["formats"], json!([["jsonl", 1]]));
}

#[test]
fn the_counts_add_up_with_each_cleaning_step() {
    let cases = [
        ("--merge-turns", "merged_turns", 1, 6),
        ("--normalize-text nfkc", "normalized_turns", 1, 6),
        ("--redact", "emails", 1, 6),
        ("--redact", "phones", 1, 6),
        ("--redact", "cards", 1, 6),
        ("--min-turns 2", "emails", 0, 5),
        ("--dedupe", "emails", 0, 5),
    ];
    for (flags, cleaned, count, added) in cases {
        let t = Turnwise::new();
        t.write("in.jsonl", messy_corpus());
        let summary = t.json(&format!("ingest -i x in.jsonl {flags}"));
        let tally = assert_adds_up(&summary);
        assert_eq!(
            (&tally["cleaned"][cleaned], &tally["added"]),
            (&count.into(), &added.into()),
            "{flags}: {tally}"
        );
    }
}

#[test]
fn the_counts_add_up_with_all_cleaning_steps() {
    let t = Turnwise::new();
    t.write("in.jsonl", messy_corpus());
    let flags = "--merge-turns --min-turns 2 --dedupe --redact --normalize-text nfkc";
    let outcome = t.run(&format!("ingest -i x in.jsonl {flags}"));
    outcome.says(0, &["rejected: in.jsonl:7 (bad): the dialogue has no turns"]);
    for line in [
        "8 records from 1 file (jsonl: 1) in ",
        "           4  added\n",
        "           1  repeated in the input, kept once\n",
        "           1  skipped: too few turns\n",
        "           1  skipped: duplicates of another dialogue\n",
        "           1  rejected\n",
        "           1  cleaning: turns normalized\n",
        "           1  cleaning: turns merged into the previous turn\n",
        "           1  cleaning: e-mail addresses redacted\n",
        "           1  cleaning: phone numbers redacted\n",
        "           1  cleaning: card numbers redacted\n",
        "indexes/x now holds 4 dialogues with 8 turns\n",
    ] {
        assert!(outcome.out.contains(line), "{line:?} is not in {}", outcome.out);
    }
    let all = t.dialogues("x");
    let text = |n: usize, turn: usize| all[n]["turns"][turn]["text"].as_str().unwrap();
    assert_eq!(text(0, 0), "hello is anybody there?");
    assert!(!text(2, 0).contains("example.com") && !text(2, 1).contains("4111"), "{all:?}");
    assert_eq!(text(3, 0), "ABC12");
    // Duplicates of dialogues in the index are found, too.
    t.write("more.jsonl", record("new", "x") + &record("newer", "x"));
    let summary = t.json("ingest -i x more.jsonl --dedupe");
    assert_eq!(assert_adds_up(&summary)["duplicates"], 1);
    t.write("third.jsonl", record("newest", "x"));
    assert_eq!(assert_adds_up(&t.json("ingest -i x third.jsonl --dedupe"))["duplicates"], 1);
}

#[test]
fn the_same_ingest_again_changes_no_byte() {
    let t = Turnwise::new();
    let command = format!("ingest -i x {SAMPLES}");
    assert_eq!(assert_adds_up(&t.json(&command))["added"], 280);
    let state = || {
        (
            files(&t.path("indexes/x/log")),
            t.read("indexes/x/manifest.json"),
            files(&t.path("indexes/x/tables")),
        )
    };
    let before = state();
    let summary = t.json(&command);
    assert_eq!(
        (&assert_adds_up(&summary)["unchanged"], &summary["tally"]["turns"]),
        (&280.into(), &0.into())
    );
    assert!(
        state() == before,
        "an ingest that brought nothing new changed the log, the manifest or the tables"
    );
}

#[test]
fn new_content_under_the_same_id_replaces_the_old() {
    let t = Turnwise::new();
    t.write("in.jsonl", record("a", "old") + &record("b", "stays"));
    t.ok("ingest -i x in.jsonl");
    t.write("in.jsonl", record("a", "new") + &record("b", "stays"));
    let summary = t.json("ingest -i x in.jsonl");
    let tally = assert_adds_up(&summary);
    assert_eq!((&tally["replaced"], &tally["unchanged"]), (&1.into(), &1.into()));
    assert_eq!(summary["totals"]["dialogues"], 2);
    assert_eq!(t.dialogues("x")[0]["turns"][0]["text"], "new");
    let found = t.json("search -i x old");
    assert_eq!(found["hits"], json!([]));
}

#[test]
fn prefix_source_and_language_are_stored_in_the_records() {
    let t = Turnwise::new();
    t.write("in.jsonl", record("a", "hello"));
    t.ok("ingest -i x in.jsonl --id-prefix shop- --source shop --language pt-BR");
    let all = t.dialogues("x");
    assert_eq!(
        (&all[0]["id"], &all[0]["source"], &all[0]["language"]),
        (&"shop-a".into(), &"shop".into(), &"pt-BR".into())
    );
}
