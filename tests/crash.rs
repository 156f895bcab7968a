//! Kills the program 200 times at random points. All acknowledged records must exist, no batch may be partial, and the
//! same command must continue without any manual step.

#![cfg(all(unix, feature = "cli"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use turnwise_core::ids::DialogueId;
use turnwise_corpus::{Dialogue, Role};
use turnwise_index::{
    dense,
    lexical::Lexical,
    vectors::{self, Kind, VectorReader, utterance_key},
};
use turnwise_store::{Prepared, Snapshot, Store, verify};

const KILLS: usize = 200;
const DIALOGUES: usize = 4000;

/// Pseudo-random number generator with a fixed seed. It makes the random choices of a failed run repeatable, but not
/// its timing.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

fn text(n: usize, version: u32) -> String {
    format!("version {version} of question {n}, {}", "which goes on for a while and ".repeat(8))
}

fn write_corpus(path: &Path, version: u32) {
    let mut out = std::io::BufWriter::new(fs::File::create(path).unwrap());
    for n in 0..DIALOGUES {
        let turns = serde_json::json!([{ "role": "user", "text": text(n, version) }, { "role": "agent", "text": "yes" }]);
        writeln!(out, "{}", serde_json::json!({ "id": format!("d{n:05}"), "turns": turns })).unwrap();
    }
}

fn program(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwise"));
    command.current_dir(folder).env("HOME", folder).env_remove("XDG_CONFIG_HOME");
    // With small batches and segments, more kills happen at critical points.
    command.env("TURNWISE_INGEST_BATCH", "100").env("TURNWISE_STORE_SEGMENT_MB", "1");
    command
}

/// Outcome of an ingest that was killed, unless it finished before the kill.
struct KilledIngest {
    /// Number of acknowledged records.
    acknowledged: usize,
    /// Whether the ingest finished before the kill.
    ended: bool,
    /// Whether the ingest rebuilt a damaged sled database.
    rebuilt: bool,
}

/// Starts an ingest and kills it after this time, unless it has finished. Any failure without a kill fails the test.
fn killed_ingest(folder: &Path, corpus: &Path, indexed: bool, after: Duration) -> KilledIngest {
    let mut command = program(folder);
    command.args(["ingest", "-v", "-i", "x"]).arg(corpus);
    if !indexed {
        command.arg("--no-index");
    }
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let acknowledged = Arc::new(Mutex::new((0, String::new())));
    let seen = acknowledged.clone();
    let stderr = child.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let mut seen = seen.lock().unwrap();
            if let Some(rest) = line.split("acknowledged: ").nth(1) {
                seen.0 = rest.split(' ').next().unwrap().parse().unwrap();
            }
            seen.1.push_str(&line);
            seen.1.push('\n');
        }
    });
    let started = Instant::now();
    let ended = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if started.elapsed() >= after {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_micros(300));
    };
    reader.join().unwrap();
    let (acknowledged, outcome) = acknowledged.lock().unwrap().clone();
    if let Some(status) = ended {
        assert!(status.success(), "the ingest failed without a kill: {outcome}");
    }
    // A kill sometimes damages the files of sled. The next ingest rebuilds them from the log and prints a notice. Any
    // other warning or error is a failure.
    let is_rebuild = |line: &&str| line.contains("/records: ") && line.ends_with("; rebuilt from the log");
    let unexpected = outcome
        .lines()
        .find(|line| (line.contains("warning") || line.contains("error")) && !is_rebuild(line));
    assert_eq!(unexpected, None, "{outcome}");
    KilledIngest {
        acknowledged,
        ended: ended.is_some(),
        rebuilt: outcome.lines().any(|line| is_rebuild(&line)),
    }
}

/// Checks the text of each dialogue and returns its version, by the number of the dialogue. Returns an empty map if the
/// index cannot be opened.
fn versions(index: &Path) -> BTreeMap<usize, u32> {
    let Ok(snapshot) = Snapshot::open(index) else { return BTreeMap::new() };
    let mut versions = BTreeMap::new();
    for dialogue in snapshot.dialogues().map(Result::unwrap) {
        let n: usize = dialogue.id.as_str()[1..].parse().unwrap();
        let version = dialogue.turns[0].text["version ".len()..].split(' ').next().unwrap().parse().unwrap();
        assert_eq!(dialogue.turns[0].text, text(n, version));
        versions.insert(n, version);
    }
    assert_eq!(snapshot.totals().dialogues as usize, versions.len());
    versions
}

/// Checks that nothing is damaged except the files of sled, which a kill can damage and the next writer rebuilds.
fn assert_undamaged_except_sled(index: &Path) {
    let report = verify::verify(index, "test", &mut |_| {}).unwrap();
    let of_sled = |damage: &verify::Damage| {
        damage.path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("records"))
    };
    assert!(report.damage.iter().all(of_sled), "{:?}", report.damage);
}

#[test]
fn two_hundred_kills_lose_no_acknowledged_record() {
    let folder = tempfile::tempdir().unwrap();
    let index: PathBuf = folder.path().join("indexes/x");
    let corpus = folder.path().join("corpus.jsonl");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut version = 1;
    write_corpus(&corpus, version);
    // Number of acknowledged records of the current version, over all kills.
    let mut acknowledged = 0;
    let mut versions_completed = 0;
    let (mut kills, mut rebuilds) = (0, 0);
    // Estimated time of a whole run on this machine, so that kills are spread over the whole run.
    let mut whole_run = Duration::from_millis(400);
    while kills < KILLS {
        let after = whole_run.mul_f64(random.below(1200) as f64 / 1000.0);
        let started = Instant::now();
        // Every fourth run also updates the search index.
        let indexed = random.below(4) == 0;
        let after = if indexed { after * 3 } else { after };
        let KilledIngest { acknowledged: records, ended, rebuilt } =
            killed_ingest(folder.path(), &corpus, indexed, after);
        rebuilds += usize::from(rebuilt);
        kills += usize::from(!ended);
        acknowledged = acknowledged.max(records);
        let now = versions(&index);
        // The first dialogues have the new version; all others have the old version.
        let done = (0..DIALOGUES).take_while(|n| now.get(n) == Some(&version)).count();
        assert!(done >= acknowledged, "{acknowledged} were acknowledged, {done} exist");
        assert!(
            (done..DIALOGUES).all(|n| now.get(&n).copied().unwrap_or(0) == version - 1),
            "a batch is partial"
        );
        if ended {
            if !indexed {
                whole_run = whole_run.min(started.elapsed().max(Duration::from_millis(50)));
            }
            assert_eq!(done, DIALOGUES);
            versions_completed += 1;
            version += 1;
            acknowledged = 0;
            write_corpus(&corpus, version);
        }
        if kills.is_multiple_of(25) {
            // Damaged files of sled are counted when the next ingest reports them.
            assert_undamaged_except_sled(&index);
        }
    }
    assert!(rebuilds <= KILLS / 20, "sled was rebuilt {rebuilds} times");
    eprintln!("{kills} kills, {versions_completed} versions of {DIALOGUES} dialogues completed in between");
    // The same command completes the last version.
    assert!(
        program(folder.path()).args(["ingest", "-q", "-i", "x"]).arg(&corpus).status().unwrap().success()
    );
    assert!(versions(&index).values().all(|v| *v == version));
    let found = program(folder.path())
        .args(["search", "-i", "x", "-k", "5", &format!("version {version}")])
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&found.stdout), String::from_utf8_lossy(&found.stderr));
    assert!(
        found.status.success() && out.contains(&format!("version {version} of")) && err.is_empty(),
        "{out}{err}"
    );
    let verified = program(folder.path()).args(["verify", "-i", "x"]).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

#[test]
fn a_killed_delete_deletes_all_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let index = folder.path().join("indexes/x");
    let corpus = folder.path().join("corpus.jsonl");
    write_corpus(&corpus, 1);
    let mut random = Random(7);
    let (mut before, mut after) = (0, 0);
    for _ in 0..20 {
        assert!(
            program(folder.path())
                .args(["ingest", "-q", "-i", "x", "--no-index"])
                .arg(&corpus)
                .status()
                .unwrap()
                .success()
        );
        let mut child = program(folder.path())
            .args(["delete", "-q", "-i", "x", "--filter", "id>=d02000"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(random.below(700)));
        let _ = child.kill();
        child.wait().unwrap();
        match versions(&index).len() {
            DIALOGUES => before += 1,
            2000 => after += 1,
            other => panic!("{other} dialogues exist"),
        }
    }
    eprintln!("killed before the delete took effect: {before}, after: {after}");
    drop(turnwise_store::Store::open(&index, "test").unwrap());
    assert!(verify::verify(&index, "test", &mut |_| {}).unwrap().damage.is_empty());
}

/// Number of dialogues in the compaction test. Two of three dialogues never change, and keep their vectors.
const COMPACTED: usize = 900;

fn changes(index: &Path, version: u32) -> BTreeMap<String, String> {
    let mut store = Store::open(index, "test").unwrap();
    assert!(store.notices().is_empty(), "{:?}", store.notices());
    store.set_segment_bytes(100_000);
    for n in (0..COMPACTED).step_by(3) {
        let mut dialogue = Dialogue::new(DialogueId::new(format!("d{n:05}")).unwrap());
        dialogue.push("user", Role::User, text(n, version));
        dialogue.check().unwrap();
        if n % 6 == 0 && version.is_multiple_of(2) {
            store.delete(&dialogue.id).unwrap();
        } else {
            store.put(&Prepared::new(&dialogue).unwrap()).unwrap();
        }
    }
    store.commit(None).unwrap();
    store.close().unwrap();
    content(&Snapshot::open(index).unwrap())
}

fn content(snapshot: &Snapshot) -> BTreeMap<String, String> {
    let pair = |d: Dialogue| (d.id.to_string(), d.turns[0].text.clone());
    snapshot.dialogues().map(|d| pair(d.unwrap())).collect()
}

/// Checks all parts of an index except the files of sled, before a writer has opened it.
fn assert_undamaged(index: &Path, expected: &BTreeMap<String, String>) {
    let snapshot = Snapshot::open(index).unwrap();
    assert_eq!(&content(&snapshot), expected);
    assert_undamaged_except_sled(index);
    assert_eq!(vectors::check(index).unwrap().unwrap().damage, []);
    let reader = VectorReader::open(index).unwrap().unwrap();
    for n in (0..COMPACTED).filter(|n| n % 3 != 0) {
        let key = utterance_key(&text(n, 1));
        assert!(reader.get(Kind::Utterances, &key).unwrap().is_some(), "the vector of {n} is lost");
    }
    dense::verify(index).unwrap();
    assert!(dense::in_use(index).unwrap().is_some());
    let lexical = Lexical::open(index).unwrap();
    assert!(lexical.damaged_files().unwrap().is_empty());
    assert_eq!(lexical.find(Kind::Utterances, &lexical.words("question 4"), 1, None).unwrap().len(), 1);
}

#[test]
fn a_killed_compaction_leaves_the_old_index_or_the_new_one() {
    const KILLS: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let index = folder.join("indexes/x");
    let run = |args: &[&str]| {
        let status = program(folder).args(args).stdout(Stdio::null()).status().unwrap();
        assert!(status.success(), "{args:?}");
    };
    let mut corpus = fs::File::create(folder.join("in.jsonl")).unwrap();
    for n in 0..COMPACTED {
        let turns = serde_json::json!([{ "role": "user", "text": text(n, 1) }]);
        writeln!(corpus, "{}", serde_json::json!({ "id": format!("d{n:05}"), "turns": turns })).unwrap();
    }
    run(&["ingest", "-q", "-i", "x", "in.jsonl"]);
    run(&[
        "model",
        "fit",
        "-q",
        concat!(env!("CARGO_MANIFEST_DIR"), "/examples/support"),
        "--dim",
        "16",
        "-o",
        "fitted",
    ]);
    run(&["encode", "-q", "-i", "x", "--model", "./fitted"]);
    run(&["index", "build", "-q", "-i", "x"]);
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    // The first run is not killed. Its time spreads the later kills over the whole run.
    let mut whole_run = Duration::MAX;
    let (mut kills, mut switched, mut completed, mut version) = (0, 0, 0, 1);
    let mut expected = content(&Snapshot::open(&index).unwrap());
    while kills < KILLS {
        // Without changes, the compaction continues from the state after the last kill.
        let changed = completed == 0 || random.below(3) > 0;
        if changed {
            version += 1;
            expected = changes(&index, version);
        }
        let before = Snapshot::open(&index).unwrap();
        let after = match completed {
            0 => whole_run,
            _ => whole_run.mul_f64(random.below(1100) as f64 / 1000.0),
        };
        let started = Instant::now();
        let mut child = program(folder)
            .args(["index", "compact", "-q", "-i", "x"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let ended = loop {
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success(), "the compaction failed without a kill");
                break true;
            }
            if started.elapsed() >= after {
                child.kill().unwrap();
                child.wait().unwrap();
                break false;
            }
            std::thread::sleep(Duration::from_micros(300));
        };
        if ended {
            completed += 1;
            // A compaction without changes is too short to estimate the time.
            whole_run = if changed { whole_run.min(started.elapsed()) } else { whole_run };
        } else {
            kills += 1;
            switched += usize::from(Snapshot::open(&index).unwrap().log_id() != before.log_id());
        }
        assert_eq!(content(&before), expected, "an open reader must not see the compaction");
        assert_undamaged(&index, &expected);
    }
    eprintln!("{kills} kills, {switched} of them after the switch; {completed} completed in between");
    run(&["index", "compact", "-q", "-i", "x"]);
    assert_undamaged(&index, &expected);
    run(&["verify", "-q", "-i", "x"]);
    // No files of killed compactions and no replaced texts are left.
    let mut folders: Vec<String> = fs::read_dir(&index)
        .unwrap()
        .flatten()
        .filter(|e| e.path().is_dir())
        .map(|e| e.file_name().into_string().unwrap().split('-').next().unwrap().to_owned())
        .collect();
    folders.sort();
    assert_eq!(folders, ["graphs", "lexical", "log", "records", "tables", "vectors"]);
    let snapshot = Snapshot::open(&index).unwrap();
    assert_eq!(snapshot.log_usage(&mut |_| {}).unwrap().dead_frames, 0);
}
