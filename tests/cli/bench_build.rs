//! Tests of `bench build`, which creates the test sets of benchmark tasks from labeled corpora.

use crate::{
    bench::value,
    support::{SAMPLES, Turnwise},
};

#[test]
fn a_retrieval_set_is_built_and_used() {
    let t = Turnwise::new();
    t.write("labeled.csv", "text,category\n\"lost, my card\",cards\ncard is gone,cards\nmy parcel,parcels\nparcel is late,parcels\n");
    t.ok("bench build sr labeled.csv -o select.txt");
    assert_eq!(t.read("select.txt").lines().next().unwrap(), "0\tlost, my card\tcards\t1\t2,3");
    t.ok("bench sr select.txt -r bm25");
    t.write("one.tsv", "a\tx\nb\tx\n");
    t.run("bench build sr one.tsv -o out.txt")
        .says(3, &["2 sentences with 1 intents: at least two intents are needed"]);
    assert!(!t.path("out.txt").exists());
    t.write("short.tsv", "a\tx\nb\n");
    t.run("bench build sr short.tsv -o out.txt")
        .says(3, &["short.tsv:2: this row needs both a text and a label"]);
    let built = t.run(&format!("bench build response {SAMPLES} -o samples.jsonl"));
    assert_eq!(built.code, 0, "{built:?}");
    assert!(
        built.err.contains("can be recognized by the name of a speaker; --strip-names removes the names"),
        "{built:?}"
    );
    t.ok(&format!("bench build response {SAMPLES} --samples 50 -o some.jsonl"));
    let (all, some) = (t.read("samples.jsonl"), t.read("some.jsonl"));
    assert_eq!(some.lines().count(), 50);
    assert!(some.lines().all(|line| all.lines().any(|other| other == line)));
    let results = t.json("bench response samples.jsonl -r bm25");
    assert!(value(&results, 0, "R@1") > 0.2, "{}", results[0]["values"]);
    assert!((results[0]["values"][0]["floor"].as_f64().unwrap() - 0.1).abs() < 1e-9);
}

#[test]
fn a_retrieval_set_is_built_from_dialogues_with_intents() {
    let t = Turnwise::new();
    t.ok(&format!("bench build sr {SAMPLES} -o select.txt --sentences 200"));
    assert_eq!(t.read("select.txt").lines().count(), 200);
    let results = t.json("bench sr select.txt -r tfidf");
    assert!(value(&results, 0, "MAP") > results[0]["values"][0]["floor"].as_f64().unwrap());
    t.write("bare.jsonl", "{\"id\": \"a\", \"turns\": [{\"text\": \"x\", \"intent\": \"i\"}, {\"text\": \"y\"}, {\"text\": \"z\", \"intent\": \"j\"}]}\n");
    assert!(t.run("bench build sr bare.jsonl -o b.txt").err.contains("1 sentence without an intent skipped"));
}

#[test]
fn a_retrieval_set_is_built_from_dialogue_acts() {
    let t = Turnwise::new();
    let head = "session.ID\tMessage.ID\tMessage.Timestamp\tMessage.From\tMessage.Text\tDialog-Acts\n";
    let rows = "1\t1\t\tuser\ta film\tinform(kind=film)\n1\t2\t\tagent\twhich film\trequest(name)\n\
                1\t3\t\tuser\tthe film\tinform(name)\tinform(day)\n1\t4\t\tagent\tbye\tthanks()\tclosing()\n\
                1\t5\t\tuser\tbye\t\n1\t6\t\tagent\tthat film\trequest(day)\n";
    t.write("film_all.tsv", format!("{head}{rows}"));
    let built = t.run("bench build sr film_all.tsv --label act -o acts.txt");
    assert!(built.err.contains("2 sentences without exactly one dialogue act skipped"), "{built:?}");
    let lines = t.read("acts.txt");
    assert_eq!(lines.lines().next().unwrap(), "0\ta film\tinform\t2\t1,3");
    assert_eq!(lines.lines().count(), 4);
    // A table in the format of a known corpus is read as this corpus, not as rows of text and label.
    t.run("bench build sr film_all.tsv -o none.txt")
        .says(3, &["film_all.tsv: no turn has an intent", "turns have dialogue acts: --label act"]);
    t.write("bare.jsonl", "{\"id\": \"a\", \"turns\": [{\"text\": \"x\", \"intent\": \"i\"}]}\n");
    t.run("bench build sr bare.jsonl --label act -o none.txt")
        .says(3, &["no turn has its own dialogue act", "turns have intents: --label intent"]);
    assert!(!t.path("none.txt").exists());
}

#[test]
fn pairs_are_sampled_for_scoring_and_then_evaluated() {
    let t = Turnwise::new();
    let line =
        format!("bench build dsts {SAMPLES} -o pairs.tsv --pair-sources key.tsv --pairs 60 -r bm25 -r tfidf");
    t.ok(&line);
    let (pairs, key) = (t.read("pairs.tsv"), t.read("key.tsv"));
    assert_eq!((pairs.lines().count(), key.lines().count()), (60, 60));
    for by in ["BM25", "TF-IDF", "intent"] {
        assert_eq!(key.lines().filter(|line| line.ends_with(&format!("\t{by}"))).count(), 20, "{by}");
    }
    t.run("bench dsts pairs.tsv -r bm25").says(3, &["pairs.tsv:1: this pair has no score yet"]);
    // Add the scores of three people.
    let scored: String = pairs
        .lines()
        .enumerate()
        .map(|(n, line)| line.replacen('?', &format!("{},3,1", 1 + n % 5), 1) + "\n")
        .collect();
    t.write("scored.tsv", scored);
    assert_eq!(t.json("bench dsts scored.tsv -r bm25")[0]["data"]["size"], "60 pairs");
    t.ok(&line);
    assert_eq!(t.read("pairs.tsv"), pairs);
    t.ok(&format!("{line} --seed 9"));
    assert_ne!(t.read("pairs.tsv"), pairs);
}

#[test]
fn a_different_number_of_dialogues_than_in_the_paper_is_reported() {
    let t = Turnwise::new();
    let line = |n: usize, domains: &str| {
        format!("{{\"id\": \"d{n}\", \"domains\": [{domains}], \"turns\": [{{\"text\": \"hello {n}\"}}]}}\n")
    };
    let of = |count: usize| -> String {
        (0..count).map(|n| line(n, if n % 2 == 0 { "\"a\"" } else { "\"b\"" })).collect::<String>()
            + &line(count, "\"a\", \"b\"")
            + &line(count + 1, "")
    };
    t.write("right.jsonl", of(70));
    let out = t.run("bench build dialogues right.jsonl -o dev.jsonl --paper bitod/dev");
    assert_eq!(out.code, 0, "{out:?}");
    assert!(out.err.contains("wrote 70 dialogues of 2 domains"), "{out:?}");
    assert!(out.err.contains("skipped: 1 dialogues with several domains (d70)"), "{out:?}");
    assert_eq!(t.read("dev.jsonl").lines().count(), 70);
    t.json("bench dialogues dev.jsonl -r bm25");
    t.write("wrong.jsonl", of(68));
    t.run("bench build dialogues wrong.jsonl -o dev.jsonl --paper bitod/dev")
        .says(1, &["bitod/dev has 70 dialogues in the paper but 68 here", "the file was written anyway"]);
    assert_eq!(t.read("dev.jsonl").lines().count(), 68);
    t.run("bench build dialogues wrong.jsonl -o x.jsonl --paper bitot/dev")
        .says(2, &["unknown corpus of dial2vec's paper `bitot/dev`", "did you mean `bitod`?"]);
}

#[test]
fn the_files_of_dial2vec_are_evaluated_directly() {
    let t = Turnwise::new();
    let line = |n: usize| {
        let (word, topic) = if n.is_multiple_of(2) { ("card", 1) } else { ("parcel", 2) };
        let outcome = format!("my {word} {n}#I see#thanks");
        format!("010\t{outcome}|{outcome}\t{topic}\n")
    };
    t.write("mwoz/clustering_dev.tsv", (0..12).map(line).collect::<String>());
    let results = t.json("bench dialogues mwoz/clustering_dev.tsv -r bm25 -r tfidf-svd:2 --profile code");
    assert_eq!(results[0]["data"]["size"], "12 dialogues of 2 domains");
    assert_eq!((value(&results, 0, "MAP"), value(&results, 1, "purity")), (1.0, 1.0));
}
