//! Tests of the server with the official clients of OpenAI's API and of the Model Context Protocol.

// Printing is allowed, because a skipped test prints the reason.
#![allow(clippy::print_stderr)]

use std::{path::PathBuf, process::Command};

use crate::{
    http::Server,
    serve::with_index,
    support::{Outcome, Turnwise},
};

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients");
const KEY: &str = "a-secret-of-some-length";

/// Returns a Python interpreter that can import the official clients; `None` if it is not installed.
fn python() -> Option<PathBuf> {
    let folder = match std::env::var_os("TURNWISE_CLIENTS") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".cache/turnwise/clients"),
    };
    let python = folder.join("bin/python");
    if python.exists() {
        return Some(python);
    }
    eprintln!("skipped: {} is not there; tests/clients.sh installs the clients", python.display());
    None
}

/// Runs a Python script of `tests/clients` in the folder of the test. Does nothing if Python is not installed.
#[track_caller]
fn done(t: &Turnwise, script: &str, args: &[&str]) {
    let Some(python) = python() else { return };
    let as_ours = t.command(&[]);
    let mut command = Command::new(python);
    for (name, value) in as_ours.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let script = format!("{SCRIPTS}/{script}");
    let out = Outcome::of(command.arg(script).args(args).current_dir(t.path("")).output().unwrap());
    assert!(out.code == 0 && out.out.contains(": done"), "{out:?}");
}

#[test]
fn openais_own_client_works_unchanged() {
    let t = with_index();
    let keys = format!("[[key]]\nname = \"client\"\nsecret = \"{KEY}\"\nscopes = [\"read\"]\n");
    t.write("keys.toml", keys);
    let server = Server::start(&t, "-i x --keys keys.toml");
    done(&t, "openai_client.py", &[&format!("http://{}/v1", server.address), KEY, "words"]);
}

#[test]
fn assistants_use_an_index_over_http_and_over_a_pipe() {
    let t = with_index();
    let server = Server::start(&t, "-i x");
    done(&t, "mcp_client.py", &[&format!("http://{}/mcp", server.address)]);
    done(&t, "mcp_client.py", &[env!("CARGO_BIN_EXE_turnwise"), "serve", "-i", "x", "--mcp"]);
}
