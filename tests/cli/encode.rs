//! Tests of `turnwise encode`, and of what other commands print about vectors.

use std::fs;

use turnwise_index::vectors::VectorReader;

use crate::support::{Turnwise, files, record, records};

#[test]
fn an_index_gets_its_vectors_and_keeps_them_up_to_date() {
    let t = Turnwise::new();
    let model = t.model();
    t.write("in.jsonl", records(50));
    t.ok("ingest -i x in.jsonl");
    let first = t.json(&format!("encode -i x --model {model}"));
    // The second turn is the same in all dialogues, so it is encoded once.
    assert_eq!(
        (&first["seen"], &first["utterances"], &first["dialogues"]),
        (&50.into(), &51.into(), &50.into())
    );
    let again = t.json("encode -i x");
    assert_eq!((&again["seen"], &again["utterance_vectors"]), (&0.into(), &51.into()));

    t.write("more.jsonl", record("d000007", "another text") + &record("new", "this is text number 3"));
    let outcome = t.run("ingest -i x more.jsonl --no-encode");
    outcome.says(0, &["2 dialogues are not encoded yet; `turnwise encode -i indexes/x` encodes them"]);
    let stats = t.json("stats -i x");
    assert_eq!(stats["vectors"]["dialogues"]["without"], 2 - 1, "two dialogues have the same text: {stats}");
    let more = t.json("encode -i x");
    assert_eq!((&more["seen"], &more["utterances"], &more["dialogues"]), (&2.into(), &1.into(), &1.into()));
    let stats = t.json("stats -i x");
    assert_eq!(stats["vectors"]["utterances"], serde_json::json!({"vectors": 52, "live": 51, "without": 0}));
    assert!(stats["bytes"]["vectors"].as_u64().unwrap() > 0);
    assert!(t.ok("stats -i x").contains("utterance vectors, 1 of deleted texts"));
}

#[test]
fn other_options_are_refused_with_the_command_that_helps() {
    let t = Turnwise::new();
    let model = t.model();
    t.write("in.jsonl", records(10));
    t.ok("ingest -i x in.jsonl");
    t.ok(&format!("encode -i x --model {model}"));
    let outcome = t.run("encode -i x --dialogue-mode utterances");
    outcome.says(2, &["hint: `turnwise encode -i indexes/x --model ", " --replace`"]);
    let done = t.json("encode -i x --dialogue-mode utterances --replace");
    assert_eq!(done["dialogues"], 10);
    assert_eq!(t.json("encode -i x")["seen"], 0);
}

#[test]
fn damage_is_reported_and_repaired() {
    let t = Turnwise::new();
    let model = t.model();
    t.write("in.jsonl", records(30));
    t.ok("ingest -i x in.jsonl");
    t.ok(&format!("encode -i x --model {model}"));
    assert!(t.ok("verify -i x").contains("  vectors  31 of utterances, 30 of dialogues\n"));
    let rows = files(&t.path("indexes/x/vectors")).into_iter().find(|(p, _)| p.ends_with("utterances.f32"));
    let (path, mut bytes) = rows.unwrap();
    bytes[5] ^= 1;
    fs::write(&path, bytes).unwrap();
    let outcome = t.run("verify -i x");
    assert_eq!(outcome.code, 4, "{outcome:?}");
    assert!(
        outcome.out.contains("utterances.f32: row 0: the checksum of the vector is wrong"),
        "{outcome:?}"
    );
    t.run("repair -i x").says(0, &["1 vector was damaged and removed, 60 kept"]);
    assert_eq!(t.json("encode -i x")["utterances"], 1);
    assert_eq!(t.run("verify -i x").code, 0);
}

#[test]
fn a_backup_includes_vectors_by_default() {
    let t = Turnwise::new();
    let model = t.model();
    t.write("in.jsonl", records(30));
    t.ok("ingest -i x in.jsonl");
    t.ok(&format!("encode -i x --model {model}"));
    t.run("backup -i x saved").says(0, &["61 vectors copied"]);
    t.ok("backup -i x small --no-vectors");
    assert!(!t.path("small/vectors").exists());
    t.run("restore -i y saved").says(0, &["61 vectors copied"]);
    let again = t.json("encode -i y");
    assert_eq!((&again["utterances"], &again["dialogues"]), (&0.into(), &0.into()));
    assert_eq!(t.run("verify -i y").code, 0);
    t.ok("restore -i z small");
    assert!(VectorReader::open(&t.path("indexes/z")).unwrap().is_none());
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_continues() {
    let t = Turnwise::new();
    let model = t.model();
    t.write("in.jsonl", records(20_000));
    t.ok("ingest -i x in.jsonl --no-index");
    t.write("turnwise.toml", "[encode]\nbatch = 20\n");
    let run = t.start(&format!("encode -v -i x --model {model}"));
    run.wait_for_message("done: ");
    run.interrupt();
    run.end().says(
        130,
        &["error: interrupted\nhint: ", "vectors are saved; run the same command again to continue\n"],
    );
    let reader = VectorReader::open(&t.path("indexes/x")).unwrap().unwrap();
    let kinds = turnwise_index::vectors::Kind::ALL;
    let before: usize = kinds.iter().map(|kind| reader.rows(*kind)).sum();
    assert!((20..40_001).contains(&before), "{before}");
    let done = t.json("encode -i x");
    assert_eq!(
        done["utterances"].as_u64().unwrap() + done["dialogues"].as_u64().unwrap(),
        40_001 - before as u64
    );
    assert_eq!(t.run("verify -i x").code, 0);
}

/// Neither the index nor the model exists. The error is about the index.
#[test]
fn a_missing_index_is_reported_first() {
    let t = Turnwise::new();
    t.run("encode -i none").says(2, &["there is no index at indexes/none"]);
    assert!(!t.path("indexes").exists());
}
