//! Runs the commands of the README in an empty folder. (rustdoc compiles its library example.)

#![cfg(feature = "cli")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Returns the lines of all `sh` blocks.
fn commands(readme: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut inside = false;
    for line in readme.lines() {
        match line.trim_end() {
            "```sh" => inside = true,
            "```" => inside = false,
            line if inside && !line.trim().is_empty() => commands.push(line.to_owned()),
            _ => {}
        }
    }
    commands
}

/// Commands that need the default model.
const NEED_THE_MODEL: [&str; 7] = [
    "turnwise model pull",
    "turnwise embed chats.jsonl.zst -o utterances.npy",
    "turnwise embed chats.jsonl.zst --of dialogues -o dialogues.arrow",
    "turnwise encode -i chats",
    "turnwise model info",
    "turnwise train context-cca --corpus chats -o runs/turns",
    "turnwise encode -i chats --model runs/turns/model --replace",
];

/// Returns the user's model cache. With it, the model is not downloaded in every test.
fn model_cache() -> PathBuf {
    let path = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let home = || path("HF_HOME").or_else(|| Some(path("HOME")?.join(".cache/huggingface")));
    path("HF_HUB_CACHE").or_else(|| Some(home()?.join("hub"))).unwrap_or_default()
}

#[test]
fn every_command_of_the_readme_works_in_order() {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let commands = commands(&readme);
    assert!(commands.len() >= 15, "{commands:?}");
    // CI takes these two commands from the README.
    assert!(
        ["cargo run --release -- demo", "cargo test"].iter().all(|c| commands.contains(&(*c).to_owned()))
    );
    let folder = tempfile::tempdir().unwrap();
    let binary = env!("CARGO_BIN_EXE_turnwise");
    let (mut ran, mut skipped) = (0, Vec::new());
    let mut has_model = true;
    for command in commands {
        // `cargo test` runs this test.
        if command == "cargo test" {
            continue;
        }
        let script = command.replace("cargo run --release --", binary);
        let script = match script.strip_prefix("turnwise ") {
            Some(rest) => format!("{binary} {rest}"),
            None => script,
        };
        let output = Command::new("sh")
            .args(["-c", &script])
            .current_dir(folder.path())
            .env("HOME", folder.path())
            .env("HF_HUB_CACHE", model_cache())
            .env_remove("XDG_CONFIG_HOME")
            .output()
            .unwrap();
        // Without a network, the model cannot be downloaded. Commands that need the model are then skipped.
        if !output.status.success() && command == "turnwise model pull" {
            has_model = false;
        }
        if !has_model && NEED_THE_MODEL.contains(&command.as_str()) {
            skipped.push(command);
            continue;
        }
        let outcome = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "`{command}` failed: {outcome}");
        assert!(!outcome.contains("warning"), "`{command}` warned: {outcome}");
        ran += 1;
    }
    eprintln!("{ran} commands of the README ran; skipped, because no model can be fetched: {skipped:?}");
    // The README shows this line of the demo's output.
    let demo = Command::new(binary)
        .arg("demo")
        .current_dir(folder.path())
        .env("HOME", folder.path())
        .env("HF_HUB_OFFLINE", "1")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&demo.stdout).into_owned();
    assert!(printed.contains("indexes/demo now holds 280 dialogues with 3,208 turns"), "{printed}");
}
