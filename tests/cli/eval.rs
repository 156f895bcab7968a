//! Checks that `turnwise eval` agrees with trec_eval.

use crate::support::Turnwise;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/measures");

fn fixture(name: &str) -> String {
    format!("{FIXTURES}/{name}")
}

#[test]
fn every_measure_agrees_with_trec_eval_to_the_last_printed_digit() {
    let t = Turnwise::new();
    let (qrels, run) = (fixture("qrels.txt"), fixture("run.txt"));
    let measures = "-m official -m ndcg -m recall -m ndcg_cut -m map_cut -m success";
    let out = t.run(&format!("eval {qrels} {run} {measures} -q"));
    let expected = std::fs::read_to_string(fixture("trec_eval.txt")).unwrap();
    // All lines are in the order of trec_eval.
    for (ours, theirs) in out.out.lines().zip(expected.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(out.out.lines().count(), expected.lines().count());
    assert!(out.err.contains("1 query is in the run but not judged, and ignored: q10"), "{}", out.err);
    assert!(
        out.err.contains("1 query is judged but not in the run, ignored (-c counts them as 0): q11"),
        "{}",
        out.err
    );
}

#[test]
fn eval_prints_json_and_counts_missing_queries_on_request() {
    let t = Turnwise::new();
    t.write("qrels", "a 0 x 1\na 0 y 0\nb 0 x 1\n");
    t.write("run", "a Q0 y 1 2.5 mine\na Q0 x 2 1.5 mine\n");
    let judged = t.json("eval qrels run -m map -m num_q -q");
    assert_eq!((&judged["schema"], &judged["run"]), (&"turnwise/eval/1".into(), &"mine".into()));
    assert_eq!((&judged["all"]["map"], &judged["queries"]["a"]["map"]), (&0.5.into(), &0.5.into()));
    assert_eq!(judged["missing"][0], "b");
    let complete = t.json("eval qrels run -m map -c");
    assert_eq!(complete["all"]["map"], 0.25);
    let graded = t.json("eval qrels run -m num_rel -l 2");
    assert_eq!(graded["all"]["num_rel"], 0.0);
}

#[test]
fn errors_name_the_file_and_line() {
    let t = Turnwise::new();
    t.write("qrels", "a 0 x 1\n");
    t.write("run", "a Q0 x 1 1.0 mine\n");
    t.write("nan", "a Q0 x 1 1.0 mine\na Q0 y 2 NaN mine\n");
    t.write("twice", "a Q0 x 1 1.0 mine\na Q0 x 2 0.5 mine\n");
    t.write("other", "z Q0 x 1 1.0 mine\n");
    t.write("empty", "\n");
    t.run("eval qrels nan").says(3, &["nan:2: the score `NaN` is not a finite number"]);
    t.run("eval qrels twice").says(3, &["twice:2: document x of query a is already on line 1"]);
    t.run("eval qrels other")
        .says(3, &["no query of other is judged in qrels", "the first query of the run is `z`"]);
    t.run("eval qrels empty").says(3, &["empty contains no rankings"]);
    t.run("eval qrels none").says(2, &["cannot read none"]);
    t.run("eval qrels run -m mapp").says(2, &["unknown measure `mapp`", "did you mean `map`?"]);
    t.run("eval run qrels")
        .says(3, &["run:1: a line of judgments has 4 columns (query 0 document grade), this one has 6"]);
}
