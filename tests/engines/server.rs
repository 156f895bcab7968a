//! Milvus Lite, the Milvus project's single-node server, which a test starts and stops.

// Printing is allowed, because a skipped test prints the reason.
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

/// Maximum time until a server responds.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A running server. It is killed when it is dropped.
pub struct Server {
    child: Child,
    pub port: u16,
    /// Path of the server program. The Python interpreter in the same folder has Milvus's client.
    pub program: PathBuf,
    data: TempDir,
}

/// Returns the path of the program that `tests/milvus.sh` installs; `None` if it is not installed.
fn program() -> Option<PathBuf> {
    let folder = match std::env::var_os("TURNWISE_MILVUS") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".cache/turnwise/milvus"),
    };
    let program = folder.join("bin/milvus-lite");
    if program.exists() {
        return Some(program);
    }
    eprintln!("skipped: {} does not exist; tests/milvus.sh installs it", program.display());
    None
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Server {
    /// Starts a server. Returns `None`, and prints the reason, if the program is not installed.
    pub fn start() -> Option<Self> {
        let program = program()?;
        let data = tempfile::tempdir().unwrap();
        let port = free_port();
        let child = spawn(&program, &data, port);
        let server = Server { child, port, program, data };
        server.wait();
        Some(server)
    }

    /// Kills the server and starts it again with the same data.
    pub fn restart(&mut self) {
        self.kill();
        self.child = spawn(&self.program, &self.data, self.port);
        self.wait();
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until the server answers requests. This can be several seconds after it accepts connections.
    fn wait(&self) {
        let started = Instant::now();
        while let Err(e) = MilvusWriter::read_manifest(&self.target("nobody")) {
            assert!(
                e.class() == Class::Unavailable && started.elapsed() < START_TIMEOUT,
                "the server does not start: {e}"
            );
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
