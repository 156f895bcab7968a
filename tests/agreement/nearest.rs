//! Tests dense search among real texts with the default model. Compares exact searches with NumPy, and graph searches
//! with exact searches.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::support::{CLOSE, Peers, Work, default_model, skip, text, turnwise};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/data/intents_banking77.tar.zst");
/// Number of indexed texts. Much smaller sets are searched without a graph.
const TEXTS: usize = 3_000;
const QUERIES: usize = 200;
const K: usize = 10;

/// Distinct questions of bank customers with their ids, sorted by id. The last [`QUERIES`] are not in the index.
struct Questions {
    work: Work,
    all: Vec<(String, String)>,
}

impl Questions {
    fn find(test: &str) -> Option<Self> {
        if !Path::new(DATA).exists() {
            skip(test, &format!("{DATA} is not on this machine"));
            return None;
        }
        let work = Work::new();
        tar::Archive::new(zstd::Decoder::new(fs::File::open(DATA).unwrap()).unwrap())
            .unpack(work.path("data"))
            .unwrap();
        let all = work.path("all.jsonl");
        turnwise(&["corpus", "convert", text(&work.path("data")), "-o", text(&all)]).unwrap();
        let mut seen = std::collections::BTreeMap::new();
        for line in fs::read_to_string(all).unwrap().lines() {
            let dialogue: Value = serde_json::from_str(line).unwrap();
            let question = dialogue["turns"][0]["text"].as_str().unwrap().to_owned();
            seen.entry(question).or_insert_with(|| dialogue["id"].as_str().unwrap().to_owned());
        }
        let mut all: Vec<(String, String)> = seen.into_iter().map(|(text, id)| (id, text)).collect();
        all.sort();
        // Select evenly spaced questions, because questions with the same intent are adjacent.
        let step = all.len() / (TEXTS + QUERIES);
        let all: Vec<_> = all.into_iter().step_by(step).take(TEXTS + QUERIES).collect();
        assert_eq!(all.len(), TEXTS + QUERIES);
        Some(Questions { work, all })
    }

    /// Creates an index of all texts except the queries, without graphs.
    fn index(&self, model: &Path, precision: &str) {
        let line = |(id, text): &(String, String)| {
            format!("{}\n", json!({"id": id, "turns": [{"role": "user", "text": text}]}))
        };
        fs::write(self.work.path("in.jsonl"), self.all[..TEXTS].iter().map(line).collect::<String>())
            .unwrap();
        let index = self.work.path("x");
        turnwise(&["ingest", "-i", text(&index), text(&self.work.path("in.jsonl")), "--no-encode"]).unwrap();
        turnwise(&["encode", "-i", text(&index), "--model", text(model), "--precision", precision]).unwrap();
        let query = |(id, text): &(String, String)| format!("{}\n", json!({"id": id, "query": text}));
        fs::write(self.work.path("q.jsonl"), self.all[TEXTS..].iter().map(query).collect::<String>())
            .unwrap();
    }

    /// Returns the ids and scores of the hits of each query.
    fn search(&self, more: &[&str]) -> Vec<Vec<(String, f64)>> {
        let (index, queries) = (self.work.path("x"), self.work.path("q.jsonl"));
        let k = K.to_string();
        let mut args = vec!["search", "-i", text(&index), "--mode", "dense", "-k", &k];
        args.extend(["--queries", text(&queries)]);
        args.extend(more);
        let hit = |hit: &Value| {
            let id = hit["id"].as_str().unwrap().trim_end_matches("#1");
            (id.to_owned(), hit["score"].as_f64().unwrap())
        };
        let found = |line: &str| {
            let found: Value = serde_json::from_str(line).unwrap();
            found["hits"].as_array().unwrap().iter().map(hit).collect()
        };
        turnwise(&args).unwrap().lines().map(found).collect()
    }
}

#[test]
fn exact_search_agrees_with_numpy() {
    let test = "exact_search_agrees_with_numpy";
    let (Some(model), Some(peers), Some(questions)) =
        (default_model(test), Peers::find(test), Questions::find(test))
    else {
        return;
    };
    questions.index(model, "f32");
    let found = questions.search(&["--exact"]);
    let texts: Vec<&str> = questions.all.iter().map(|(_, text)| text.as_str()).collect();
    let texts = questions.work.texts("texts.jsonl", &texts);
    questions.work.embed(model, &texts, &["--precision", "f32"]);
    let vectors = questions.work.path("ours.npy");
    let theirs = peers.reference(&["nearest", text(&vectors), &TEXTS.to_string(), &K.to_string()]);
    let theirs: Vec<Vec<(usize, f64)>> = serde_json::from_str(&theirs).unwrap();
    assert_eq!((found.len(), theirs.len()), (QUERIES, QUERIES));
    for (found, theirs) in found.iter().zip(&theirs) {
        assert_eq!((found.len(), theirs.len()), (K, K));
        for (place, (hit, other)) in found.iter().zip(theirs).enumerate() {
            assert!((hit.1 - other.1).abs() < f64::from(CLOSE), "{hit:?} {other:?}");
            // A different text is allowed only if it has the same score.
            let id = &questions.all[other.0].0;
            let as_near = theirs.iter().filter(|o| (o.1 - other.1).abs() < f64::from(CLOSE)).count() > 1;
            assert!(hit.0 == *id || as_near || place + 1 == K, "{hit:?} {id} {other:?}");
        }
    }
}

#[test]
fn graph_search_has_high_recall_on_real_texts() {
    let test = "graph_search_has_high_recall_on_real_texts";
    let (Some(model), Some(questions)) = (default_model(test), Questions::find(test)) else { return };
    questions.index(model, "int8");
    let exact = questions.search(&["--exact"]);
    let index = questions.work.path("x");
    for builder in ["hnsw_rs", "native"] {
        let built = turnwise(&["index", "build", "-i", text(&index), "--graph", builder, "--format", "json"])
            .unwrap();
        let built: Value = serde_json::from_str(&built).unwrap();
        let utterances = &built["graphs"]["manifest"]["utterances"];
        assert_eq!((&utterances["nodes"], &utterances["recall_queries"]), (&TEXTS.into(), &1_000.into()));
        assert!(utterances["recall"].as_f64().unwrap() >= 0.99, "{builder}: {utterances}");
        let mut there = 0;
        for (walked, exact) in questions.search(&[]).iter().zip(&exact) {
            let least = exact[K - 1].1;
            there += walked.iter().filter(|hit| hit.1 >= least).count();
            // A graph search also computes the scores from the vectors, so they equal those of the exact search.
            let known = |id: &str| exact.iter().find(|hit| hit.0 == id);
            assert!(walked.iter().all(|hit| known(&hit.0).is_none_or(|other| other.1 == hit.1)));
        }
        assert!(there as f64 >= 0.98 * (K * QUERIES) as f64, "{builder}: {there} of {}", K * QUERIES);
    }
}
