//! Tests of settings in files, environment variables and flags, and of the precedence among them.

use serde_json::{Value, json};

use crate::support::{Outcome, Turnwise, record};

fn with_env(t: &Turnwise, line: &str, variables: &[(&str, &str)]) -> Outcome {
    let args: Vec<&str> = line.split_whitespace().collect();
    let output = t.command(&args).envs(variables.iter().copied()).output().unwrap();
    Outcome {
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code().unwrap(),
    }
}

#[test]
fn later_layers_of_settings_override_earlier_ones() {
    let t = Turnwise::new();
    let show = "config show --origin --format json";
    let seed = |outcome: Outcome| -> (Value, Value) {
        let shown = outcome.json();
        (shown["seed"]["value"].clone(), shown["seed"]["origin"].clone())
    };
    assert_eq!(seed(t.run(show)), (json!("0"), json!("default")));
    t.write("config/turnwise/config.toml", "seed = 1\n");
    let user_file = t.path("config/turnwise/config.toml");
    assert_eq!(seed(t.run(show)), (json!("1"), json!({"file": user_file})));
    t.write("turnwise.toml", "seed = 2\n[ingest]\nmax_errors = 5\n");
    assert_eq!(seed(t.run(show)), (json!("2"), json!({"file": "turnwise.toml"})));
    let env = [("TURNWISE_SEED", "3")];
    assert_eq!(seed(with_env(&t, show, &env)), (json!("3"), json!({"environment": "TURNWISE_SEED"})));
    let flagged = with_env(&t, &format!("{show} --seed 4"), &env);
    assert_eq!(seed(flagged), (json!("4"), json!({"flag": "--seed"})));
    assert_eq!(t.run(show).json()["ingest.max_errors"]["value"], "5");
    // --config replaces the file in the working folder.
    t.write("other.toml", "seed = 9\n");
    assert_eq!(seed(t.run(&format!("{show} --config other.toml"))).0, "9");
    let text = t.ok("config show --origin");
    assert!(text.contains("seed = \"2\"  turnwise.toml\n"), "{text}");
}

#[test]
fn settings_take_effect() {
    let t = Turnwise::new();
    t.write("turnwise.toml", "index = \"mine\"\nindexes_dir = \"shelf\"\nformat = \"json\"\n");
    t.write("in.jsonl", record("a", "x"));
    assert_eq!(t.run("ingest in.jsonl").json()["index"], "shelf/mine");
    assert_eq!(t.run("stats").json()["dialogues"], 1);
    t.write("bad.jsonl", "{\"id\":\"b\",\"turns\":[]}\n".repeat(3));
    with_env(&t, "ingest --from jsonl bad.jsonl", &[("TURNWISE_INGEST_MAX_ERRORS", "1")])
        .says(3, &["2 records were rejected (limit: 1)"]);
}

#[test]
fn config_init_writes_a_file_that_changes_nothing_and_never_overwrites() {
    let t = Turnwise::new();
    let before = t.json("config show");
    t.run("config init").says(0, &["created turnwise.toml"]);
    assert_eq!(t.json("config show"), before);
    let text = t.read("turnwise.toml");
    t.run("config init")
        .says(2, &["error: turnwise.toml exists already\nhint: `turnwise config show --origin` shows"]);
    assert_eq!(t.read("turnwise.toml"), text);
}

#[test]
fn an_invalid_setting_is_reported_with_its_location() {
    let t = Turnwise::new();
    t.write("turnwise.toml", "[ingest]\nmax_error = 3\n");
    t.run("config show").says(
        2,
        &["error: turnwise.toml: unknown setting `ingest.max_error`\nhint: did you mean `ingest.max_errors`?\n"],
    );
    t.write("turnwise.toml", "seed = 1\nthreads = \n");
    t.run("config show").says(2, &["error: turnwise.toml: line 2: "]);
    t.write("turnwise.toml", "");
    with_env(&t, "config show", &[("TURNWISE_THREADS", "many")]).says(
        2,
        &["the setting `threads` must be a number, not `many`\nhint: the value comes from TURNWISE_THREADS\n"],
    );
    t.run("config show --config none.toml").says(2, &["error: cannot read none.toml: No such file"]);
}
