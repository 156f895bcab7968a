//! Tests of `bench` with the tasks of the papers DialogueCSE and dial2vec, on small files.

use serde_json::{Value, json};

use crate::support::{SAMPLES, Turnwise};

/// Returns a retrieval set with two intents. Sentences with the same intent share a word.
pub(crate) fn select() -> String {
    let texts = [
        "lost my card",
        "card is gone",
        "where is the card",
        "send a parcel",
        "parcel is late",
        "parcel was lost",
    ];
    let line = |n: usize| {
        let of = |same: bool| {
            let ids = (0..6).filter(|other| *other != n && ((other / 3 == n / 3) == same));
            ids.map(|id| id.to_string()).collect::<Vec<_>>().join(",")
        };
        format!("{n}\t{}\tintent{}\t{}\t{}\n", texts[n], n / 3, of(true), of(false))
    };
    (0..6).map(line).collect()
}

pub(crate) fn value(results: &Value, ranker: usize, measure: &str) -> f64 {
    let values = results[ranker]["values"].as_array().unwrap();
    values.iter().find(|v| v["measure"] == measure).unwrap()["value"].as_f64().unwrap()
}

#[test]
fn semantic_retrieval_compares_several_rankers_with_the_random_baseline() {
    let t = Turnwise::new();
    t.write("select.txt", select());
    let model = t.model();
    let results = t.json(&format!(
        "bench sr select.txt -r bm25 -r tfidf:pairs -r hybrid -r random -r model+center --model {model}"
    ));
    assert_eq!(results.as_array().unwrap().len(), 5);
    assert_eq!(results[0]["schema"], "turnwise/bench/2");
    // Half of the words occur in both intents.
    assert!(value(&results, 0, "MAP") > 0.75 && value(&results, 2, "MAP") > 0.9, "{results}");
    // Two of five candidates are positive. The random baseline is the mean over the ten possible orders, computed by
    // hand.
    let floor = results[0]["values"][0]["floor"].as_f64().unwrap();
    assert!((floor - 0.5925).abs() < 1e-9, "{floor}");
    let each = results[0]["values"][0]["each"].as_array().unwrap();
    assert_eq!((each.len(), results[0]["queries"].as_array().unwrap().len()), (6, 6));
    let out = t.ok("bench sr select.txt -r bm25");
    assert!(out.contains("6 queries, 5 candidates each, 2 of them positive"), "{}", out);
    assert!(out.contains("random baseline  59.3"), "{}", out);
}

#[test]
fn saved_results_are_reused_unless_rerun_is_set() {
    let t = Turnwise::new();
    t.write("select.txt", select());
    let first = t.json("bench sr select.txt -r bm25");
    let again = t.json("bench sr select.txt -r bm25");
    assert_eq!(first, again, "a new run would report other seconds");
    assert!(t.run("bench sr select.txt -r bm25 -v").err.contains("BM25: already done, result in "));
    let rerun = t.json("bench sr select.txt -r bm25 --rerun");
    assert_ne!(first[0]["seconds"], rerun[0]["seconds"]);
    // A result with other data or a different ranker is computed.
    t.write("select.txt", select().replace("gone", "away"));
    assert!(!t.run("bench sr select.txt -r bm25 -v").err.contains("already done"));
    assert!(!t.run("bench sr select.txt -r bm25:pairs -v").err.contains("already done"));
}

#[test]
fn an_exported_run_has_the_same_measures_for_other_tools() {
    let t = Turnwise::new();
    t.write("select.txt", select());
    let results = t.json("bench sr select.txt -r tfidf --export runs");
    let files: Vec<String> =
        std::fs::read_dir(t.path("runs")).unwrap().map(|e| e.unwrap().path().display().to_string()).collect();
    let file = |ending: &str| files.iter().find(|f| f.ends_with(ending)).unwrap().clone();
    let judged = t.json(&format!("eval {} {} -m map -m recip_rank", file(".qrels"), file(".run")));
    assert!((judged["all"]["map"].as_f64().unwrap() - value(&results, 0, "MAP")).abs() < 1e-12);
    assert!((judged["all"]["recip_rank"].as_f64().unwrap() - value(&results, 0, "MRR")).abs() < 1e-12);
}

#[test]
fn two_results_are_compared_query_by_query() {
    let t = Turnwise::new();
    t.write("select.txt", select());
    t.ok("bench sr select.txt -r bm25 -r random");
    let mut files: Vec<String> = std::fs::read_dir(t.path("benchmark-results"))
        .unwrap()
        .map(|e| e.unwrap().path().display().to_string())
        .collect();
    files.sort();
    let compared = t.json(&format!("bench compare {} {}", files[1], files[0]));
    let map = &compared["differences"][0];
    assert_eq!((&map["measure"], &map["queries"]), (&"MAP".into(), &6.into()));
    let (low, high) = (map["interval"][0].as_f64().unwrap(), map["interval"][1].as_f64().unwrap());
    let apart = map["b"].as_f64().unwrap() - map["a"].as_f64().unwrap();
    assert!(low <= apart && apart <= high && low < high, "{map}");
    t.write("sts.txt", "5\ta b\ta b\n1\ta b\tc d\n");
    t.ok("bench dsts sts.txt -r tfidf --results others");
    let other =
        std::fs::read_dir(t.path("others")).unwrap().next().unwrap().unwrap().path().display().to_string();
    t.run(&format!("bench compare {} {other}", files[0]))
        .says(2, &["both results must be of the same task on the same data"]);
    t.run("bench compare select.txt select.txt").says(3, &["select.txt is not a result of `turnwise bench`"]);
}

#[test]
fn the_dialogue_tasks_omit_measures_that_a_ranker_does_not_support() {
    let t = Turnwise::new();
    let results = t.json(&format!("bench dialogues {SAMPLES} -r bm25 -r tfidf-svd:16 -r lda --seed 3"));
    let measures = |n: usize| -> Vec<String> {
        let values = results[n]["values"].as_array().unwrap();
        values.iter().map(|v| v["measure"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(measures(0), ["MAP", "MRR", "Spearman"]);
    let all = [
        "MAP",
        "MRR",
        "Spearman",
        "purity",
        "NMI",
        "ARI",
        "accuracy",
        "alignment",
        "adjusted alignment",
        "uniformity",
    ];
    assert_eq!(
        (measures(1), measures(2)),
        (all.map(str::to_owned).to_vec(), all.map(str::to_owned).to_vec())
    );
    let floor = results[0]["values"][0]["floor"].as_f64().unwrap();
    assert!(value(&results, 0, "MAP") > 1.5 * floor, "{floor}");
    // The same seed results in the same values. The profile `code` computes relatedness differently.
    let again = t.json(&format!("bench dialogues {SAMPLES} -r lda --seed 3 --rerun --threads 1"));
    assert_eq!(again[0]["values"], results[2]["values"]);
    let code = t.json(&format!("bench dialogues {SAMPLES} -r lda --seed 3 --profile code"));
    assert_ne!(value(&code, 0, "Spearman"), value(&results, 2, "Spearman"));
    assert_eq!(value(&code, 0, "MAP"), value(&results, 2, "MAP"));
}

#[test]
fn responses_are_selected_in_both_layouts() {
    let t = Turnwise::new();
    let sample = json!({"id": "s1", "context": [{"role": "a", "text": "my parcel is late"}],
                        "candidates": ["good morning", "the parcel is on its way", "what"], "answer": 1});
    t.write("samples.jsonl", format!("{sample}\n"));
    let by_json = t.json("bench response samples.jsonl -r bm25");
    t.write("samples.tsv", "1\tmy parcel is late\tthe parcel is on its way\n0\tmy parcel is late\tgood morning\n0\tmy parcel is late\twhat\n");
    let by_lines = t.json("bench response samples.tsv -r bm25");
    for results in [by_json, by_lines] {
        assert_eq!((value(&results, 0, "R@1"), value(&results, 0, "MRR")), (1.0, 1.0));
        assert!((results[0]["values"][0]["floor"].as_f64().unwrap() - 1.0 / 3.0).abs() < 1e-12);
    }
}

#[test]
fn contexts_of_response_selection_can_be_chosen_by_length_and_shortened() {
    let t = Turnwise::new();
    let sample = |id: &str, turns: &[&str]| {
        let context: Vec<Value> = turns.iter().map(|text| json!({"role": "a", "text": text})).collect();
        json!({"id": id, "context": context, "candidates": ["red apples", "blue whales"], "answer": 0})
            .to_string()
    };
    let long = sample("long", &["blue", "whales swim far", "apples"]);
    t.write("samples.jsonl", format!("{}\n{long}\n", sample("short", &["apples"])));
    let found = |options: &str| t.json(&format!("bench response samples.jsonl -r bm25 {options}"));
    let number = |results: &Value| results[0]["values"][0]["each"].as_array().map_or(0, Vec::len);
    assert_eq!(number(&found("")), 2);
    for options in ["--min-turns 3", "--min-words 5"] {
        let results = found(options);
        assert_eq!((number(&results), value(&results, 0, "R@1")), (1, 0.0), "{results}");
    }
    // Without the turns about whales, the word "apples" decides.
    let results = found("--min-turns 2 --without-turns 1,2");
    assert_eq!((number(&results), value(&results, 0, "R@1")), (1, 1.0));
    t.run("bench response samples.jsonl -r bm25 --min-turns 4").says(
        3,
        &["no sample is left: the contexts of 2 samples are too short", "lower --min-turns or --min-words"],
    );
    t.run("bench response samples.jsonl -r bm25 --without-turns 0").says(2, &["turns are counted from 1"]);
}

#[test]
fn the_whole_corpus_of_a_beir_folder_is_searched() {
    let t = Turnwise::new();
    t.write("beir/corpus.jsonl", "{\"_id\": \"d1\", \"title\": \"Parcels\", \"text\": \"late\"}\n{\"_id\": \"d2\", \"text\": \"cards\"}\n{\"_id\": \"d3\", \"text\": \"nothing\"}\n");
    t.write(
        "beir/queries.jsonl",
        "{\"_id\": \"q1\", \"text\": \"late parcels\"}\n{\"_id\": \"q2\", \"text\": \"my cards\"}\n",
    );
    t.write(
        "beir/qrels/test.tsv",
        "query-id\tcorpus-id\tscore\nq1\td1\t2\nq2\td2\t1\nq2\td9\t1\nq7\td1\t1\n",
    );
    let results = t.json("bench adhoc beir -r bm25");
    assert_eq!((value(&results, 0, "nDCG@10"), value(&results, 0, "R@100")), (1.0, 1.0));
    let skipped: Vec<&str> =
        results[0]["skipped"].as_array().unwrap().iter().map(|s| s["what"].as_str().unwrap()).collect();
    assert_eq!(
        skipped,
        ["judged documents that are not in corpus.jsonl", "judged queries that are not in queries.jsonl"]
    );
}

#[test]
fn invalid_input_is_reported_or_counted() {
    let t = Turnwise::new();
    t.write("columns.txt", "0\tlost card\tx\t1\n");
    t.run("bench sr columns.txt")
        .says(3, &["columns.txt:1: a line of select.txt has 5 columns", "this one has 4"]);
    t.write("twice.txt", "0\ta\tx\t1\t2\n0\tb\tx\t1\t2\n");
    t.run("bench sr twice.txt").says(3, &["twice.txt:2: duplicate id `0`"]);
    t.write("both.txt", "0\ta\tx\t1\t1\n1\tb\tx\t0\t\n");
    t.run("bench sr both.txt").says(3, &["both.txt:1: the id `1` is both positive and negative"]);
    t.write(
        "range.txt",
        select().replace("0\tlost my card\tintent0\t1,2", "0\tlost my card\tintent0\t1,2,99").replacen(
            "\t0,1\t3,4,5\n",
            "\t\t3,4,5\n",
            1,
        ),
    );
    let out = t.ok("bench sr range.txt -r bm25");
    assert!(out.contains("skipped: 1 candidates with an unknown id (99 on line 1)"), "{out}");
    assert!(out.contains("skipped: 1 queries without a positive candidate (2)"), "{out}");
    t.write("sts.txt", "5\ta\tb\nhigh\ta\tb\n");
    t.run("bench dsts sts.txt").says(3, &["sts.txt:2: the score `high` is not a finite number"]);
    t.write("same.txt", "5\ta b\ta b\n5\tc d\tc d\n");
    t.run("bench dsts same.txt -r tfidf")
        .says(3, &["all pairs have the same score, and a correlation cannot be computed"]);
    t.write(
        "answer.jsonl",
        "{\"id\": \"s\", \"context\": [{\"text\": \"a\"}], \"candidates\": [\"b\"], \"answer\": 4}\n",
    );
    t.run("bench response answer.jsonl")
        .says(3, &["answer.jsonl:1: the answer is 4, but there are only 1 candidates, counted from 0"]);
    t.write("select.txt", select());
    t.run("bench sr select.txt -r bm52").says(2, &["unknown ranker `bm52`", "did you mean `bm25`?"]);
    t.run("bench sr select.txt -r lda:x")
        .says(2, &["`x` in the ranker `lda:x` must be a number from 2 to 4096"]);
    t.run("bench sr nothing.txt").says(2, &["cannot read nothing.txt"]);
    t.run("bench dsts sts.txt --export runs -r bm25").says(3, &["sts.txt:2"]);
}

#[test]
fn given_vectors_can_be_ranked() {
    let t = Turnwise::new();
    t.write("select.txt", select());
    let model = t.model();
    let texts: String =
        select().lines().map(|line| line.split('\t').nth(1).unwrap().to_owned() + "\n").collect();
    t.write("texts.txt", texts);
    t.ok(&format!("embed texts.txt -o v.npy --model {model}"));
    let results = t.json(&format!("bench sr select.txt -r vectors:v.npy -r model --model {model}"));
    assert_eq!(results[0]["values"], results[1]["values"]);
    t.write("other.txt", "0\ta\tx\t1\t2\n1\tb\tx\t0\t2\n2\tc\ty\t\t0,1\n");
    t.run("bench sr other.txt -r vectors:v.npy").says(3, &["v.npy has 6 rows, but the task has 3 documents"]);
    t.run("bench sr other.txt -r vectors:other.txt").says(3, &["other.txt: not a NumPy file"]);
}

#[test]
fn only_models_with_token_vectors_can_rerank() {
    let t = Turnwise::new();
    t.write("select.txt", select());
    let model = t.model();
    for line in ["bench sr select.txt -r maxsim".to_owned(), format!("bench dialogues {SAMPLES} -r matching")]
    {
        t.run(&format!("{line} --model {model}")).says(2, &["has no token vectors"]);
    }
}

#[test]
fn several_seeds_give_mean_and_deviation() {
    let t = Turnwise::new();
    t.write("select.txt", select());
    let line = "bench sr select.txt -r random -r bm25 --seeds 3 --seed 5";
    let results = t.json(line);
    assert_eq!(results[0]["seeds"], json!([5, 6, 7]));
    let each: Vec<f64> = (5..8)
        .map(|seed| value(&t.json(&format!("bench sr select.txt -r random --seed {seed}")), 0, "MAP"))
        .collect();
    let mean = each.iter().sum::<f64>() / 3.0;
    assert!((value(&results, 0, "MAP") - mean).abs() < 1e-12, "{each:?}");
    assert!(results[0]["values"][0]["deviation"].as_f64().unwrap() > 0.0);
    // A ranker without random choices has the same values with every seed.
    assert_eq!(results[1]["values"][0]["deviation"], 0.0);
    assert!(t.ok(line).contains("mean ± deviation over 3 seeds"));
    t.run("bench sr select.txt -r bm25 --seeds 0").says(2, &["0 is not in 1..=1000"]);
}

#[test]
fn modifiers_change_how_a_model_ranks() {
    let t = Turnwise::new();
    let model = t.model();
    let turns =
        json!([{"speaker": "a", "text": "my card is gone"}, {"speaker": "b", "text": "your parcel is here"}]);
    let other =
        json!([{"speaker": "a", "text": "my card is lost"}, {"speaker": "b", "text": "where is the bank"}]);
    let line = |n: usize| {
        let (domain, turns) = if n.is_multiple_of(2) { ("x", &turns) } else { ("y", &other) };
        format!("{}\n", json!({"id": format!("d{n}"), "domains": [domain], "turns": turns}))
    };
    t.write("d.jsonl", (0..6).map(line).collect::<String>());
    let rankers =
        ["", "+utterances", "+interlocutors", "+first-speaker", "+other-speakers+centre", "+last-1"];
    let rankers: Vec<String> = rankers.iter().map(|r| format!("-r model{r}")).collect();
    let results =
        t.json(&format!("bench dialogues d.jsonl --profile code {} --model {model}", rankers.join(" ")));
    let names: Vec<&str> =
        results.as_array().unwrap().iter().map(|r| r["ranker"].as_str().unwrap()).collect();
    assert!(names[4].ends_with("+other-speakers+center"), "{names:?}");
    let identities: std::collections::HashSet<String> =
        (0..6).map(|n| results[n]["identity"].to_string()).collect();
    assert_eq!(identities.len(), 6, "{identities:?}");
    t.run(&format!("bench dialogues d.jsonl -r model+cls --model {model}"))
        .says(2, &["is a static encoder: it has no tokens, layers or maximum length"]);
    t.run("bench dialogues d.jsonl -r model+centr")
        .says(2, &["unknown model suffix `centr`", "did you mean `center`?"]);
    t.write("select.txt", select());
    t.ok("bench sr select.txt -r bm25 --profile code");
}

#[test]
fn dialogues_with_a_string_domain_are_accepted() {
    let t = Turnwise::new();
    let line = |n: usize| {
        let (domain, word) = if n.is_multiple_of(2) { ("bank", "card") } else { ("post", "parcel") };
        json!({"id": format!("d{n}"), "domain": domain, "domains": [domain],
               "turns": [{"role": "user", "text": format!("my {word} {n}")}, {"role": "agent", "text": "I see"}]})
    };
    t.write("others.jsonl", (0..8).map(|n| format!("{}\n", line(n))).collect::<String>());
    let results = t.json("bench dialogues others.jsonl -r bm25 -r tfidf-svd:2");
    assert_eq!(value(&results, 0, "MAP"), 1.0);
    let map = &results[1]["map"];
    assert_eq!(map["names"], json!(["bank", "post"]));
    assert_eq!((map["points"].as_array().unwrap().len(), &map["labels"][1]), (8, &json!(1)));
}
