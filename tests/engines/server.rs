//! A Milvus for one node, the Milvus project's own, that a test starts and stops.

// Why nothing was tested is said.
#![allow(clippy::print_stderr)]

use std::{
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use turnwise_core::error::Class;
use turnwise_milvus::MilvusWriter;

/// How long a server may take to begin.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server; it ends with the test.
pub struct Server {
    child: Child,
    pub port: u16,
    /// Beside it lies the Python that has Milvus' own client.
    pub program: PathBuf,
    data: TempDir,
}

/// The program, where `tests/milvus.sh` has put it.
fn program() -> Option<PathBuf> {
    let folder = match std::env::var_os("TURNWISE_MILVUS") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".cache/turnwise/milvus"),
    };
    let program = folder.join("bin/milvus-lite");
    if program.exists() {
        return Some(program);
    }
    eprintln!("skipped: {} is not there; tests/milvus.sh installs it", program.display());
    None
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Server {
    /// Starts one. Where there is none it says so, and the test has nothing to do.
    pub fn start() -> Option<Self> {
        let program = program()?;
        let data = tempfile::tempdir().unwrap();
        let port = free_port();
        let child = spawn(&program, &data, port);
        let server = Server { child, port, program, data };
        server.wait();
        Some(server)
    }

    /// Kills it and starts it new_generation on what it has on the disk.
    pub fn restart(&mut self) {
        self.kill();
        self.child = spawn(&self.program, &self.data, self.port);
        self.wait();
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Until it answers. It listens before it does: for seconds, where its program comes from a cold disk.
    fn wait(&self) {
        let begun = Instant::now();
        while let Err(e) = MilvusWriter::read_manifest(&self.target("nobody")) {
            assert!(e.class() == Class::Unavailable && begun.elapsed() < PATIENCE, "no server begins: {e}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn target(&self, name: &str) -> turnwise_milvus::Target {
        format!("milvus://127.0.0.1:{}/{name}", self.port).parse().unwrap()
    }
}

fn spawn(program: &PathBuf, data: &TempDir, port: u16) -> Child {
    Command::new(program)
        .args(["server", "--host", "127.0.0.1", "--port", &port.to_string(), "--data-dir"])
        .arg(data.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
