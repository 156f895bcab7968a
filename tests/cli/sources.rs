//! Tests of the inputs of `ingest`: files, streams, compressed files and folders.

use crate::support::{SAMPLES, Turnwise, gz, record, records, sample, zst};

#[test]
fn standard_input_is_read_plain_and_compressed() {
    let text = sample("banking.jsonl");
    for (n, bytes) in [text.clone().into_bytes(), gz(&text), zst(&text)].iter().enumerate() {
        let t = Turnwise::new();
        let outcome = t.run_with("ingest -i x -", bytes);
        outcome.says(0, &[]);
        assert!(outcome.out.starts_with("20 records from 1 file (jsonl: 1)"), "{n}: {outcome:?}");
        assert_eq!(t.ids("x").len(), 20);
    }
}

#[test]
fn an_empty_standard_input_is_refused() {
    Turnwise::new().run("ingest -i x -").says(3, &["error: - is empty\n"]);
}

#[test]
fn a_stream_longer_than_the_probe_is_ingested_completely() {
    let t = Turnwise::new();
    let outcome = t.run_with("ingest -i x - --format json", records(5000).as_bytes());
    assert_eq!(outcome.json()["tally"]["added"], 5000);
}

#[test]
fn a_slow_stream_is_ingested_while_it_is_open() {
    let t = Turnwise::new();
    let mut run = t.start("ingest -v -i x -");
    run.feed(&(record("a", "x") + &record("b", "x")));
    run.wait_for_message("acknowledged: 2 records");
    assert_eq!(t.ids("x"), ["a", "b"]);
    run.feed(&record("c", "x"));
    run.wait_for_message("acknowledged: 3 records");
    run.stdin = None;
    run.end().says(0, &[]);
    assert_eq!(t.ids("x"), ["a", "b", "c"]);
}

#[test]
fn compressed_files_are_detected_by_content() {
    let t = Turnwise::new();
    t.write("a.jsonl.gz", gz(record("a", "x")));
    t.write("b.jsonl.zst", zst(record("b", "x")));
    t.write("c", gz(record("c", "x")));
    let several = [gz(record("d", "x")), gz(record("e", "x"))].concat();
    t.write("d.jsonl.gz", several);
    t.ok("ingest -i x a.jsonl.gz b.jsonl.zst c d.jsonl.gz");
    assert_eq!(t.ids("x"), ["a", "b", "c", "d", "e"]);
}

#[test]
fn a_folder_is_read_recursively_and_other_files_are_reported() {
    let t = Turnwise::new();
    t.write("in/b/deep/two.jsonl.gz", gz(record("b", "x")));
    t.write("in/a.jsonl", record("a", "x"));
    t.write("in/photo.bin", [1, 2, 0, 4]);
    t.write("in/.git/x.jsonl", record("hidden", "x"));
    let out = t.ok("ingest -i x in");
    assert!(out.starts_with("2 records from 2 files (jsonl: 2)"), "{out}");
    assert!(out.contains("           1  files not recognized, such as in/photo.bin\n"), "{out}");
    assert_eq!(t.ids("x"), ["a", "b"]);
}

#[test]
fn a_table_is_read_by_column_names_or_a_map() {
    let t = Turnwise::new();
    t.write("in.csv", "conversation_id,speaker,text\n1,Ann,hello\n1,Bob,hi\n2,Ann,bye\n");
    t.ok("ingest -i x in.csv");
    assert_eq!(t.dialogues("x").len(), 2);
    t.write("odd.csv", "case,who,said\n1,Ann,hello\n1,Bob,hi\n");
    t.ok("ingest -i y odd.csv --map id=case,speaker=who,text=said");
    assert_eq!(t.dialogues("y")[0]["turns"][1]["speaker"], "Bob");
}

#[test]
fn many_paths_are_one_ingest() {
    let t = Turnwise::new();
    t.write("a.jsonl", record("a", "x"));
    let summary = t.json(&format!("ingest -i x a.jsonl {SAMPLES}/zh.jsonl {SAMPLES}/clinic.jsonl"));
    assert_eq!((&summary["tally"]["added"], &summary["files"]["read"]), (&61.into(), &3.into()));
}
