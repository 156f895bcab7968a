//! Imports only go down: a module uses those above it in ARCHITECTURE.md's list, never those below.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// From the ground up, as in ARCHITECTURE.md.
const ROOMS: [&str; 15] = [
    "error", "ids", "average", "random", "corpus", "store", "text", "encoder", "train", "index", "measures",
    "search", "eval", "serve", "cli",
];

/// Holds nothing but texts; anybody may use it.
const DATA: [&str; 1] = ["samples"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The rooms that a file names with `crate::`, in `use` groups and in paths.
fn used(text: &str) -> Vec<String> {
    let code: String = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .fold(String::new(), |t, l| t + l + "\n");
    let mut rooms = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut name = String::new();
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => rooms.push(std::mem::take(&mut name)),
                    c if depth == 0 && !c.is_whitespace() => name.push(c),
                    _ => {}
                }
            }
            rooms.push(name);
        } else {
            rooms.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    rooms
        .into_iter()
        .map(|room| room.split("::").next().unwrap().to_owned())
        .filter(|r| !r.is_empty())
        .collect()
}

#[test]
fn no_import_climbs() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    assert!(files.len() > 40);
    let level = |room: &str| ROOMS.iter().position(|r| *r == room);
    let mut wrong = Vec::new();
    let mut edges = 0;
    for file in files {
        let inner = file.strip_prefix(&src).unwrap();
        let room = inner.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_owned();
        // These are crates below all rooms.
        if ["lib", "main", "kernels", "nearest"].contains(&room.as_str()) || DATA.contains(&room.as_str()) {
            continue;
        }
        let own =
            level(&room).unwrap_or_else(|| panic!("{} is in no room of ARCHITECTURE.md", inner.display()));
        for other in used(&fs::read_to_string(&file).unwrap()) {
            if DATA.contains(&other.as_str()) || ["Error", "Result"].contains(&other.as_str()) {
                continue;
            }
            match level(&other) {
                Some(theirs) if theirs <= own => edges += 1,
                Some(_) => wrong.push(format!("{}: {room} must not use {other}", inner.display())),
                None => wrong.push(format!("{}: `{other}` is no room", inner.display())),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(edges > 100, "the test no longer sees the imports");
}

#[test]
fn the_test_sees_every_way_to_import() {
    let text = "use crate::error::Result;\nuse crate::{\n  corpus::{Dialogue, x::{y}},\n  store,\n};\nfn f() { crate::cli::main() } // crate::serve";
    assert_eq!(used(text), ["error", "corpus", "store", "cli"]);
}

#[test]
fn the_rooms_are_those_of_the_architecture() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md")).unwrap();
    let mut last = 0;
    for room in ROOMS {
        let at = text
            .find(&format!("| `{room}`"))
            .unwrap_or_else(|| panic!("ARCHITECTURE.md does not list `{room}`"));
        assert!(at > last, "ARCHITECTURE.md lists `{room}` in another place");
        last = at;
    }
}

#[test]
fn nothing_but_the_server_and_clients_needs_an_asynchronous_runtime() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let needed = |features: &[&str]| {
        let mut tree = Command::new(env!("CARGO"));
        tree.args(["tree", "--locked", "--offline", "--package", "turnwise", "--edges", "normal"]);
        tree.args(["--prefix", "none", "--format", "{p}", "--no-default-features"]);
        let output = tree.args(features).current_dir(root).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let names = |tree: &str| -> Vec<String> {
        tree.lines().map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
    };
    for runtime in ["tokio", "async-std", "smol"] {
        let without = names(&needed(&["--features", "cli"]));
        assert!(
            without.contains(&"sled".to_owned()) && !without.contains(&runtime.to_owned()),
            "{runtime} came in"
        );
    }
    for asynchronous in ["serve", "remote", "milvus"] {
        assert!(names(&needed(&["--features", asynchronous])).contains(&"tokio".to_owned()));
    }
    let mut all = Vec::new();
    sources(&root.join("src"), &mut all);
    for file in all {
        let inner = file.strip_prefix(root.join("src")).unwrap();
        // The clients of object stores and of Milvus are asynchronous; one file each waits for them, so that nobody else has to.
        let waits = ["cli/shards/remote.rs", "index/milvus/connection.rs"]
            .iter()
            .any(|file| inner == Path::new(file));
        let may = inner.starts_with("serve") || waits;
        let text = fs::read_to_string(&file).unwrap();
        assert!(may || !text.contains("tokio::"), "{} is asynchronous", file.display());
    }
}
