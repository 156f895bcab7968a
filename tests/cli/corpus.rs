//! Tests of `turnwise corpus`: convert, split, export, show, schema and formats.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;

use crate::support::{SAMPLES, Turnwise, id_of, lines, sample};

/// Returns the speaker and the text of each turn. Every output format keeps them.
fn output(dialogue: &Value) -> Vec<(String, String)> {
    let turns = dialogue["turns"].as_array().unwrap();
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    turns.iter().map(|t| (text(&t["speaker"]), text(&t["text"]))).collect()
}

#[test]
fn jsonl_is_exported_unchanged() {
    let t = Turnwise::new();
    t.run(&format!("corpus convert {SAMPLES} -o all.jsonl")).says(0, &["280 dialogues written\n"]);
    t.ok("corpus convert -q all.jsonl -o again.jsonl");
    assert_eq!(t.read("all.jsonl"), t.read("again.jsonl"));
    assert_eq!(t.read("all.jsonl").lines().count(), 280);
}

#[test]
fn a_table_is_read_again_with_every_turn_and_label() {
    let t = Turnwise::new();
    t.ok(&format!("corpus convert {SAMPLES} --to csv -o all.csv"));
    t.ok("corpus convert all.csv -o back.jsonl");
    t.ok(&format!("corpus convert {SAMPLES} -o all.jsonl"));
    let (before, after) = (lines(&t.read("all.jsonl")), lines(&t.read("back.jsonl")));
    assert_eq!(before.len(), after.len());
    for (a, b) in before.iter().zip(&after) {
        assert_eq!((id_of(a), output(a)), (id_of(b), output(b)));
        assert_eq!((&a["title"], &a["domains"]), (&b["title"], &b["domains"]));
        let label = |d: &Value| {
            d["turns"]
                .as_array()
                .unwrap()
                .iter()
                .map(|t| (t["role"].clone(), t["intent"].clone()))
                .collect::<Vec<_>>()
        };
        assert_eq!(label(a), label(b));
    }
}

#[test]
fn messages_are_exported_with_the_roles_of_chat_models() {
    let t = Turnwise::new();
    let before = lines(&sample("zh.jsonl"));
    let written = lines(&t.ok(&format!("corpus convert -q {SAMPLES}/zh.jsonl --to messages")));
    assert_eq!(written.len(), before.len());
    for (dialogue, messages) in before.iter().zip(&written) {
        assert_eq!(dialogue["id"], messages["id"]);
        let got: Vec<_> =
            messages["messages"].as_array().unwrap().iter().map(|m| (&m["role"], &m["content"])).collect();
        let role = |t: &Value| Value::from(if t["role"] == "agent" { "assistant" } else { "user" });
        let turns = dialogue["turns"].as_array().unwrap();
        let roles: Vec<_> = turns.iter().map(role).collect();
        let expected: Vec<_> = roles.iter().zip(turns).map(|(role, t)| (role, &t["text"])).collect();
        assert_eq!(got, expected);
    }
}

#[test]
fn a_transcript_has_one_line_per_turn_and_an_empty_line_between_dialogues() {
    let t = Turnwise::new();
    let before = lines(&sample("clinic.jsonl"));
    let text = t.ok(&format!("corpus convert -q {SAMPLES}/clinic.jsonl --to transcript"));
    let dialogues: Vec<&str> = text.split("\n\n").collect();
    assert_eq!(dialogues.len(), before.len());
    for (dialogue, lines) in before.iter().zip(dialogues) {
        let expected: Vec<String> =
            output(dialogue).into_iter().map(|(who, what)| format!("{who}: {what}")).collect();
        assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn exports_to_gz_and_zst_files_are_compressed() {
    let t = Turnwise::new();
    let plain = t.ok(&format!("corpus convert -q {SAMPLES}/zh.jsonl"));
    for name in ["out.jsonl.gz", "out.jsonl.zst"] {
        t.ok(&format!("corpus convert {SAMPLES}/zh.jsonl -o {name}"));
        assert!(fs::metadata(t.path(name)).unwrap().len() < plain.len() as u64 / 2);
        assert_eq!(t.ok(&format!("corpus convert -q {name}")), plain);
    }
}

#[test]
fn convert_cleans_filters_and_reports_what_it_omitted() {
    let t = Turnwise::new();
    let args = ["corpus", "convert", SAMPLES, "-o", "out.jsonl", "--filter", "domain=banking and turns>=12"];
    let outcome = t.run_args(&args);
    let kept = lines(&t.read("out.jsonl"));
    assert!(!kept.is_empty() && kept.len() < 40);
    assert!(kept.iter().all(|d| d["domains"][0] == "banking" && d["turns"].as_array().unwrap().len() >= 12));
    outcome.says(0, &[&format!("{} dialogues written, {} skipped\n", kept.len(), 280 - kept.len())]);
}

#[test]
fn a_failed_convert_leaves_no_file() {
    let t = Turnwise::new();
    t.write("in.jsonl", "{\"id\":\"a\",\"turns\":[{\"text\":\"x\"}]}\n".to_owned() + &"{oops\n".repeat(200));
    t.run("corpus convert in.jsonl -o out.jsonl").says(
        3,
        &[
            "warning: rejected: in.jsonl:2: not valid JSON",
            "error: 101 records were rejected (limit: 100)",
            "hint: allow more with TURNWISE_INGEST_MAX_ERRORS=N",
        ],
    );
    let left: Vec<_> = fs::read_dir(t.path("")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["in.jsonl"]);
}

fn parts(folder: &Path) -> Vec<(String, String)> {
    let mut all: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    all.iter()
        .map(|p| (p.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(p).unwrap()))
        .collect()
}

#[test]
fn a_split_is_complete_and_follows_from_the_seed() {
    let t = Turnwise::new();
    for (folder, seed) in [("one", 7), ("two", 7), ("other", 8)] {
        t.ok(&format!("corpus split {SAMPLES} -o {folder} --seed {seed}"));
    }
    let one = parts(&t.path("one"));
    assert_eq!(
        one.iter().map(|p| p.0.as_str()).collect::<Vec<_>>(),
        ["dev.jsonl", "test.jsonl", "train.jsonl"]
    );
    assert_eq!(one, parts(&t.path("two")));
    assert_ne!(one, parts(&t.path("other")));
    let ids: Vec<String> = one.iter().flat_map(|(_, text)| lines(text)).map(|d| id_of(&d)).collect();
    assert_eq!(ids.len(), 280);
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 280);
    // An index is split in the same way, independently of its order.
    t.ok(&format!("ingest -i x {SAMPLES}"));
    let counts = t.json("corpus split -i x -o indexed --seed 7");
    let count = |n: usize| one[n].1.lines().count();
    assert_eq!(counts, serde_json::json!({"dev": count(0), "test": count(1), "train": count(2)}));
}

#[test]
fn parts_that_do_not_add_up_are_refused_with_an_example() {
    Turnwise::new()
        .run("corpus split in -o out --parts train=0.8,dev=0.1")
        .says(2, &["the shares in --parts add up to 0.9", "for example: --parts train=0.8,dev=0.1,test=0.1"]);
}

#[test]
fn an_export_contains_the_matches_of_a_filter() {
    let t = Turnwise::new();
    t.ok(&format!("ingest -i x {SAMPLES}"));
    let args = ["corpus", "export", "-i", "x", "--filter", "domain=clinic and language=en"];
    let outcome = t.run_args(&args);
    let got = lines(&outcome.out);
    assert!(got.len() >= 20 && got.iter().all(|d| d["domains"][0] == "clinic" && d["language"] == "en"));
    outcome.says(0, &[&format!("{} dialogues written\n", got.len())]);
    t.ok("corpus export -i x --to csv -o out/all.csv");
    assert_eq!(t.json("corpus stats out/all.csv")["dialogues"], 280);
}

#[test]
fn an_unknown_filter_field_gets_a_suggestion() {
    let t = Turnwise::new();
    t.run("corpus export -i x --filter domian=clinic")
        .says(2, &["unknown filter field `domian` (did you mean `domain`?)"]);
}

#[test]
fn an_export_of_an_index_equals_the_input() {
    let t = Turnwise::new();
    t.ok(&format!("ingest -i x {SAMPLES}"));
    t.ok("corpus export -i x -o out.jsonl");
    let summary = t.json("ingest -i x out.jsonl");
    assert_eq!(summary["tally"]["unchanged"], 280);
}

/// Checks that an object has all required keys and only known keys. The values are not checked.
#[track_caller]
fn fits(schema: &Value, value: &Value, place: &str) {
    let keys: BTreeSet<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    let known: BTreeSet<&str> =
        schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    assert!(keys.is_subset(&known), "{place}: {keys:?} against {known:?}");
    for required in schema["required"].as_array().unwrap() {
        assert!(keys.contains(required.as_str().unwrap()), "{place} lacks {required}");
    }
}

#[test]
fn the_schema_accepts_the_samples() {
    let t = Turnwise::new();
    let schema: Value = serde_json::from_str(&t.ok("corpus schema")).unwrap();
    assert_eq!(schema, t.json("corpus schema"));
    let turn = &schema["$defs"]["Turn"];
    for entry in fs::read_dir(SAMPLES).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "jsonl") {
            continue;
        }
        for dialogue in lines(&fs::read_to_string(&path).unwrap()) {
            fits(&schema, &dialogue, &id_of(&dialogue));
            dialogue["turns"].as_array().unwrap().iter().for_each(|t| fits(turn, t, &id_of(&dialogue)));
        }
    }
}

#[test]
fn a_dialogue_and_a_turn_of_it_are_shown() {
    let t = Turnwise::new();
    t.ok(&format!("ingest -i x {SAMPLES}/banking.jsonl"));
    let text = t.ok("corpus show -i x banking-001");
    assert!(text.starts_with("banking-001  Garden centre payments at three in the morning\n"), "{text}");
    assert!(text.contains("\n    2 Marisol (agent): Right, let's get you sorted"), "{text}");
    let text = t.ok("corpus show -i x banking-001#2");
    assert!(text.contains("\n>   2 Marisol (agent): Right, let's get you sorted"), "{text}");
    let shown = t.run("corpus show -i x banking-001 banking-002 --format jsonl");
    assert_eq!(lines(&shown.out).iter().map(id_of).collect::<Vec<_>>(), ["banking-001", "banking-002"]);
    t.run("corpus show -i x banking-001#99")
        .says(2, &["error: banking-001 has no turn 99; its last turn is 14\n"]);
    t.run("corpus show -i x nobody")
        .says(2, &["error: indexes/x holds no dialogue `nobody`\nhint: `turnwise search`"]);
}

#[test]
fn all_formats_are_listed() {
    let t = Turnwise::new();
    let listed = t.json("corpus formats");
    let names: Vec<&str> = listed.as_array().unwrap().iter().map(|f| f["name"].as_str().unwrap()).collect();
    assert_eq!(names, turnwise_corpus::formats::all().iter().map(|f| f.name).collect::<Vec<_>>());
    let text = t.ok("corpus formats");
    assert!(names.iter().all(|name| text.lines().any(|l| l.starts_with(&format!("{name} ")))), "{text}");
    assert_eq!(lines(&t.ok("corpus formats --format jsonl")).len(), names.len());
}

#[test]
fn files_are_counted_without_an_index() {
    let t = Turnwise::new();
    let counted = t.json(&format!("corpus stats {SAMPLES}"));
    assert_eq!((&counted["dialogues"], &counted["turns"]), (&280.into(), &3208.into()));
    assert!(!t.path("indexes").exists());
}
