//! Tests of Ctrl-C: acknowledged data is kept, and the same command continues.

#![cfg(unix)]

use crate::support::{Started, Turnwise, record, records};

fn stopped(run: Started) -> String {
    run.interrupt();
    let outcome = run.end();
    outcome.says(130, &["error: interrupted\n"]);
    outcome.err
}

#[test]
fn an_interrupted_stream_keeps_acknowledged_records() {
    let t = Turnwise::new();
    let mut run = t.start("ingest -v -i x -");
    run.feed(&records(1500));
    run.wait_for_message("acknowledged: 1000 records");
    run.wait_for_message("acknowledged: 1500 records");
    let output = stopped(run);
    assert!(
        output.contains("hint: 1500 records are stored; run the same command again, and it skips them\n"),
        "{output}"
    );
    assert_eq!(t.ids("x").len(), 1500);
    assert_eq!(t.run("verify -i x").code, 0);
    let outcome = t.run_with("ingest -i x - --format json", records(1600).as_bytes());
    let tally = &outcome.json()["tally"];
    assert_eq!((&tally["unchanged"], &tally["added"]), (&1500.into(), &100.into()));
}

#[test]
fn an_interrupted_ingest_of_a_file_continues_to_the_same_result() {
    let t = Turnwise::new();
    let mut text = records(40_000);
    text += "{oops\n";
    text += &record("d000001", "this is text number 1");
    t.write("in.jsonl", text);
    let command = "ingest -i x in.jsonl --min-turns 2 --redact";
    let run = t.start(&format!("{command} -v"));
    run.wait_for_message("acknowledged: 3000 records");
    let output = stopped(run);
    assert!(output.contains("hint: run the same command again to continue after record "), "{output}");
    let before = t.ids("x").len();
    assert!((3000..40_000).contains(&before), "{before}");

    let outcome = t.run(&format!("{command} --format json"));
    outcome.says(0, &["resuming after record ", ", where the last run stopped\n"]);
    let resumed = outcome.json();
    assert_eq!(resumed["resumed_after"], before);
    t.ok(&format!("{} --format json", command.replace("-i x", "-i y")));
    let whole = t.json(&format!("{} ", command.replace("-i x", "-i z")));
    assert_eq!(resumed["tally"], whole["tally"]);
    assert_eq!(t.dialogues("x"), t.dialogues("y"));
    assert_eq!(t.run("verify -i x").code, 0);
    // The ingest is complete, so the next run starts from the beginning and changes nothing.
    let again = t.json(command);
    assert_eq!((&again["resumed_after"], &again["tally"]["unchanged"]), (&0.into(), &40_000.into()));
}

#[test]
fn waiting_for_standard_input_can_be_interrupted() {
    let t = Turnwise::new();
    let run = t.start("ingest -i x -");
    std::thread::sleep(std::time::Duration::from_millis(300));
    run.interrupt();
    assert_eq!(run.end().code, 130);
    assert!(!t.path("indexes").exists());
}
