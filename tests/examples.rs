//! Runs the programs in examples/.

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::{
    path::Path,
    process::{Command, Output},
};

/// Runs an example with its own temporary folder. Returns `None` if the example was not built, as with
/// `cargo test --test examples`.
fn run(name: &str) -> Option<Output> {
    let program = Path::new(env!("CARGO_BIN_EXE_turnwise")).parent().unwrap().join("examples").join(name);
    if !program.exists() {
        eprintln!("skipped: {} was not built (`cargo build --examples` builds it)", program.display());
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = env!("CARGO_MANIFEST_DIR");
    Some(Command::new(program).env("TMPDIR", folder.path()).current_dir(root).output().unwrap())
}

#[test]
fn every_example_runs() {
    for (name, prints) in [
        ("search", "280 dialogues added"),
        ("meaning", "3207 utterances and 280 dialogues encoded"),
        ("formats", "280 dialogues, 3208 turns, 0 problems"),
        ("duplicates", "banking-001#1: "),
        ("evaluate", "average precision 0.8333"),
    ] {
        let Some(output) = run(name) else { continue };
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(printed.contains(prints), "{name} printed {printed}");
    }
}
