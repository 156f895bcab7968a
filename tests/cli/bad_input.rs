//! Tests with invalid input: no record is dropped without a message, valid records are ingested, and messages name the
//! location.

use std::io::Write;

use crate::support::{Outcome, Turnwise, gz, lines, record, records, zst};

#[test]
fn a_line_with_invalid_utf8_is_rejected_and_the_rest_is_ingested() {
    let t = Turnwise::new();
    let mut bytes = record("a", "hello").into_bytes();
    bytes.extend(b"{\"id\":\"x\",\"turns\":[{\"text\":\"\xff\"}]}\n");
    bytes.extend(record("b", "hello").into_bytes());
    t.write("in.jsonl", bytes);
    t.run("ingest -i x in.jsonl")
        .says(0, &["warning: rejected: in.jsonl:2: invalid UTF-8 at byte 29 of the line\n"]);
    assert_eq!(t.ids("x"), ["a", "b"]);
}

/// Returns dialogues of random letters. A compressed file of them is long, so it can be truncated at many positions.
fn hard_to_compress(count: u64) -> String {
    let text =
        |n: u64| (0..4).map(|k| format!("{:x}", (n * 4 + k).wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    let texts: Vec<String> = (0..count).map(text).collect();
    texts.iter().enumerate().map(|(n, text)| record(&format!("d{n:05}"), text)).collect()
}

#[track_caller]
fn a_truncated_file_gives_the_records_before_the_end(name: &str, bytes: &[u8]) {
    let t = Turnwise::new();
    t.write(name, &bytes[..bytes.len() / 2]);
    let truncated = format!("warning: rejected: {name}:");
    let outcome = t.run(&format!("ingest -i x {name}"));
    outcome.says(
        3,
        &[
            &truncated,
            "the compressed file ends early: it is truncated",
            "error: 1 file could not be read to the end; everything before that point is ingested",
            "hint: see the warning above; fix the cause and run the same command again",
        ],
    );
    let before = t.ids("x").len();
    assert!(before > 100 && before < 20_000, "{before}");
    // An ingest of the complete file adds the missing records.
    t.write(name, bytes);
    let tally = &t.json(&format!("ingest -i x {name}"))["tally"];
    assert_eq!((tally["unchanged"].as_u64(), tally["records"].as_u64()), (Some(before as u64), Some(20_000)));
}

#[test]
fn a_truncated_gz_file_gives_the_records_before_the_end() {
    a_truncated_file_gives_the_records_before_the_end("in.jsonl.gz", &gz(hard_to_compress(20_000)));
}

#[test]
fn a_truncated_zst_file_gives_the_records_before_the_end() {
    a_truncated_file_gives_the_records_before_the_end("in.jsonl.zst", &zst(hard_to_compress(20_000)));
}

#[cfg(target_os = "linux")]
#[test]
fn a_line_of_200_mb_is_rejected_without_buffering_it() {
    let t = Turnwise::new();
    let mut run = t.start("ingest -i x -");
    let mut stdin = run.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || {
        let part = vec![b'x'; 1 << 20];
        stdin.write_all(record("a", "before").as_bytes()).unwrap();
        stdin.write_all(br#"{"id":"huge","turns":[{"text":""#).unwrap();
        for _ in 0..200 {
            stdin.write_all(&part).unwrap();
        }
        stdin.write_all(b"\"}]}\n").unwrap();
        stdin.write_all(record("b", "behind").as_bytes()).unwrap();
    });
    let mut peak = 0;
    while run.child.try_wait().unwrap().is_none() {
        peak = peak.max(peak_kb(run.pid()));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    feeder.join().unwrap();
    run.end().says(0, &["warning: rejected: -:2: the record is 209.7 MB long, over the limit of 64.0 MB"]);
    assert!(peak > 1000 && peak < 300_000, "{peak} kB");
    assert_eq!(t.ids("x"), ["a", "b"]);
}

#[cfg(target_os = "linux")]
fn peak_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn deeply_nested_json_is_rejected() {
    let t = Turnwise::new();
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let text = record("a", "x")
        + &format!("{{\"id\":\"deep\",\"turns\":[{{\"text\":\"x\",\"metadata\":{{\"m\":{deep}}}}}]}}\n")
        + &record("b", "x");
    t.write("in.jsonl", text);
    t.run("ingest -i x in.jsonl")
        .says(0, &["rejected: in.jsonl:2: JSON is nested deeper than 128 levels at column"]);
    assert_eq!(t.ids("x"), ["a", "b"]);
    // The same record as a JSON document.
    t.write("in.json", deep);
    t.run("ingest -i x in.json --from multiwoz")
        .says(3, &["rejected: in.json:1: JSON is nested deeper than 256 levels"]);
}

#[test]
fn an_id_with_two_contents_in_one_run_names_both_files() {
    let t = Turnwise::new();
    t.write("one.jsonl", record("a", "first"));
    t.write("two.jsonl", record("a", "second"));
    t.run("ingest -i x one.jsonl two.jsonl").says(
        0,
        &["warning: rejected: two.jsonl (a): another dialogue with this id was already read from one.jsonl; \
           use --id-prefix to make the ids of each file unique\n"],
    );
    assert_eq!(t.dialogues("x")[0]["turns"][0]["text"], "first");
}

#[test]
fn a_repeated_record_is_counted_and_stored_once() {
    let t = Turnwise::new();
    t.write("one.jsonl", record("a", "first"));
    t.write("two.jsonl", record("a", "first"));
    let tally = &t.json("ingest -i x one.jsonl two.jsonl")["tally"];
    assert_eq!((&tally["added"], &tally["repeated"], &tally["rejected"]), (&1.into(), &1.into(), &0.into()));
}

#[track_caller]
fn refused(t: &Turnwise, line: &str, code: i32, texts: &[&str]) {
    let outcome: Outcome = t.run(line);
    outcome.says(code, texts);
    assert_eq!(outcome.out, "");
    assert!(!t.path("indexes").exists(), "a refused ingest must leave no index behind");
}

#[test]
fn unsupported_inputs_are_refused_with_a_hint() {
    let t = Turnwise::new();
    t.write("empty.jsonl", "");
    t.write("blob", [1, 2, 3, 0, 7]);
    t.write("folder/blob", [1, 2, 3, 0, 7]);
    t.write("void/.hidden", "");
    t.write("chats.zip", b"PK\x03\x04 and more");
    let mut tar = tar::Builder::new(Vec::new());
    tar.append_path_with_name(t.path("blob"), "blob").unwrap();
    t.write("chats.tar", tar.into_inner().unwrap());
    let utf16: Vec<u8> = "\u{feff}hello".encode_utf16().flat_map(u16::to_le_bytes).collect();
    t.write("chats.txt", utf16);

    refused(&t, "ingest -i x empty.jsonl", 3, &["error: empty.jsonl is empty\n"]);
    refused(
        &t,
        "ingest -i x blob",
        3,
        &["error: blob is not in a format that turnwise recognizes\n", "--from (jsonl, "],
    );
    refused(
        &t,
        "ingest -i x folder",
        3,
        &[
            "error: folder contains no file with dialogues\n",
            "1 file is not in a format",
            "such as folder/blob",
        ],
    );
    refused(
        &t,
        "ingest -i x void",
        3,
        &["error: void contains no file with dialogues\nhint: the folder is empty\n"],
    );
    refused(&t, "ingest -i x nowhere", 2, &["error: cannot open nowhere: No such file or directory"]);
    refused(
        &t,
        "ingest -i x chats.zip",
        3,
        &["error: chats.zip: this is a zip archive\nhint: unpack it (unzip FILE)"],
    );
    refused(
        &t,
        "ingest -i x chats.tar",
        3,
        &["error: chats.tar: this is a tar archive\nhint: unpack it (tar -xf"],
    );
    refused(
        &t,
        "ingest -i x chats.txt",
        3,
        &["error: chats.txt: the text is UTF-16", "hint: convert it: iconv -f UTF-16"],
    );
    refused(
        &t,
        "ingest -i x --from jsonnl blob",
        2,
        &["error: unknown format `jsonnl`\nhint: did you mean `jsonl`?\n"],
    );
}

#[test]
fn too_many_rejects_stop_the_ingest_and_a_higher_limit_continues_it() {
    let t = Turnwise::new();
    let mut text = records(2500);
    for n in 0..6 {
        text += &format!("{{\"id\":\"bad{n}\",\"turns\":[]}}\n");
    }
    t.write("in.jsonl", text + &record("last", "x"));
    let stopped = "error: 4 records were rejected (limit: 3); \
                   the last one: in.jsonl:2504 (bad3): the dialogue has no turns\n\
                   hint: list them with `--rejects FILE`, or raise the limit with `--max-errors N`\n";
    let kept = "stopped; everything before that point is saved: indexes/x now holds 2,500 dialogues with 5,000 turns\n";
    let command = "ingest -i x in.jsonl --rejects rejects.jsonl";
    t.run(&format!("{command} --max-errors 3")).says(3, &[stopped, kept]);
    assert_eq!(t.ids("x").len(), 2500);
    assert_eq!(t.read("rejects.jsonl").lines().count(), 4);
    // Repeating the ingest does not get around the limit.
    t.run(&format!("{command} --max-errors 3")).says(3, &["resuming after record 2,503", stopped, kept]);
    let outcome = t.run(&format!("{command} --max-errors 6 --format json"));
    outcome.says(
        0,
        &[
            "resuming after record 2,503, where the last run stopped\n",
            "6 rejects are listed in rejects.jsonl",
        ],
    );
    let summary = outcome.json();
    assert_eq!(summary["resumed_after"], 2503);
    let tally = &summary["tally"];
    assert_eq!(
        (&tally["records"], &tally["added"], &tally["rejected"]),
        (&2507.into(), &2501.into(), &6.into())
    );
    let ids: Vec<_> = lines(&t.read("rejects.jsonl")).iter().map(|r| r["id"].clone()).collect();
    assert_eq!(ids, ["bad0", "bad1", "bad2", "bad3", "bad4", "bad5"]);
}

#[test]
fn the_rejects_file_must_not_be_an_input() {
    let t = Turnwise::new();
    let input = format!("{}{{oops\n", record("a", "x"));
    t.write("in.jsonl", &input);
    t.run("ingest -i x in.jsonl --rejects ./in.jsonl")
        .says(2, &["in.jsonl is an input file and would be overwritten", "hint: choose a different name"]);
    assert_eq!(t.read("in.jsonl"), input);
    assert!(!t.path("indexes/x").exists());
}

#[test]
fn the_rejects_file_has_path_line_and_reason_of_each_record() {
    let t = Turnwise::new();
    t.write(
        "in.jsonl",
        record("a", "x")
            + "{\"id\":\"n\",\"turns\":[]}\n{oops\n{\"id\":\"c\",\"turns\":[{\"texd\":\"x\"}]}\n",
    );
    t.run("ingest -i x in.jsonl --rejects rejects.jsonl")
        .says(0, &["3 rejects are listed in rejects.jsonl\n"]);
    let rejects = lines(&t.read("rejects.jsonl"));
    let expected = [
        serde_json::json!({"path": "in.jsonl", "line": 2, "id": "n", "reason": "the dialogue has no turns"}),
        serde_json::json!({"path": "in.jsonl", "line": 3, "reason": "not valid JSON: key must be a string at column 2"}),
    ];
    assert_eq!(rejects[..2], expected);
    assert!(rejects[2]["reason"].as_str().unwrap().starts_with("unknown field `texd`, expected one of"));
    // A later ingest without rejects empties the rejects file.
    t.write("good.jsonl", record("b", "x"));
    t.ok("ingest -i x good.jsonl --rejects rejects.jsonl");
    assert_eq!(t.read("rejects.jsonl"), "");
}
