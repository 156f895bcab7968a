//! Kills `encode --shard` at random points, and between a shard's data file and its manifest. No shard may be partial,
//! and the same command must create the missing shards.

#![cfg(all(unix, feature = "cli"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use turnwise_index::vectors::{Kind, VectorReader};

const SHARDS: usize = 4;
const KILLS: usize = 20;
const DIALOGUES: usize = 2000;

fn program(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwise"));
    command.current_dir(folder).env("HOME", folder).env_remove("XDG_CONFIG_HOME");
    command.stdout(Stdio::null());
    command
}

fn ok(folder: &Path, line: &str) {
    let words = line.split(' ');
    assert!(program(folder).args(words).status().unwrap().success(), "{line}");
}

fn corpus(folder: &Path) {
    let mut corpus = fs::File::create(folder.join("in.jsonl")).unwrap();
    for n in 0..DIALOGUES {
        let turns = serde_json::json!([{"role": "user", "text": format!("question {n} about a parcel")},
            {"role": "agent", "text": "one moment please"}]);
        writeln!(corpus, "{}", serde_json::json!({"id": format!("d{n}"), "turns": turns})).unwrap();
    }
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/support");
    ok(folder, &format!("model fit -q {samples} --dim 16 -o fitted"));
    ok(folder, "ingest -q -i x --no-index in.jsonl");
}

fn start(folder: &Path, shard: usize) -> Child {
    let shard = format!("{shard}/{SHARDS}");
    let args = ["encode", "-q", "in.jsonl", "--out", "shards", "--model", "./fitted", "--shard", &shard];
    program(folder).args(args).spawn().unwrap()
}

/// Returns the files of a shard that have this suffix, without hidden files.
fn visible(folder: &Path, shard: usize, ending: &str) -> Vec<PathBuf> {
    let beginning = format!("shard-{shard:05}-");
    let Ok(entries) = fs::read_dir(folder.join("shards")) else { return Vec::new() };
    let names = entries.map(|e| e.unwrap().path());
    let fits = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with(&beginning) && name.ends_with(ending)
    };
    names.filter(fits).collect()
}

/// Checks that the data file of every shard with a manifest is complete.
fn assert_no_partial_shard(folder: &Path) {
    for shard in 0..SHARDS {
        for record in visible(folder, shard, ".json") {
            let record: serde_json::Value = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
            let data = &record["content"]["data"];
            let bytes = fs::read(folder.join("shards").join(data["file"].as_str().unwrap())).unwrap();
            assert_eq!(blake3::hash(&bytes).to_hex().as_str(), data["blake3"]);
        }
    }
}

fn assembles(folder: &Path) -> bool {
    let mut command = program(folder);
    command.args(["encode", "-q", "--assemble", "shards", "-i", "x"]).stderr(Stdio::null());
    command.status().unwrap().success()
}

fn assert_complete(folder: &Path) {
    assert!(assembles(folder));
    let reader = VectorReader::open(&folder.join("indexes/x")).unwrap().unwrap();
    assert_eq!(Kind::ALL.map(|kind| reader.rows(kind)), [DIALOGUES + 1, DIALOGUES]);
    ok(folder, "verify -q -i x");
}

#[test]
fn kills_leave_complete_shards_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    corpus(folder);
    let started = Instant::now();
    start(folder, 0).wait().unwrap();
    let one_run = started.elapsed();
    fs::remove_dir_all(folder.join("shards")).unwrap();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for kill in 0..KILLS {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut child = start(folder, kill % SHARDS);
        std::thread::sleep(one_run.mul_f64((seed >> 40) as f64 / (1 << 24) as f64));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_no_partial_shard(folder);
    }
    if (0..SHARDS).any(|shard| visible(folder, shard, ".json").is_empty()) {
        assert!(!assembles(folder), "an incomplete set was assembled");
    }
    for shard in 0..SHARDS {
        assert!(start(folder, shard).wait().unwrap().success());
    }
    assert_complete(folder);
}

#[test]
fn data_without_a_manifest_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    corpus(folder);
    for shard in 1..SHARDS {
        assert!(start(folder, shard).wait().unwrap().success());
    }
    let mut between = 0;
    for _ in 0..60 {
        let mut child = start(folder, 0);
        let deadline = Instant::now() + Duration::from_secs(60);
        while visible(folder, 0, ".arrow").is_empty() && child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline);
        }
        let _ = child.kill();
        child.wait().unwrap();
        if visible(folder, 0, ".json").is_empty() {
            assert_eq!(visible(folder, 0, ".arrow").len(), 1);
            assert!(!assembles(folder), "data without a manifest was assembled");
            between += 1;
            if between == 3 {
                break;
            }
        }
        for path in visible(folder, 0, "") {
            fs::remove_file(path).unwrap();
        }
    }
    eprintln!("killed {between} times between data file and manifest");
    assert!(between > 0, "no kill happened between data file and manifest");
    assert!(start(folder, 0).wait().unwrap().success());
    assert_eq!(
        visible(folder, 0, "").len(),
        2,
        "the data file of the killed run has the same name and is overwritten"
    );
    assert_complete(folder);
}
