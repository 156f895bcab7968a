//! Kills `index build` at random points while searches run. Each search must use complete graphs, either old or new.
//! Its hits must equal those of an exact search and must not include deleted dialogues.

#![cfg(all(unix, feature = "cli"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use turnwise_index::{
    dense::{DenseReader, SearchSettings, in_use, verify},
    engine::{Candidate, Version},
    vectors::Kind,
};
use turnwise_store::Snapshot;

const KILLS: usize = 25;
const DIALOGUES: usize = 400;

fn program(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwise"));
    command.current_dir(folder).env("HOME", folder).env_remove("XDG_CONFIG_HOME").stdout(Stdio::null());
    command
}

fn run(folder: &Path, args: &[&str]) {
    assert!(program(folder).args(args).status().unwrap().success(), "{args:?}");
}

/// Replaces dialogues with texts that depend on the version.
fn change(folder: &Path, version: usize) {
    let line = |n: usize| {
        let words = ["parcel", "refund", "card", "room", "flight", "invoice", "doctor"];
        let word = |m: usize| words[(n * 5 + m * 3 + version * (m + 1)) % words.len()];
        let texts =
            [format!("{} {} number {n}", word(0), word(1)), format!("{} {} {version}", word(2), word(3))];
        let turns: Vec<_> = texts.iter().map(|t| serde_json::json!({"role": "user", "text": t})).collect();
        format!("{}\n", serde_json::json!({"id": format!("d{n:04}"), "turns": turns}))
    };
    // The first version creates all dialogues; each later version changes every third dialogue.
    let some = (0..DIALOGUES).filter(|n| version == 0 || (n + version).is_multiple_of(3));
    fs::write(folder.join("in.jsonl"), some.map(line).collect::<String>()).unwrap();
    run(folder, &["ingest", "-q", "-i", "x", "--no-encode", "in.jsonl"]);
    run(folder, &["encode", "-q", "-i", "x", "--model", "./fitted"]);
}

/// Compares a graph search with an exact search.
fn searches_agree(index: &Path) {
    let snapshot = Snapshot::open(index).unwrap();
    let reader = DenseReader::open(index, &snapshot).unwrap().unwrap();
    for row in [0, 100, 300] {
        let query = reader.vectors().row(Kind::Utterances, row).unwrap().to_vec();
        let look = SearchSettings { k: 5, ef: 400, ..SearchSettings::default() };
        let found = reader.search(&snapshot, Kind::Utterances, &query, &look).unwrap();
        let exact = reader
            .search(&snapshot, Kind::Utterances, &query, &SearchSettings { exact: true, ..look })
            .unwrap();
        assert_eq!(found.len(), 5);
        // Of hits with equal scores, either can be returned.
        let scores = |hits: &[Candidate]| hits.iter().map(|h| h.score).collect::<Vec<_>>();
        assert_eq!(scores(&found), scores(&exact));
        assert!(
            found.iter().all(|hit| snapshot.seq_of(hit.dialogue).map(Version::from) == Some(hit.version)),
            "something that is gone"
        );
    }
}

#[test]
fn a_killed_build_leaves_the_old_graphs_or_the_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let index = folder.join("indexes/x");
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/support");
    run(folder, &["model", "fit", "-q", samples, "--dim", "16", "-o", "fitted"]);
    change(folder, 0);
    run(folder, &["index", "build", "-q", "-i", "x"]);

    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut whole_run = Duration::from_secs(1);
    let (mut kills, mut switched, mut completed, mut version) = (0, 0, 0, 0);
    let (stop, searched) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        // Two threads search, and open the index again for every search.
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    searches_agree(&index);
                    searched.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while kills < KILLS {
            version += 1;
            change(folder, version);
            let before = in_use(&index).unwrap().unwrap();
            let after = whole_run.mul_f64(random(1100) as f64 / 1000.0);
            let started = Instant::now();
            let mut child = program(folder).args(["index", "build", "-q", "-i", "x"]).spawn().unwrap();
            let ended = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    assert!(status.success(), "the build failed without a kill");
                    break true;
                }
                if started.elapsed() >= after {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    break false;
                }
                std::thread::sleep(Duration::from_micros(300));
            };
            verify(&index).unwrap();
            searches_agree(&index);
            let now = in_use(&index).unwrap().unwrap();
            if ended {
                completed += 1;
                whole_run = started.elapsed().max(Duration::from_millis(20));
                assert_ne!(now, before);
            } else {
                kills += 1;
                switched += usize::from(now != before);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    run(folder, &["index", "build", "-q", "-i", "x"]);
    // The next complete build removes the files of killed builds.
    let left: Vec<_> = fs::read_dir(index.join("graphs")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    run(folder, &["verify", "-q", "-i", "x"]);
    let searched = searched.into_inner();
    eprintln!(
        "{kills} kills, {switched} of them after the switch; {completed} builds completed; {searched} searches beside"
    );
    assert!(searched > 0);
}
