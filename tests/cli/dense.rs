//! Tests of dense search and its graphs.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use serde_json::Value;

use crate::support::{SAMPLES, Turnwise, files, record};

fn ids(found: &Value) -> Vec<&str> {
    found["hits"].as_array().unwrap().iter().map(|hit| hit["id"].as_str().unwrap()).collect()
}

/// Creates an index of the sample dialogues, with vectors of a static model.
fn encoded() -> Turnwise {
    let t = Turnwise::new();
    t.ok(&format!("ingest -i x {SAMPLES}"));
    t.ok(&format!("model fit {SAMPLES} -o fitted --dim 64"));
    t.ok("encode -i x --model ./fitted");
    t
}

#[test]
fn an_index_without_vectors_gets_a_hint() {
    let t = Turnwise::new();
    t.ok(&format!("ingest -i x {SAMPLES}"));
    t.run("search -i x --mode dense parcel")
        .says(2, &["indexes/x has no vectors yet\n", "hint: `turnwise encode -i indexes/x` creates them"]);
    t.run("search -i x --mode dense --syntax parcel").says(2, &["--syntax requires a lexical search"]);
    let empty = t.run_args(&["search", "-i", "x", "--mode", "dense", " "]);
    empty.says(2, &["the query is empty"]);
}

#[test]
fn a_graph_search_equals_an_exact_search_after_every_change() {
    let t = encoded();
    let ask = ["search", "-i", "x", "--mode", "dense", "my parcel is late", "--format", "json", "-k", "5"];
    let search = |more: &[&str]| t.run_args(&[&ask[..], more].concat()).json();
    let before = search(&[]);
    assert_eq!((&before["schema"], ids(&before).len()), (&"turnwise/search/1".into(), 5));
    let built = t.ok("index build -i x");
    assert!(built.contains("utterances in a graph of ") && built.contains("recall@10 100.0%"), "{built}");
    assert_eq!(t.ok("index build -i x"), "indexes/x is up to date\n");
    assert_eq!(ids(&search(&[])), ids(&before));
    assert_eq!(ids(&search(&["--exact"])), ids(&before));
    let dialogues = search(&["--of", "dialogues"]);
    assert!(dialogues["of"] == "dialogues" && dialogues["hits"][0]["turns"].as_u64().unwrap() > 1);

    // Deleted dialogues are gone at once. New dialogues are found after `encode`, before the next build.
    let first = ids(&before)[0].split('#').next().unwrap().to_owned();
    t.ok(&format!("delete -i x {first}"));
    assert!(ids(&search(&[])).iter().all(|id| !id.starts_with(&first)));
    t.write("new.jsonl", record("new", "my parcel is late"));
    t.ok("ingest -i x new.jsonl --no-encode");
    let outcome = t.run_args(&ask);
    outcome.says(0, &["dense search cannot find ", "yet; run `turnwise encode -i indexes/x`"]);
    t.ok("encode -i x");
    assert_eq!(ids(&search(&[]))[0], "new#1");
    for builder in ["hnsw_rs", "native"] {
        let json = t.json(&format!("index build -i x --graph {builder}"));
        let manifest = &json["graphs"]["manifest"];
        assert_eq!((&manifest["builder"], &manifest["utterances"]["without"]), (&builder.into(), &0.into()));
        assert_eq!(ids(&search(&[]))[0], "new#1");
    }
}

/// Guard that stops the readers when it is dropped, even if the writer fails.
struct EndsReading<'a>(&'a AtomicBool);

impl Drop for EndsReading<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Processes search while others ingest, delete, build and compact. Every search must find the same best hit.
#[test]
fn two_processes_read_while_one_writes() {
    const ANCHOR: &str = "I want a refund for the broken screen of my phone";
    let t = encoded();
    t.write("anchor.jsonl", record("anchor", ANCHOR));
    t.ok("ingest -i x anchor.jsonl");
    t.ok("index build -i x");
    let more: String =
        (0..300).map(|n| record(&format!("more-{n:03}"), &format!("parcel number {n} is late"))).collect();
    t.write("more.jsonl", more);
    let done = AtomicBool::new(false);
    let read = |mode: &str| {
        let mut times = 0;
        while !done.load(Ordering::Relaxed) || times == 0 {
            let ask = ["search", "-i", "x", "--mode", mode, ANCHOR, "-k", "3", "--format", "json"];
            let found = t.run_args(&ask).json();
            assert_eq!(ids(&found)[0], "anchor#1", "{mode}: {found}");
            times += 1;
        }
        times
    };
    let (dense, words) = thread::scope(|scope| {
        let (dense, words) = (scope.spawn(|| read("dense")), scope.spawn(|| read("bm25")));
        let writing = EndsReading(&done);
        for line in [
            "ingest -i x more.jsonl",
            "index build -i x --graph hnsw_rs",
            "delete -i x more-000 more-001",
            "index rebuild -i x",
            "index compact -i x",
        ] {
            t.ok(line);
        }
        drop(writing);
        (dense.join().unwrap(), words.join().unwrap())
    });
    assert!(dense > 2 && words > 2, "{dense} {words}");
    t.ok("verify -i x");
}

#[test]
fn a_damaged_graph_is_reported_and_rebuilt() {
    let t = encoded();
    t.ok("index build -i x");
    t.ok("verify -i x");
    let sound = t.ok("verify -i x --recall");
    assert!(sound.contains(" recall@10 100.0% when built, now 100.0%\n"), "{sound}");
    let all = files(&t.path("indexes/x/graphs"));
    let (path, good) = all.iter().find(|(path, _)| path.ends_with("utterances.graph")).unwrap();
    let mut bad = good.clone();
    let middle = bad.len() / 2;
    bad[middle] ^= 4;
    fs::write(path, bad).unwrap();
    let outcome = t.run("verify -i x");
    assert!(outcome.code == 4 && outcome.out.contains("utterances.graph: block "), "{outcome:?}");
    assert!(outcome.out.contains("`turnwise repair` rebuilds the graphs"), "{outcome:?}");
    fs::write(path, &good[..good.len() / 3]).unwrap();
    t.run("search -i x --mode dense parcel").says(4, &["utterances.graph: the file ends inside its "]);
    t.ok("index build -i x --graph hnsw_rs");
    t.ok("verify -i x");
    let search = t.ok("search -i x --mode dense parcel --format json");
    let hits = |printed: &str| serde_json::from_str::<Value>(printed).unwrap()["hits"].clone();

    // `repair` also rebuilds the graphs, with the same builder, and the lexical index.
    let all = files(&t.path("indexes/x/graphs"));
    let (path, good) = all.iter().find(|(path, _)| path.ends_with("dialogues.graph")).unwrap();
    fs::write(path, &good[..good.len() / 2]).unwrap();
    let all = files(&t.path("indexes/x/lexical"));
    let (path, good) = all.iter().find(|(path, _)| path.extension().is_some_and(|e| e == "idx")).unwrap();
    fs::write(path, &good[..good.len() / 2]).unwrap();
    assert_eq!(t.run("verify -i x").code, 4);
    t.run("repair -i x").says(
        0,
        &["the lexical index is damaged; it is rebuilt", "the vector graphs are damaged; they are rebuilt"],
    );
    t.ok("verify -i x");
    assert_eq!(hits(&t.ok("search -i x --mode dense parcel --format json")), hits(&search));
    assert_eq!(t.json("index info -i x")["graphs"]["builder"], "hnsw_rs");
    let again = t.run("repair -i x");
    assert!(again.code == 0 && !again.err.contains("damaged"), "{again:?}");
}

#[test]
fn another_encoder_under_the_same_name_is_refused_with_both_fingerprints() {
    let t = encoded();
    t.ok("model fit in.jsonl -o other --dim 64"
        .replace("in.jsonl", SAMPLES)
        .replace("--dim 64", "--dim 32")
        .as_str());
    fs::remove_dir_all(t.path("fitted")).unwrap();
    fs::rename(t.path("other"), t.path("fitted")).unwrap();
    t.run("search -i x --mode dense parcel").says(
        2,
        &["were made by a different encoder", " and is now ", "`turnwise encode -i indexes/x --replace`"],
    );
}
