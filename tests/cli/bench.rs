//! The papers' tasks, on files written for it.

use serde_json::{Value, json};

use crate::support::{SAMPLES, Turnwise};

/// Two intents; what is of one shares a word.
fn select() -> String {
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

fn value(results: &Value, ranker: usize, measure: &str) -> f64 {
    let values = results[ranker]["values"].as_array().unwrap();
    values.iter().find(|v| v["measure"] == measure).unwrap()["value"].as_f64().unwrap()
}

#[test]
fn semantic_retrieval_by_several_rankers_with_the_floor_of_the_list() {
    let t = Turnwise::new();
    t.write("select.txt", select());
    let model = t.model();
    let results = t.json(&format!(
        "bench sr select.txt -r bm25 -r tfidf:pairs -r hybrid -r random -r model+centre --model {model}"
    ));
    assert_eq!(results.as_array().unwrap().len(), 5);
    assert_eq!(results[0]["schema"], "turnwise/bench/1");
    // Half of the words stand in both intents.
    assert!(value(&results, 0, "MAP") > 0.75 && value(&results, 2, "MAP") > 0.9, "{results}");
    // Two of five are positive: worked out by hand over the ten orders.
    let floor = results[0]["values"][0]["floor"].as_f64().unwrap();
    assert!((floor - 0.5925).abs() < 1e-9, "{floor}");
    let each = results[0]["values"][0]["each"].as_array().unwrap();
    assert_eq!((each.len(), results[0]["queries"].as_array().unwrap().len()), (6, 6));
    let out = t.ok("bench sr select.txt -r bm25");
    assert!(out.contains("6 queries, 5 candidates each, 2 of them positive"), "{}", out);
    assert!(out.contains("any order  59.3"), "{}", out);
}

#[test]
fn what_is_done_is_not_done_again_unless_asked() {
    let t = Turnwise::new();
    t.write("select.txt", select());
    let first = t.json("bench sr select.txt -r bm25");
    let again = t.json("bench sr select.txt -r bm25");
    assert_eq!(first, again, "its seconds would differ");
    assert!(t.run("bench sr select.txt -r bm25 -v").err.contains("BM25: done before, in "));
    let rerun = t.json("bench sr select.txt -r bm25 --rerun");
    assert_ne!(first[0]["seconds"], rerun[0]["seconds"]);
    // Other data, or another ranker, is another result.
    t.write("select.txt", select().replace("gone", "away"));
    assert!(!t.run("bench sr select.txt -r bm25 -v").err.contains("done before"));
    assert!(!t.run("bench sr select.txt -r bm25:pairs -v").err.contains("done before"));
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
        .says(2, &["only results of one task on the same data can be compared"]);
    t.run("bench compare select.txt select.txt").says(3, &["select.txt is no result of `turnwise bench`"]);
}

#[test]
fn the_dialogue_tasks_tell_what_each_ranker_can_be_asked() {
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
    // The same again, of a seed; the code's profile asks otherwise.
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
fn a_folder_of_beir_is_searched_whole() {
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
    assert_eq!(skipped, ["judged documents that there are not", "judged queries that there are not"]);
}

#[test]
fn bad_input_is_told_or_counted() {
    let t = Turnwise::new();
    t.write("columns.txt", "0\tlost card\tx\t1\n");
    t.run("bench sr columns.txt")
        .says(3, &["columns.txt:1: a line of select.txt has 5 columns", "this has 4"]);
    t.write("twice.txt", "0\ta\tx\t1\t2\n0\tb\tx\t1\t2\n");
    t.run("bench sr twice.txt").says(3, &["twice.txt:2: the id `0` stands here for the second time"]);
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
    assert!(out.contains("left out: 1 candidates whose id no line has (99 of line 1)"), "{out}");
    assert!(out.contains("left out: 1 queries without a positive candidate (2)"), "{out}");
    t.write("sts.txt", "5\ta\tb\nhigh\ta\tb\n");
    t.run("bench dsts sts.txt").says(3, &["sts.txt:2: the score `high` is no finite number"]);
    t.write("same.txt", "5\ta b\ta b\n5\tc d\tc d\n");
    t.run("bench dsts same.txt -r tfidf")
        .says(3, &["all pairs have one score, so that nothing can be told of it"]);
    t.write(
        "answer.jsonl",
        "{\"id\": \"s\", \"context\": [{\"text\": \"a\"}], \"candidates\": [\"b\"], \"answer\": 4}\n",
    );
    t.run("bench response answer.jsonl")
        .says(3, &["answer.jsonl:1: the answer is 4, and there are 1 candidates"]);
    t.write("select.txt", select());
    t.run("bench sr select.txt -r bm52").says(2, &["unknown ranker `bm52`", "did you mean `bm25`?"]);
    t.run("bench sr select.txt -r lda:x").says(2, &["`x` in the ranker `lda:x` is no number from 2 to 4096"]);
    t.run("bench sr nothing.txt").says(2, &["cannot read nothing.txt"]);
    t.run("bench dsts sts.txt --export runs -r bm25").says(3, &["sts.txt:2"]);
}

fn recipe(map: f64) -> String {
    format!(
        "about = \"made up\"\npaper = \"none\"\n\n[task]\nkind = \"sr\"\ndata = \"select.txt\"\n\n[[rows]]\nranker = \"bm25\"\nexpected = {{ MAP = {map} }}\npaper = {{ MRR = 12.5 }}\n"
    )
}

#[test]
fn recipes_tell_what_holds_and_what_does_not() {
    let t = Turnwise::new();
    t.write("data/select.txt", select());
    t.write("recipes/good.toml", recipe(80.6));
    let line = "bench reproduce --recipes recipes";
    let out = t.ok(line);
    assert!(out.contains("holds   BM25"), "{out}");
    assert!(out.contains("expected 80.6, any order 59.3"), "{out}");
    assert!(out.contains("the paper 12.5"), "{out}");
    assert!(out.contains("1 numbers hold, 0 missed; 0 recipes without their data"), "{out}");
    t.write("recipes/bad.toml", recipe(90.0));
    t.write("recipes/gone.toml", recipe(90.0).replace("select.txt", "gone.txt"));
    let out = t.run(line);
    assert_eq!(out.code, 1, "{out:?}");
    assert!(
        out.out.contains("MISSED  BM25") && out.out.contains("not run: data/gone.txt is not there"),
        "{out:?}"
    );
    assert!(out.err.contains("error: 1 of the expected numbers were missed"), "{out:?}");
    t.ok(&format!("{line} --only good"));
    t.run(&format!("{line} --only gone")).says(2, &["none of the data are in data"]);
    t.run(&format!("{line} --only goood"))
        .says(2, &["no recipe has `goood` in its name", "did you mean `good`?"]);
    let listed = t.json("bench list --recipes recipes");
    assert_eq!((&listed[0]["name"], &listed[1]["missing"]), (&"bad".into(), &"data/gone.txt".into()));
    assert_eq!(t.json(&format!("{line} --only good"))[0]["rows"][0]["checked"][0]["holds"], true);
    t.write("recipes/good.toml", recipe(80.6).replace("expected = { MAP", "expected = { purity = 1, MAP"));
    t.run(&format!("{line} --only good"))
        .says(3, &["BM25 has no purity, of which a recipe expects something", "it has MAP, MRR"]);
}

#[test]
fn a_report_tells_at_a_glance_what_is_reproduced() {
    let t = Turnwise::new();
    t.write("data/select.txt", select());
    t.write("recipes/good.toml", recipe(80.6));
    t.write("recipes/bad.toml", recipe(90.0).replace("made up", "a < b & c"));
    t.write("recipes/gone.toml", recipe(90.0).replace("select.txt", "gone.txt"));
    let line = "bench reproduce --recipes recipes";
    assert_eq!(t.run(&format!("{line} --report out.md")).code, 1);
    let report = t.read("out.md");
    assert!(report.contains("1 numbers hold, 1 missed; 1 recipes without their data"), "{report}");
    assert!(report.contains("| BM25 | MAP | 80.6 | 80.6 | 59.3 | – | holds |"), "{report}");
    assert!(report.contains("| BM25 | MAP | 80.6 | 90.0 | 59.3 | – | **missed** |"), "{report}");
    assert!(report.contains("| BM25 | MRR | 83.3 | – | 64.2 | 12.5 |  |"), "{report}");
    assert!(report.contains("Not run: data/gone.txt is not there."), "{report}");
    assert_eq!(t.run(&format!("{line} --report out.html")).code, 1);
    let page = t.read("out.html");
    assert!(
        page.contains("<svg") && page.contains("a &lt; b &amp; c") && !page.contains("a < b & c"),
        "{page}"
    );
    // Nothing is fetched from anywhere.
    assert!(!page.contains("http") && !page.contains("src="), "{page}");
    t.run(&format!("{line} --report out.pdf")).says(2, &["out.pdf is neither .md nor .html"]);
}

#[test]
fn a_wrong_recipe_is_told_with_its_line() {
    let t = Turnwise::new();
    t.write("recipes/x.toml", recipe(80.6).replace("ranker =", "rankr ="));
    t.run("bench list --recipes recipes").says(3, &["recipes/x.toml: unknown field `rankr`", "in line 9"]);
    t.write("recipes/x.toml", recipe(80.6).replace("kind = \"sr\"", "kind = \"rs\""));
    t.run("bench list --recipes recipes").says(3, &["unknown variant `rs`"]);
    t.write("recipes/x.toml", b"about = \"\xff\"");
    t.run("bench list --recipes recipes").says(3, &["recipes/x.toml: invalid UTF-8 at byte 9"]);
    t.run("bench list")
        .says(2, &["there are no recipes in benchmarks/recipes", "they come with turnwise's sources"]);
    t.write("empty/readme", "");
    t.run("bench list --recipes empty").says(2, &["there are no recipes in empty"]);
}

#[test]
fn sets_are_built_and_used() {
    let t = Turnwise::new();
    t.write("labelled.csv", "text,category\n\"lost, my card\",cards\ncard is gone,cards\nmy parcel,parcels\nparcel is late,parcels\n");
    t.ok("bench build sr labelled.csv -o select.txt");
    assert_eq!(t.read("select.txt").lines().next().unwrap(), "0\tlost, my card\tcards\t1\t2,3");
    t.ok("bench sr select.txt -r bm25");
    t.write("one.tsv", "a\tx\nb\tx\n");
    t.run("bench build sr one.tsv -o out.txt")
        .says(3, &["2 sentences of 1 intents: there is nothing to tell apart"]);
    assert!(!t.path("out.txt").exists());
    t.write("short.tsv", "a\tx\nb\n");
    t.run("bench build sr short.tsv -o out.txt").says(3, &["short.tsv:2: this row has no text and label"]);
    let built = t.run(&format!("bench build response {SAMPLES} -o samples.jsonl"));
    assert_eq!(built.code, 0, "{built:?}");
    assert!(
        built.err.contains("can be told by the name of a speaker; --strip-names takes names out"),
        "{built:?}"
    );
    let results = t.json("bench response samples.jsonl -r bm25");
    assert!(value(&results, 0, "R@1") > 0.2, "{}", results[0]["values"]);
    assert!((results[0]["values"][0]["floor"].as_f64().unwrap() - 0.1).abs() < 1e-9);
}

#[test]
fn vectors_of_others_are_ranked_by() {
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
    t.run("bench sr other.txt -r vectors:v.npy").says(3, &["v.npy has 6 rows; the task has 3 documents"]);
    t.run("bench sr other.txt -r vectors:other.txt").says(3, &["other.txt: this is no file of NumPy"]);
}

#[test]
fn only_texts_are_ranked_again_and_only_by_models_with_tokens() {
    let t = Turnwise::new();
    t.write("select.txt", select());
    let model = t.model();
    t.run(&format!("bench sr select.txt -r maxsim --model {model}"))
        .says(2, &["has no vectors of single tokens"]);
    t.run(&format!("bench dialogues {SAMPLES} -r matching --model {model}"))
        .says(2, &["texts are ranked again token by token, and here dialogues are ranked"]);
}
