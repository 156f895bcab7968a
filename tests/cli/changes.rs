//! Tests of deletion, statistics, backups, verification, repair, and concurrent writers.

use std::fs;

use serde_json::{Value, json};

use crate::support::{SAMPLES, Turnwise, lines, record};

fn with_samples() -> Turnwise {
    let t = Turnwise::new();
    t.ok(&format!("ingest -i x {SAMPLES}"));
    t
}

#[test]
fn dialogues_are_deleted_by_id() {
    let t = with_samples();
    assert_eq!(t.ok("delete -i x banking-001 zh-utilities-003"), "2 dialogues deleted\n");
    assert_eq!(t.ids("x").len(), 278);
    t.run("corpus show -i x banking-001").says(2, &["holds no dialogue `banking-001`"]);
    let found = t.json("search -i x plastic");
    assert!(found["hits"].as_array().unwrap().iter().all(|h| h["dialogue"] != "banking-001"), "{found}");
    // A deleted dialogue can be ingested again.
    assert_eq!(t.json(&format!("ingest -i x {SAMPLES}"))["tally"]["added"], 2);
}

#[test]
fn an_unknown_id_is_reported_and_the_others_are_deleted() {
    let t = with_samples();
    let outcome = t.run("delete -i x banking-001 nobody");
    outcome.says(2, &["error: indexes/x holds no dialogue `nobody`\n"]);
    assert_eq!(outcome.out, "1 dialogue deleted\n");
    assert_eq!(t.ids("x").len(), 279);
    t.run("delete -i x").says(2, &["<ID>..."]);
}

#[test]
fn a_filter_deletes_matches_and_a_dry_run_nothing() {
    let t = with_samples();
    let args = ["delete", "-i", "x", "--filter", "language=zh and turns>=12", "--format", "json"];
    let mut dry = args.to_vec();
    dry.push("--dry-run");
    let would = t.run_args(&dry).json();
    assert_eq!((t.ids("x").len(), &would["dry_run"]), (280, &json!(true)));
    let did = t.run_args(&args).json();
    assert_eq!(would["deleted"], did["deleted"]);
    let n = did["deleted"].as_array().unwrap().len();
    assert!(n > 0 && n < 40, "{n}");
    assert_eq!(t.ids("x").len(), 280 - n);
    assert_eq!(t.run_args(&dry[..]).json()["deleted"], json!([]));
    assert_eq!(t.run_args(&["delete", "-i", "x", "--filter", "language=fr"]).code, 0);
}

#[test]
fn statistics_are_printed_as_text_and_json() {
    let t = with_samples();
    let text = t.ok("stats -i x");
    assert!(text.starts_with("indexes/x  generation "), "{text}");
    assert!(text.contains("         280  dialogues\n") && text.contains("       3,208  turns\n"), "{text}");
    let stats = t.json("stats -i x");
    assert_eq!(
        (&stats["dialogues"], &stats["turns"], &stats["rejected"]),
        (&280.into(), &3208.into(), &0.into())
    );
    let line = t.ok("stats -i x --format jsonl");
    assert_eq!(lines(&line), [stats]);
}

#[test]
fn statistics_include_rejected_records() {
    let t = Turnwise::new();
    t.write("in.jsonl", record("a", "x") + "{oops\n");
    t.ok("ingest -i x in.jsonl");
    t.ok("ingest -i x in.jsonl");
    assert_eq!(t.json("stats -i x")["rejected"], 1);
}

#[test]
fn a_backup_is_restored_under_another_name_and_never_over_an_index() {
    let t = with_samples();
    let out = t.ok("backup -i x saved");
    assert!(out.starts_with("280 dialogues with 3,208 turns are in saved ("), "{out}");
    t.ok("delete -i x banking-001");
    t.run("restore -i x saved")
        .says(2, &["error: indexes/x is not empty\nhint: name a folder that does not exist yet"]);
    assert!(t.ok("restore -i y saved").starts_with("indexes/y holds 280 dialogues with 3,208 turns, as of "));
    assert_eq!((t.ids("x").len(), t.ids("y").len()), (279, 280));
    assert!(!t.json("search -i y plastic")["hits"].as_array().unwrap().is_empty());
    t.ok("verify -i y");
    t.run("backup -i x saved").says(2, &["error: saved is not empty\n"]);
    t.run("restore -i z nowhere").says(2, &["error: nowhere is not a backup: it contains no backup.json\n"]);
    let log = t.path("saved/00000001.log");
    fs::write(&log, &fs::read(&log).unwrap()[..5000]).unwrap();
    t.run("restore -i z saved").says(4, &["error: saved/00000001.log: it has 5000 bytes instead of "]);
    assert!(!t.path("indexes/z").exists());
}

#[test]
fn damage_is_found_reported_and_repaired() {
    let t = with_samples();
    let before = t.dialogues("x");
    let sound = t.ok("verify -i x");
    assert!(sound.contains("  records  280 compared with the log\n"), "{sound}");
    assert!(sound.ends_with("indexes/x is sound: 280 dialogues with 3,208 turns\n"), "{sound}");

    let log = t.path("indexes/x/log/00000001.log");
    let mut bytes = fs::read(&log).unwrap();
    bytes[300_000] ^= 1;
    fs::write(&log, bytes).unwrap();
    let outcome = t.run("verify -i x");
    outcome.says(
        4,
        &["error: indexes/x: 1 damaged place found\nhint: `turnwise repair` repairs what can be repaired"],
    );
    assert!(outcome.out.contains("  damage   indexes/x/log/00000001.log: at byte 29"), "{outcome:?}");
    assert!(outcome.out.contains("a frame's checksum is wrong\n"), "{outcome:?}");
    let report = t.json("verify -i x");
    assert_eq!(report["damage"][0]["path"], "indexes/x/log/00000001.log");

    let out = t.ok("repair -i x");
    assert!(out.contains("  recovered 1 record from the second copy\n"), "{out}");
    assert!(
        out.contains("  kept      the damaged log is in indexes/x/log.damaged-1; remove it when"),
        "{out}"
    );
    assert!(out.ends_with("indexes/x is rebuilt: 280 dialogues with 3,208 turns\n"), "{out}");
    assert_eq!(t.run("verify -i x").code, 0);
    assert_eq!(t.dialogues("x"), before);
    assert!(!t.json("search -i x plastic")["hits"].as_array().unwrap().is_empty());
}

#[test]
fn a_missing_lexical_index_is_reported_and_rebuilt() {
    let t = with_samples();
    fs::remove_dir_all(t.path("indexes/x/lexical")).unwrap();
    t.run("search -i x plastic")
        .says(2, &["error: indexes/x has no lexical index yet\nhint: `turnwise index build` creates it\n"]);
    let english = "analyzer mixed-1+stem-en (English, detected)";
    assert_eq!(t.ok("index build -i x"), format!("indexes/x: 3,208 utterances indexed, {english}\n"));
    assert_eq!(t.ok("index build -i x"), "indexes/x is up to date\n");
    assert!(!t.json("search -i x plastic")["hits"].as_array().unwrap().is_empty());
}

#[test]
fn records_after_the_last_index_build_are_found() {
    let t = with_samples();
    t.write("more.jsonl", record("late", "a zeppelin landed"));
    t.ok("ingest -i x more.jsonl --no-index");
    let found = |query: &str| t.json(&format!("search -i x {query}"))["hits"][0]["id"].clone();
    assert_eq!(found("zeppelin"), "late#1");
    assert_eq!(found("zeppelin --filter turn=1"), "late#1");
    assert_eq!(found("zeppelin --of dialogues"), "late");
    assert_eq!(found("--syntax +zeppelin"), "late#1");
    assert!(t.ok("index info -i x").contains("the lexical index is out of date"));
    t.write("more.jsonl", record("late", "an airship landed"));
    t.ok("ingest -i x more.jsonl --no-index");
    assert!(t.json("search -i x zeppelin")["hits"].as_array().unwrap().is_empty());
    assert_eq!(found("airship"), "late#1");
    let built = t.ok("index build -i x");
    assert_eq!(built, "indexes/x: 2 utterances indexed, analyzer mixed-1+stem-en (English, detected)\n");
    assert_eq!(found("airship"), "late#1");
}

#[test]
fn a_second_writer_is_refused_and_readers_continue() {
    let t = with_samples();
    t.write("more.jsonl", record("late", "x"));
    let mut run = t.start("ingest -v -i x -");
    run.feed(&record("slow", "x"));
    run.wait_for_message("acknowledged: 1 records");

    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let holder = format!("error: indexes/x is being written by process {} on {}", run.pid(), host.trim());
    let texts = [
        holder.as_str(),
        "(`turnwise ingest -v -i x -`, since 2",
        "hint: wait until it ends; the index can be read in the meantime\n",
    ];
    for line in ["ingest -i x more.jsonl", "delete -i x banking-001", "repair -i x"] {
        t.run(line).says(5, &texts);
    }
    let found: Value = t.json("search -i x plastic");
    assert!(!found["hits"].as_array().unwrap().is_empty());
    assert_eq!(t.json("stats -i x")["dialogues"], 281);
    assert!(t.ok("corpus show -i x slow").starts_with("slow"));
    let verified = t.ok("verify -i x");
    assert!(verified.contains(&format!("not compared: in use by process {}", run.pid())), "{verified}");

    run.stdin = None;
    run.end().says(0, &[]);
    t.ok("ingest -i x more.jsonl");
    assert_eq!(t.ids("x").len(), 282);
}
