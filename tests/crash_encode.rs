//! Kills `encode` at random points. Committed vectors must stay, and the same command must continue. With `--replace`,
//! the old vectors stay in use until the new ones are complete.

#![cfg(all(unix, feature = "cli"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use turnwise_index::vectors::{Kind, VectorReader, check};

const KILLS: usize = 20;
const DIALOGUES: usize = 3000;
/// Number of vectors: three distinct utterances per dialogue, one utterance that all dialogues share, and one vector
/// per dialogue. Chunks of ten texts end within a dialogue.
const VECTORS: usize = 3 * DIALOGUES + 1 + DIALOGUES;

fn program(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwise"));
    command.current_dir(folder).env("HOME", folder).env_remove("XDG_CONFIG_HOME");
    // With small chunks, more kills happen at critical points.
    command.env("TURNWISE_ENCODE_BATCH", "10").stdout(Stdio::null());
    command
}

/// Returns all vectors in use, by kind and key.
fn vectors(index: &Path) -> BTreeMap<(usize, [u8; 16]), Vec<u32>> {
    let Some(reader) = VectorReader::open(index).unwrap() else { return BTreeMap::new() };
    let mut all = BTreeMap::new();
    for (n, kind) in Kind::ALL.into_iter().enumerate() {
        for (row, key) in reader.keys(kind).enumerate() {
            assert_eq!(reader.row_of(kind, &key), Some(row));
            let bits = reader.row(kind, row).unwrap().iter().map(|v| v.to_bits()).collect();
            assert!(all.insert((n, key.0), bits).is_none(), "a key has two rows");
        }
    }
    all
}

#[test]
fn kills_lose_no_committed_vector() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let model = folder.join("fitted");
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/support");
    let fitted = program(folder).args(["model", "fit", samples, "--dim", "16", "-o"]).arg(&model).status();
    assert!(fitted.unwrap().success());
    let index = folder.join("indexes/x");
    let mut corpus = fs::File::create(folder.join("in.jsonl")).unwrap();
    for n in 0..DIALOGUES {
        let turns = serde_json::json!([{"role": "user", "text": format!("question {n} about a parcel")},
            {"role": "agent", "text": "one moment please"}, {"role": "agent", "text": format!("it is at place {n}")},
            {"role": "user", "text": format!("thank you, {n}")}]);
        writeln!(corpus, "{}", serde_json::json!({"id": format!("d{n}"), "turns": turns})).unwrap();
    }
    assert!(
        program(folder)
            .args(["ingest", "-q", "-i", "x", "--no-index", "in.jsonl"])
            .status()
            .unwrap()
            .success()
    );

    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut whole_run = Duration::from_millis(1500);
    let (mut kills, mut completed) = (0, 0);
    let mut known = BTreeMap::new();
    while kills < KILLS || completed < 2 {
        let mut command = program(folder);
        command.args(["encode", "-q", "-i", "x", "--model"]).arg(&model);
        // After the first set is complete, further runs replace it.
        if completed > 0 {
            command.arg("--replace");
        }
        let started = Instant::now();
        let mut child = command.spawn().unwrap();
        let after = whole_run.mul_f64(random(1100) as f64 / 1000.0);
        let ended = loop {
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success(), "encode failed without a kill");
                break true;
            }
            if started.elapsed() >= after && kills < KILLS {
                child.kill().unwrap();
                child.wait().unwrap();
                break false;
            }
            std::thread::sleep(Duration::from_micros(300));
        };
        kills += usize::from(!ended);
        let now = vectors(&index);
        assert!(check(&index).unwrap().is_none_or(|found| found.damage.is_empty()));
        if completed == 0 {
            assert!(known.iter().all(|(key, row)| now.get(key) == Some(row)), "a committed vector is gone");
        } else {
            assert_eq!(now, known, "a replacement is visible before it is complete, or differs");
        }
        if ended {
            assert_eq!(now.len(), VECTORS);
            completed += 1;
            whole_run = whole_run.min(started.elapsed().max(Duration::from_millis(100)));
        }
        known = now;
    }
    eprintln!("{kills} kills, {completed} sets completed in between");
    assert!(program(folder).args(["verify", "-q", "-i", "x"]).status().unwrap().success());
}
