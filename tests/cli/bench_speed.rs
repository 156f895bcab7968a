//! Tests of `bench ann`, `bench throughput` and `bench smoke`. They do not test the speed itself.

use crate::support::{SAMPLES, Turnwise, record, records};

#[test]
fn graph_settings_are_measured_on_an_index() {
    let t = Turnwise::new();
    let model = t.model();
    t.ok(&format!("ingest -i chats {SAMPLES} --no-encode"));
    t.run("bench ann -i chats").says(2, &["has no vectors"]);
    t.ok(&format!("encode -i chats --model {model}"));
    let line = "bench ann -i chats --queries 100 --ef 10,200 --graph native --graph hnsw_rs";
    let measured = t.json(line);
    assert_eq!(measured["schema"], "turnwise/bench-ann/1");
    assert_eq!((&measured["queries"], &measured["exact"]["recall"]), (&100.into(), &1.0.into()));
    for graph in measured["graphs"].as_array().unwrap() {
        let recall = |n: usize| graph["settings"][n]["recall"].as_f64().unwrap();
        assert!(recall(0) <= recall(1) && recall(1) > 0.95, "{graph}");
        assert!(graph["build_seconds"].as_f64().unwrap() > 0.0 && graph["file_bytes"].as_u64().unwrap() > 0);
    }
    // The index is unchanged, and only the result file is left.
    assert!(t.ok("verify -i chats").contains("chats"));
    assert_eq!(std::fs::read_dir(t.path("benchmark-results")).unwrap().count(), 1);
    let out = t.ok(line);
    assert!(out.contains("native, m 16, ef 128, 32 bits") && out.contains("exact search"), "{out}");
    t.ok("bench report -o a.html");
    let page = t.read("a.html");
    assert!(page.contains("<polyline") && page.contains("queries per second against recall"), "{page}");
    t.run("bench ann -i nothing").says(2, &["nothing"]);
    t.run("bench ann -i chats --ef 0").says(2, &["must be a positive integer"]);
}

#[test]
fn graph_settings_are_measured_on_files() {
    let t = Turnwise::new();
    let model = t.model();
    let texts =
        |from: usize, to: usize| (from..to).map(|n| format!("text {n} of {}\n", n % 7)).collect::<String>();
    t.write("base.txt", texts(0, 300));
    t.write("queries.txt", texts(300, 330));
    t.ok(&format!("embed base.txt -o base.npy --model {model}"));
    t.ok(&format!("embed queries.txt -o queries.npy --model {model}"));
    let measured = t.json("bench ann --vectors base.npy --query-vectors queries.npy --ef 100 -k 5 --half");
    assert_eq!(
        (&measured["vectors"], &measured["queries"], &measured["k"]),
        (&300.into(), &30.into(), &5.into())
    );
    assert_eq!(measured["graphs"][0]["bits"], 16);
    t.run("bench ann --vectors base.npy --query-vectors queries.npy -k 301")
        .says(3, &["for the 301 nearest"]);
    t.run("bench ann --vectors base.txt").says(3, &["base.txt: not a NumPy file"]);
}

#[test]
fn throughput_measures_each_step() {
    let t = Turnwise::new();
    let model = t.model();
    let measured = t.json(&format!("bench throughput {SAMPLES} --model {model} --queries 20"));
    assert_eq!((&measured["dialogues"], &measured["searches"][2]["queries"]), (&280.into(), &20.into()));
    let steps: Vec<&str> =
        measured["steps"].as_array().unwrap().iter().map(|s| s["step"].as_str().unwrap()).collect();
    assert_eq!(steps, ["ingest", "lexical index", "encode", "encode", "graphs"]);
    assert!(
        measured["steps"].as_array().unwrap().iter().all(|s| s["count"].as_u64().unwrap() > 0),
        "{measured}"
    );
    // The temporary index is removed.
    assert_eq!(std::fs::read_dir(t.path("benchmark-results")).unwrap().count(), 1);
    t.ok("bench report -o a.md");
    assert!(t.read("a.md").contains("| hybrid |"));
}

#[test]
fn a_turn_without_words_does_not_stop_the_throughput_benchmark() {
    let t = Turnwise::new();
    let model = t.model();
    t.write("in.jsonl", format!("{}{}", record("dots", "…………"), records(3)));
    t.ok(&format!("bench throughput in.jsonl --model {model}"));
}

#[test]
fn the_smoke_test_passes() {
    let t = Turnwise::new();
    let out = t.ok("bench smoke");
    assert!(out.contains("all checks passed"), "{out}");
    for step in ["similarity", "response selection", "judged by eval", "recall and speed"] {
        assert!(out.contains(step), "{out}");
    }
    assert!(t.read("benchmark-results/smoke/report.html").contains("<polyline"));
    // A second run replaces the existing results.
    assert_eq!(t.json("bench smoke")["wrong"], serde_json::json!([]));
}
