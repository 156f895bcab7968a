//! Runs the program in a temporary folder.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Output, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Folder of the sample corpus.
pub const SAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/support");

/// Maximum time that a test waits for a message from the program.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The program, in a temporary folder and without settings of the environment.
pub struct Turnwise {
    folder: TempDir,
}

/// Output and exit code of the program.
#[derive(Debug)]
pub struct Outcome {
    pub out: String,
    pub err: String,
    pub code: i32,
}

impl Turnwise {
    pub fn new() -> Self {
        Turnwise { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Returns the path of a model for tests that encode. The model is fitted on the sample dialogues, so nothing is
    /// downloaded.
    pub fn model(&self) -> String {
        let folder = self.path("fitted");
        let out = self.run_args(&["model", "fit", SAMPLES, "-o", folder.to_str().unwrap(), "--dim", "16"]);
        assert_eq!(out.code, 0, "{out:?}");
        folder.display().to_string()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_turnwise"));
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy().to_uppercase();
            let ours = text.starts_with("TURNWISE_") || text.starts_with("XDG_");
            let of_models = text.starts_with("HF_") || text.ends_with("_PROXY");
            if ours || of_models || ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"].contains(&text.as_str()) {
                command.env_remove(name);
            }
        }
        command
            .args(args)
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            // Tests that download use their own hub and set its address.
            .env("HF_HUB_OFFLINE", "1")
            .env("XDG_CONFIG_HOME", self.path("config"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs a command line, split at spaces.
    pub fn run(&self, line: &str) -> Outcome {
        self.run_args(&words(line))
    }

    pub fn run_args(&self, args: &[&str]) -> Outcome {
        Outcome::of(self.command(args).output().unwrap())
    }

    /// Runs a command line with this standard input.
    pub fn run_with(&self, line: &str, input: &[u8]) -> Outcome {
        let mut child = self.command(&words(line)).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // The program may stop reading early; the test checks the exit code.
        let feeder = thread::spawn(move || drop(stdin.write_all(&input)));
        let outcome = Outcome::of(child.wait_with_output().unwrap());
        feeder.join().unwrap();
        outcome
    }

    /// Runs a command line, which must succeed, and returns its standard output.
    #[track_caller]
    pub fn ok(&self, line: &str) -> String {
        let outcome = self.run(line);
        assert_eq!(outcome.code, 0, "{line}: {outcome:?}");
        outcome.out
    }

    /// Runs a command line with `--format json` and parses the output.
    #[track_caller]
    pub fn json(&self, line: &str) -> Value {
        self.run(&format!("{line} --format json")).json()
    }

    /// Starts a command repeatedly and kills it after an increasing time. After each kill, calls `seen`. Ends when
    /// `seen` returns true, or when the command finishes before the kill. The first command must not finish.
    #[cfg(feature = "milvus")]
    pub fn kill_at_increasing_times(&self, line: &str, mut seen: impl FnMut() -> bool) {
        for (kills, millis) in (100..).step_by(400).enumerate() {
            let mut started = self.start(line);
            thread::sleep(Duration::from_millis(millis));
            if let Some(status) = started.child.try_wait().unwrap() {
                assert!(status.success() && kills > 0, "{line}: {status}");
                return;
            }
            started.child.kill().unwrap();
            started.end();
            if seen() {
                return;
            }
        }
    }

    /// Starts a command with an open standard input. Its standard error can be read line by line.
    pub fn start(&self, line: &str) -> Started {
        Started::spawn(self.command(&words(line)))
    }

    /// Returns all dialogues of an index, sorted by id.
    pub fn dialogues(&self, index: &str) -> Vec<Value> {
        let mut all = lines(&self.ok(&format!("corpus export -q -i {index}")));
        all.sort_by_key(id_of);
        all
    }

    /// Returns the sorted ids of the dialogues of an index.
    pub fn ids(&self, index: &str) -> Vec<String> {
        self.dialogues(index).iter().map(id_of).collect()
    }
}

impl Outcome {
    pub fn of(output: Output) -> Self {
        Outcome {
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
            code: output.status.code().unwrap_or(-1),
        }
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Checks the exit code, and that standard error contains each of the texts.
    #[track_caller]
    pub fn says(&self, code: i32, texts: &[&str]) -> &Self {
        assert_eq!(self.code, code, "{self:?}");
        for text in texts {
            assert!(self.err.contains(text), "`{text}` is not printed: {self:#?}");
        }
        self
    }
}

/// A running program.
pub struct Started {
    pub child: Child,
    pub stdin: Option<ChildStdin>,
    stderr_lines: Receiver<String>,
}

impl Started {
    pub fn spawn(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, stderr_lines) = mpsc::channel();
        thread::spawn(move || stderr.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        Started { child, stdin, stderr_lines }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn feed(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    /// Waits for a line on standard error that contains the text, and returns the line.
    #[track_caller]
    pub fn wait_for_message(&self, text: &str) -> String {
        loop {
            let line = self
                .stderr_lines
                .recv_timeout(TIMEOUT)
                .unwrap_or_else(|e| panic!("`{text}` is not said: {e}"));
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Sends SIGINT, like Ctrl-C.
    #[cfg(unix)]
    pub fn interrupt(&self) {
        let line = format!("kill -INT {}", self.pid());
        assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
    }

    /// Waits until the program ends. Returns its exit code, its standard output, and the unread standard error.
    pub fn end(mut self) -> Outcome {
        let output = self.child.wait_with_output().unwrap();
        let err: String = self.stderr_lines.iter().map(|line| line + "\n").collect();
        drop(self.stdin.take());
        Outcome { err, ..Outcome::of(output) }
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

pub fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

pub fn id_of(dialogue: &Value) -> String {
    dialogue["id"].as_str().unwrap().to_owned()
}

/// Returns a JSON line with a dialogue of two turns.
pub fn record(id: &str, text: &str) -> String {
    let turns = json!([
        {"speaker": "Ann", "role": "user", "text": text},
        {"speaker": "Bob", "role": "agent", "text": "One moment, please."}
    ]);
    format!("{}\n", json!({"id": id, "source": "test", "turns": turns}))
}

/// Returns this number of dialogues as JSON lines, with ids in ascending order.
pub fn records(count: usize) -> String {
    (0..count).map(|n| record(&format!("d{n:06}"), &format!("this is text number {n}"))).collect()
}

pub fn gz(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes.as_ref()).unwrap();
    out.finish().unwrap()
}

pub fn zst(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    zstd::encode_all(bytes.as_ref(), 1).unwrap()
}

pub fn sample(name: &str) -> String {
    fs::read_to_string(Path::new(SAMPLES).join(name)).unwrap()
}

/// Returns all files of a folder, with their bytes.
pub fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => all.extend(files(&path)),
            false => all.push((path.clone(), fs::read(&path).unwrap())),
        }
    }
    all.sort();
    all
}
