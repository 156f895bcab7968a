//! Tests of lexical search: analyzers, searches for dialogues, and the query syntax.

use std::fs;

use serde_json::{Value, json};

use crate::support::{SAMPLES, Turnwise, record};

fn with_samples() -> Turnwise {
    let t = Turnwise::new();
    t.ok(&format!("ingest -i x {SAMPLES}"));
    t
}

fn ids(found: &Value) -> Vec<&str> {
    found["hits"].as_array().unwrap().iter().map(|hit| hit["id"].as_str().unwrap()).collect()
}

#[test]
fn analyze_shows_the_tokens_and_their_offsets() {
    let t = Turnwise::new();
    let text = "I don't want 退款申请!";
    let out = t.run_args(&["analyze", text]).out;
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0].trim(), "0..1       i     I");
    assert_eq!(lines[1].trim(), "2..7       dont  don't");
    assert_eq!(lines[2].trim(), "8..12      want");
    assert_eq!(lines[3].trim(), "13..19      退款");
    assert_eq!(lines.last(), Some(&"6 tokens by mixed-1"));

    let shown = t.run_args(&["analyze", text, "--format", "json"]).json();
    assert_eq!((&shown["schema"], &shown["analyzer"]), (&json!("turnwise/analyze/1"), &json!("mixed-1")));
    assert_eq!(shown["text"], text);
    assert_eq!(shown["tokens"][1], json!({"term": "dont", "start": 2, "end": 7, "written": "don't"}));
    for token in shown["tokens"].as_array().unwrap() {
        let at = |name: &str| token[name].as_u64().unwrap() as usize;
        assert_eq!(token["written"], text[at("start")..at("end")]);
    }
    assert_eq!(t.ok("analyze …"), "0 tokens by mixed-1\n");
}

#[test]
fn analyze_reads_standard_input_and_uses_the_given_analyzer() {
    let t = Turnwise::new();
    let out = t.run_with("analyze - --analyzer mixed-1+stem-en", b"two deliveries\n");
    assert!(out.code == 0 && out.out.contains("deliveri  deliveries\n"), "{out:?}");
    assert!(out.out.ends_with("2 tokens by mixed-1+stem-en\n"), "{out:?}");
    t.run_with("analyze -", b"ok \xff").says(3, &["error: standard input: invalid UTF-8 at byte 3\nhint: "]);
    t.run("analyze x --analyzer mixd-1").says(2, &["unknown analyzer `mixd-1` (did you mean `mixed-1`?)"]);
    t.run("analyze x --analyzer mixed-1+stem-xx")
        .says(2, &["unknown stemming language `xx` (known: da, de, en, "]);
    assert!(t.ok("analyze --help").contains("jieba-1"));
    t.run("analyze x -i nowhere").says(2, &["error: there is no index at indexes/nowhere\n"]);
}

#[test]
fn an_index_is_built_with_another_analyzer_and_keeps_it() {
    let t = Turnwise::new();
    t.write("in.jsonl", record("a", "Two deliveries"));
    t.ok("ingest -i x in.jsonl");
    assert_eq!(ids(&t.json("search -i x delivered")), Vec::<&str>::new());
    for (name, description) in
        [("mixed-1+stem-de", "mixed-1+stem-de (German)"), ("mixed-1+stem-en", "mixed-1+stem-en (English)")]
    {
        let built = t.ok(&format!("index build -i x --analyzer {name}"));
        assert_eq!(built, format!("indexes/x: 2 utterances indexed, analyzer {description}\n"));
    }
    assert_eq!(t.ok("index build -i x"), "indexes/x is up to date\n");
    assert_eq!(t.json("index build -i x")["analyzer"], "mixed-1+stem-en");
    assert_eq!(t.json("analyze -i x deliveries")["tokens"][0]["term"], "deliveri");

    // New dialogues and queries use the same analyzer.
    t.write("more.jsonl", record("b", "It was delivered"));
    t.ok("ingest -i x more.jsonl");
    assert_eq!(ids(&t.json("search -i x delivery")), ["a#1"]);
    assert_eq!(ids(&t.json("search -i x delivering")), ["b#1"]);

    // A rebuild after damage uses the same analyzer.
    let folder = t.path("indexes/x/lexical/utterances");
    let file = fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .find(|p| p.extension().is_some_and(|e| e == "term"));
    let file = file.unwrap();
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x5a;
    fs::write(&file, bytes).unwrap();
    t.run("verify -i x").says(4, &["error: indexes/x: 1 damaged place found\n"]);
    let built = t.run("index build -i x --format json");
    built.says(0, &["warning: the lexical index is damaged; it is rebuilt\n"]);
    assert_eq!(built.json()["analyzer"], "mixed-1+stem-en");
    t.ok("verify -i x");
    // The analyzer is stored in two places. If both are damaged, a message reports this.
    t.write("indexes/x/lexical/utterances/meta.json", "{");
    t.run("repair -i x").says(0, &["warning: the lexical index is damaged; it is rebuilt\n"]);
    assert_eq!(t.json("index info -i x")["lexical"]["analyzer"], "mixed-1+stem-en");
    for side in ["utterances", "dialogues"] {
        t.write(&format!("indexes/x/lexical/{side}/meta.json"), "{");
    }
    t.run("repair -i x").says(
        0,
        &[
            "warning: the analyzer of the lexical index could not be read; it is detected by the language of the \
           dialogues\n",
        ],
    );
    assert_eq!(t.json("index info -i x")["lexical"]["analyzer"], "mixed-1");
    t.ok("verify -i x");
    t.run("index build -i x --analyzer klingon")
        .says(2, &["unknown analyzer `klingon` (known: mixed-1, jieba-1)"]);
}

/// Two dialogues in English, with enough words to detect the language.
fn english() -> String {
    record("a", "Where are the two deliveries that I ordered? They should have been here by now.")
        + &record("b", "Can you tell me how to change the address of an invoice? It is not in my account.")
}

#[test]
fn the_language_of_a_new_index_is_detected() {
    let t = Turnwise::new();
    t.write("in.jsonl", english());
    t.ok("ingest -i x in.jsonl");
    assert_eq!(t.json("index info -i x")["lexical"], json!({"analyzer": "mixed-1+stem-en", "usable": true}));
    let info = t.ok("index info -i x");
    assert!(info.contains("lexical  analyzer mixed-1+stem-en (English, detected)\n"), "{info}");
    assert_eq!(ids(&t.json("search -i x delivery")), ["a#1"]);

    // The function words of the query are neither searched nor highlighted.
    let search = |query: &str| t.run_args(&["search", "-i", "x", query, "--format", "json"]).json();
    let found = search("where is the delivery of my order?");
    assert_eq!(ids(&found), ["a#1"]);
    assert_eq!(found["terms"], json!(["deliveri", "order"]));
    let text = found["hits"][0]["turn"]["text"].as_str().unwrap();
    let matched = found["hits"][0]["matched"].as_array().unwrap().iter();
    let matched: Vec<&str> = matched
        .map(|range| &text[range[0].as_u64().unwrap() as usize..range[1].as_u64().unwrap() as usize])
        .collect();
    assert_eq!(matched, ["deliveries", "ordered"]);
    // If a query has only function words, they are searched.
    assert_eq!(search("can you")["terms"], json!(["can", "you"]));
    assert_eq!(ids(&search("can you")), ["b#1"]);
    // A phrase of an expression contains function words.
    let phrase =
        t.run_args(&["search", "-i", "x", "--syntax", "\"tell me how to\"", "--format", "json"]).json();
    assert_eq!(ids(&phrase), ["b#1"]);
    let similar = t.json("similar -i x a#1 --mode bm25");
    assert!(!similar.to_string().contains("\"the\""), "{similar}");
}

#[test]
fn chinese_is_not_stemmed() {
    let t = Turnwise::new();
    let texts =
        ["你好，我的包裹还没有到，请帮我查一下。", "请问订单A12什么时候发货？", "我想申请退款，谢谢。"];
    let records: String = (0..30).map(|n| record_of(n, texts[n % 3])).collect();
    t.write("in.jsonl", records);
    t.ok("ingest -i x in.jsonl");
    assert_eq!(t.json("index info -i x")["lexical"]["analyzer"], "mixed-1");
    let info = t.ok("index info -i x");
    assert!(info.contains("lexical  analyzer mixed-1 (no main language detected)\n"), "{info}");
    let found = t.json("search -i x 退款申请");
    assert_eq!(found["terms"], json!(["款申", "申请", "退款"]));
    assert_eq!(found["hits"].as_array().unwrap().len(), 10);
}

/// A dialogue with one turn.
fn record_of(n: usize, text: &str) -> String {
    let turns = json!([{"speaker": "Ann", "role": "user", "text": text}]);
    format!("{}\n", json!({"id": format!("d{n}"), "source": "test", "turns": turns}))
}

#[test]
fn auto_detects_the_language_of_an_existing_index() {
    let t = Turnwise::new();
    t.write("in.jsonl", english());
    t.ok("ingest -i x in.jsonl --no-index");
    let built = t.ok("index build -i x --analyzer mixed-1");
    assert_eq!(built, "indexes/x: 4 utterances indexed, analyzer mixed-1\n");
    assert_eq!(ids(&t.json("search -i x delivery")), Vec::<&str>::new());
    // Without the option, the index keeps the analyzer that the user chose.
    t.write("more.jsonl", record("c", "I have a question about the deliveries that you have sent to me."));
    t.ok("ingest -i x more.jsonl");
    assert_eq!(t.ok("index build -i x"), "indexes/x is up to date\n");
    assert_eq!(t.json("index info -i x")["lexical"]["analyzer"], "mixed-1");

    let built = t.ok("index build -i x --analyzer auto");
    assert_eq!(built, "indexes/x: 6 utterances indexed, analyzer mixed-1+stem-en (English, detected)\n");
    assert_eq!(ids(&t.json("search -i x delivery")), ["c#1", "a#1"]);
    assert_eq!(t.ok("index build -i x --analyzer auto"), "indexes/x is up to date\n");
    let rebuilt = t.ok("index rebuild -i x --analyzer auto");
    assert!(rebuilt.contains("(English, detected)"), "{rebuilt}");
    // `analyze` detects the language of its text.
    let text = "Wo ist die Lieferung, die ich bestellt habe? Ich warte schon seit einer Woche auf das Paket und habe nichts \
                von euch gehört.";
    let analyzed = t.run_args(&["analyze", text, "--analyzer", "auto", "--format", "json"]).json();
    assert_eq!(analyzed["analyzer"], "mixed-1+stem-de");
}

#[cfg(not(feature = "jieba"))]
#[test]
fn an_analyzer_that_is_not_built_in_is_reported() {
    let t = Turnwise::new();
    t.run("analyze x --analyzer jieba-1").says(
        2,
        &["this turnwise was built without the dictionary of `jieba-1` (build it with `--features jieba`)"],
    );
}

#[cfg(feature = "jieba")]
#[test]
fn chinese_is_searched_by_dictionary_words() {
    let t = with_samples();
    t.ok("index build -i x --analyzer jieba-1");
    let shown = t.json("analyze -i x 我要申请退款");
    let terms: Vec<&Value> = shown["tokens"].as_array().unwrap().iter().map(|t| &t["term"]).collect();
    assert_eq!(terms, ["我要", "申请", "退款"]);
    let found = t.json("search -i x 退款");
    assert!(!ids(&found).is_empty() && ids(&found).iter().all(|id| id.starts_with("zh-")), "{found}");
}

#[test]
fn dialogues_are_found_as_a_whole_with_their_best_turn() {
    let t = with_samples();
    let args = ["search", "-i", "x", "--of", "dialogues", "-k", "3", "garden centre payments charged twice"];
    let mut as_json = args.to_vec();
    as_json.extend(["--format", "json"]);
    let found = t.run_args(&as_json).json();
    assert_eq!((&found["schema"], &found["of"]), (&json!("turnwise/search/1"), &json!("dialogues")));
    let best = &found["hits"][0];
    assert_eq!((&best["id"], &best["dialogue"]), (&json!("banking-001"), &json!("banking-001")));
    assert_eq!(best["domains"], json!(["banking"]));
    let dialogue = t.dialogues("x").into_iter().find(|d| d["id"] == "banking-001").unwrap();
    assert_eq!(best["turns"], dialogue["turns"].as_array().unwrap().len());
    assert_eq!(best["title"], dialogue["title"]);
    assert!(best["turn"]["text"].as_str().unwrap().contains("garden centre"), "{best}");

    let text = t.run_args(&args).out;
    let first: Vec<&str> = text.lines().take(2).collect();
    let head = format!("banking · {} · {} turns", best["title"].as_str().unwrap(), best["turns"]);
    assert!(first[0].starts_with(" 1. banking-001  ") && first[0].ends_with(&head), "{text}");
    assert!(
        text.contains("    > #1 ") && text.contains("3 hits of ") && text.contains(", lexical search in "),
        "{text}"
    );
    assert!(ids(&t.json("search -i x --of dialogues xylophone")).is_empty());
    assert_eq!(t.json("search -i x plastic")["of"], "utterances");
    assert!(t.json("search -i x plastic")["hits"][0].get("turns").is_none());
}

#[test]
fn a_deleted_dialogue_is_in_no_search() {
    let t = with_samples();
    let line = "search -i x --of dialogues garden";
    assert!(ids(&t.json(line)).contains(&"banking-001"));
    t.ok("delete -i x banking-001");
    assert!(!ids(&t.json(line)).contains(&"banking-001"));
}

#[test]
fn equal_hits_are_sorted_by_descending_id_also_at_the_end_of_the_list() {
    let t = Turnwise::new();
    let records: String =
        (0..300).map(|n| record(&format!("d{:03}", n * 7 % 300), "thank you very much")).collect();
    t.write("in.jsonl", records);
    t.ok("ingest -i x in.jsonl");
    let found = t.run_args(&["search", "-i", "x", "-k", "5", "thank you much", "--format", "json"]).json();
    assert_eq!(ids(&found), ["d299#1", "d298#1", "d297#1", "d296#1", "d295#1"]);
    let found = t
        .run_args(&[
            "search",
            "-i",
            "x",
            "--of",
            "dialogues",
            "-k",
            "3",
            "very much thank",
            "--format",
            "json",
        ])
        .json();
    assert_eq!(ids(&found), ["d299", "d298", "d297"]);
}

#[test]
fn query_syntax_applies_only_with_the_flag() {
    let t = Turnwise::new();
    t.write(
        "in.jsonl",
        record("a", "my parcel is late") + &record("b", "the late parcel") + &record("c", "a parcel"),
    );
    t.ok("ingest -i x in.jsonl");
    let found = |args: &[&str]| {
        let all = [&["search", "-i", "x", "--format", "json"], args].concat();
        let outcome = t.run_args(&all);
        assert_eq!(outcome.code, 0, "{outcome:?}");
        (ids(&outcome.json()).join(" "), outcome.err)
    };
    let nothing = String::new();
    assert_eq!(found(&["--syntax", "+late -\"late parcel\""]), ("a#1".to_owned(), nothing.clone()));
    assert_eq!(found(&["--syntax", "parcel -late"]), ("c#1".to_owned(), nothing.clone()));
    assert_eq!(found(&["--syntax", "\"late parcel\""]), ("b#1".to_owned(), nothing.clone()));
    assert_eq!(found(&["--syntax", "late AND dialogue:a"]), ("a#1".to_owned(), nothing.clone()));
    assert_eq!(found(&["--syntax", "--of", "dialogues", "+moment +my"]), ("a".to_owned(), nothing));
    let (words, output) = found(&["parcel -late"]);
    assert_eq!((words.split(' ').count(), output.as_str()), (3, ""));
    // Every query is accepted, with or without --syntax.
    for text in ["where's my (late parcel?! :-(", "late: \"parcel", "[a TO", "*", "-", "late^x ~2"] {
        found(&["--syntax", text]);
    }
    let (ids, output) = found(&["--syntax", "subject:late parcel"]);
    assert_eq!(output, "warning: in the query: Field does not exist: 'subject'\n");
    assert!(ids.contains("c#1"), "{ids}");
}

#[test]
fn a_lexical_index_of_an_older_version_is_rebuilt_by_the_next_ingest() {
    let t = Turnwise::new();
    t.write("in.jsonl", record("a", "hello"));
    t.ok("ingest -i x in.jsonl");
    // In the old version, the files were in the folder `lexical` itself.
    fs::remove_dir_all(t.path("indexes/x/lexical/dialogues")).unwrap();
    for entry in fs::read_dir(t.path("indexes/x/lexical/utterances")).unwrap() {
        let path = entry.unwrap().path();
        fs::rename(&path, t.path("indexes/x/lexical").join(path.file_name().unwrap())).unwrap();
    }
    fs::remove_dir(t.path("indexes/x/lexical/utterances")).unwrap();
    t.run("search -i x hello").says(
        6,
        &["the lexical index of indexes/x was created by another version of turnwise\nhint: `turnwise index build`"],
    );
    t.ok("verify -i x");
    t.ok("ingest -i x in.jsonl");
    assert_eq!(ids(&t.json("search -i x hello")), ["a#1"]);
}
