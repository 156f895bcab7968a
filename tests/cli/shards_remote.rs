//! Tests with shards in an object store: `encode --shard` with the S3 server that `tests/scale.sh` installs.

// Printing is allowed, because a skipped test prints the reason.
#![allow(clippy::print_stderr)]

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use crate::{
    shards::{python, vectors},
    support::{Outcome, SAMPLES, Turnwise, records},
};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scale/s3.py");

struct Store {
    process: Child,
    stdin: ChildStdin,
    answers: BufReader<ChildStdout>,
    endpoint: String,
}

impl Store {
    fn start() -> Option<Self> {
        let mut command = Command::new(python()?);
        command.arg(SCRIPT).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let stdin = process.stdin.take().unwrap();
        let mut answers = BufReader::new(process.stdout.take().unwrap());
        let mut endpoint = String::new();
        answers.read_line(&mut endpoint).unwrap();
        Some(Store { process, stdin, answers, endpoint: endpoint.trim().to_owned() })
    }

    /// Sends a command to the script of the S3 server, and returns the names of objects that the script prints.
    fn ask(&mut self, line: &str) -> Vec<String> {
        writeln!(self.stdin, "{line}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer.split_whitespace().map(str::to_owned).collect()
    }

    fn run(&self, t: &Turnwise, line: &str) -> Outcome {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut command = t.command(&words);
        command.env("AWS_ENDPOINT", &self.endpoint).env("AWS_ALLOW_HTTP", "true");
        command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
        command.env("AWS_REGION", "us-east-1");
        Outcome::of(command.output().unwrap())
    }

    #[track_caller]
    fn ok(&self, t: &Turnwise, line: &str) -> Outcome {
        let outcome = self.run(t, line);
        assert_eq!(outcome.code, 0, "{line}: {outcome:?}");
        outcome
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn shards_are_stored_in_an_object_store_and_assembled_from_it() {
    let Some(mut store) = Store::start() else { return };
    let t = Turnwise::new();
    let model = t.model();
    t.write("in.jsonl", records(60));
    t.ok("ingest -i x in.jsonl --no-encode");
    let encode = |n: &str| format!("encode --shard {n}/3 in.jsonl --out s3://shards/set/one --model {model}");
    store
        .run(&t, "encode --assemble s3://shards/set/one -i x")
        .says(2, &["there are no shards in s3://shards/set/one"]);
    for n in ["0", "2"] {
        store.ok(&t, &encode(n));
    }
    assert_eq!(store.ask("list set/one/").len(), 4, "each shard has a data object and a manifest");
    let again = store.ok(&t, &encode("2"));
    assert!(again.out.contains("shard 2/3 already exists"), "{again:?}");
    let command = format!("turnwise encode --shard=1/3 --out=s3://shards/set/one in.jsonl --model {model}");
    store.run(&t, "encode --assemble s3://shards/set/one -i x").says(3, &["1/3 is missing", &command]);
    store.ok(&t, command.strip_prefix("turnwise ").unwrap());

    // Test an object with the right size but different bytes.
    store.ask("cut set/one/shard-00000");
    store
        .run(&t, "encode --assemble s3://shards/set/one -i x")
        .says(3, &["shard 0/3 is damaged: the content of shard-00000-of-00003-"]);
    store.ok(&t, &encode("0-2"));
    store.ok(&t, "encode --assemble s3://shards/set/one -i x");
    t.ok("ingest -i whole in.jsonl --no-encode");
    t.ok(&format!("encode -i whole --model {model}"));
    assert_eq!(vectors(&t.path("indexes/x")), vectors(&t.path("indexes/whole")));
}

#[test]
fn a_large_shard_is_uploaded_in_parts() {
    let Some(mut store) = Store::start() else { return };
    let t = Turnwise::new();
    t.write("in.jsonl", records(9000));
    t.ok(&format!("model fit {SAMPLES} --dim 256 -o wide"));
    t.ok("ingest -i x in.jsonl --no-index");
    store.ok(&t, "encode --shard 0/1 in.jsonl --out s3://shards/large --model ./wide");
    let names = store.ask("list large/");
    // The tag of an object that was uploaded in parts ends with the number of parts.
    assert!(names.iter().any(|name| name.contains(".arrow:") && name.ends_with("-2")), "{names:?}");
    let done = store.ok(&t, "encode --assemble s3://shards/large -i x");
    assert!(done.out.contains("18,001  vectors added"), "{done:?}");
}

#[test]
fn an_unknown_or_unreachable_store_is_reported() {
    let t = Turnwise::new();
    let model = t.model();
    t.write("in.jsonl", records(2));
    t.run(&format!("encode --shard 0/1 in.jsonl --out s4://b/x --model {model}"))
        .says(2, &["unknown kind of store `s4`", "hint: known: s3, gs, az, file"]);
    let Some(store) = Store::start() else { return };
    store
        .run(&t, &format!("encode --shard 0/1 in.jsonl --out s3://nobody/x --model {model}"))
        .says(6, &["cannot write s3://nobody/x/shard-00000-of-00001-", "hint: check the name"]);
}
