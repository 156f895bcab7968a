//! Helpers that run the program and sentence-transformers, find the default model, and read files of vectors.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Name of the default model.
const MODEL: &str = "all-MiniLM-L6-v2";

/// Python script that computes vectors with sentence-transformers.
const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/agreement/reference.py");

/// Maximum difference between the numbers of two programs that do the same computation in f32.
pub const CLOSE: f32 = 1e-5;

pub fn skip(test: &str, why: &str) {
    eprintln!("{test} skipped: {why}");
}

/// Returns the folder of the default model. Returns `None`, and prints the reason, if the model is not available.
pub fn default_model(test: &str) -> Option<&'static Path> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        if let Some(folder) = std::env::var_os("TURNWISE_TEST_MODEL") {
            let folder = PathBuf::from(folder);
            assert!(folder.join("config.json").is_file(), "TURNWISE_TEST_MODEL holds no model: {folder:?}");
            return Ok(folder);
        }
        let cached = || {
            let info = turnwise(&["model", "info", MODEL, "--format", "json"]).ok()?;
            let info: Value = serde_json::from_str(&info).expect("`model info` prints JSON");
            Some(PathBuf::from(info["path"].as_str().expect("`model info` tells the path")))
        };
        if let Some(folder) = cached() {
            return Ok(folder);
        }
        turnwise(&["model", "pull", MODEL]).map_err(|e| format!("{MODEL} cannot be pulled: {e}"))?;
        Ok(cached().expect("a model that was pulled is found"))
    });
    match found {
        Ok(folder) => Some(folder),
        Err(why) => {
            skip(test, why);
            None
        }
    }
}

/// Runs the program without settings, with the user's cache of models. Returns its standard output.
pub fn turnwise(args: &[&str]) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnwise"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TURNWISE_") {
            command.env_remove(name);
        }
    }
    let nowhere = std::env::temp_dir().join("turnwise-agreement-no-settings");
    run(command.args(args).env("XDG_CONFIG_HOME", nowhere))
}

fn run(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{command:?}: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(format!(
            "{command:?} ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

/// Path of a Python interpreter with sentence-transformers.
pub struct Peers(PathBuf);

impl Peers {
    /// Finds the interpreter. If there is none, prints the reason and returns `None`, or panics if TURNWISE_PEERS is
    /// set.
    pub fn find(test: &str) -> Option<Self> {
        static LOADS: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let found = LOADS.get_or_init(|| {
            let asked_for = std::env::var_os("TURNWISE_PEERS").map(PathBuf::from);
            let home = || std::env::home_dir().unwrap_or_default().join(".cache/turnwise/peers");
            let python = asked_for.clone().unwrap_or_else(home).join("bin/python");
            let loads = match python.is_file() {
                true => run(Command::new(&python).args(["-c", "import sentence_transformers"])).map(|_| ()),
                false => {
                    Err(format!("there is no {}; benchmarks/encode/peers.sh makes it", python.display()))
                }
            };
            // If TURNWISE_PEERS is set, a skipped test would look like an agreement.
            if let (Some(_), Err(why)) = (asked_for, &loads) {
                panic!("TURNWISE_PEERS is set, but {why}");
            }
            loads.map(|()| python)
        });
        match found {
            Ok(python) => Some(Peers(python.clone())),
            Err(why) => {
                skip(test, why);
                None
            }
        }
    }

    /// Runs the Python script with these arguments and returns its output.
    #[track_caller]
    pub fn reference(&self, args: &[&str]) -> String {
        let mut command = Command::new(&self.0);
        // The models are in local folders, so no network is needed.
        command
            .arg(REFERENCE)
            .args(args)
            .envs([("HF_HUB_OFFLINE", "1"), ("TOKENIZERS_PARALLELISM", "false")]);
        run(&mut command).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Returns the vectors that sentence-transformers computes for a file of texts.
    #[track_caller]
    pub fn vectors(&self, folder: &Work, model: &Path, texts: &Path) -> Rows {
        let target = folder.path("peers.npy");
        self.reference(&["vectors", text(model), text(texts), text(&target)]);
        Rows::read(&target)
    }
}

/// Temporary folder of a test.
pub struct Work(TempDir);

impl Work {
    pub fn new() -> Self {
        Work(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes texts as JSON lines with `id` and `text`.
    pub fn texts<T: AsRef<str>>(&self, name: &str, texts: &[T]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, jsonl(texts)).unwrap();
        path
    }

    /// Returns the vectors that the program computes for a file of texts.
    #[track_caller]
    pub fn embed(&self, model: &Path, texts: &Path, more: &[&str]) -> Rows {
        let target = self.path("ours.npy");
        // An earlier output file must not be mistaken for the new one.
        let _ = fs::remove_file(&target);
        let mut args =
            vec!["embed", "--model", text(model), "--from", "texts-jsonl", text(texts), "-o", text(&target)];
        args.extend(more);
        turnwise(&args).unwrap_or_else(|e| panic!("{e}"));
        Rows::read(&target)
    }
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub fn jsonl<T: AsRef<str>>(texts: &[T]) -> String {
    let line =
        |(n, text): (usize, &T)| format!("{}\n", json!({"id": format!("t{n:04}"), "text": text.as_ref()}));
    texts.iter().enumerate().map(line).collect()
}

/// Rows of a `.npy` file.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    pub count: usize,
    pub width: usize,
    numbers: Vec<f32>,
}

impl Rows {
    #[track_caller]
    pub fn read(path: &Path) -> Self {
        let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(&bytes[..6], b"\x93NUMPY", "{}", path.display());
        let (from, length) = match bytes[6] {
            1 => (10, usize::from(u16::from_le_bytes([bytes[8], bytes[9]]))),
            _ => (12, u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize),
        };
        let header = std::str::from_utf8(&bytes[from..from + length]).unwrap();
        assert!(header.contains("'<f4'") && header.contains("'fortran_order': False"), "{header}");
        let shape = header.split_once("'shape': (").unwrap().1.split_once(')').unwrap().0;
        let shape: Vec<usize> = shape.split(',').map(|n| n.trim().parse().unwrap()).collect();
        let numbers = bytes[from + length..].chunks_exact(4);
        let numbers: Vec<f32> = numbers.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let &[count, width] = shape.as_slice() else { panic!("{header}") };
        assert_eq!(numbers.len(), count * width, "{}", path.display());
        Rows { count, width, numbers }
    }

    pub fn row(&self, n: usize) -> &[f32] {
        &self.numbers[n * self.width..(n + 1) * self.width]
    }

    /// Selects rows, in the given order.
    pub fn select(&self, places: impl IntoIterator<Item = usize>) -> Self {
        let places: Vec<usize> = places.into_iter().collect();
        let numbers = places.iter().flat_map(|&n| self.row(n).iter().copied()).collect();
        Rows { count: places.len(), width: self.width, numbers }
    }

    /// Checks that all numbers agree. The maximum difference is `close`, or `close` times the largest number of the
    /// vector if this number is larger than 1. The message names the texts with larger differences.
    #[track_caller]
    pub fn agree<T: AsRef<str>>(&self, other: &Rows, close: f32, texts: &[T], what: &str) {
        assert_eq!((self.count, self.width), (other.count, other.width), "{what}");
        assert_eq!(self.count, texts.len(), "{what}");
        let apart = |n: usize| {
            let pairs = self.row(n).iter().zip(other.row(n));
            // `max` ignores NaN, so NaN is checked separately.
            pairs
                .map(|(a, b)| (a - b).abs())
                .fold(0.0, |most: f32, d| if d > most || d.is_nan() { d } else { most })
        };
        let largest = |n: usize| other.row(n).iter().fold(1.0f32, |most, v| most.max(v.abs()));
        let wrong: Vec<(usize, f32)> = (0..self.count)
            .map(|n| (n, apart(n)))
            .filter(|(n, d)| d.is_nan() || *d > close * largest(*n))
            .collect();
        let first: Vec<String> = wrong
            .iter()
            .take(5)
            .map(|(n, d)| format!("{d:e}: {:?}", texts[*n].as_ref().chars().take(80).collect::<String>()))
            .collect();
        assert!(
            wrong.is_empty(),
            "{what}: {} of {} apart by more than {close:e}: {first:#?}",
            wrong.len(),
            self.count
        );
    }
}

#[test]
fn agree_detects_a_difference() {
    let rows = Rows { count: 2, width: 2, numbers: vec![0.0, 1.0, 2.0, 3.0] };
    rows.agree(&rows.clone(), 0.0, &["a", "b"], "the same");
    assert_eq!(rows.select([1]).row(0), [2.0, 3.0]);
    for wrong in [3.1, f32::NAN] {
        let other = Rows { numbers: vec![0.0, 1.0, 2.0, wrong], ..rows.clone() };
        let seen = std::panic::catch_unwind(|| rows.agree(&other, CLOSE, &["a", "b"], "not the same"));
        assert!(seen.is_err(), "{wrong}");
    }
}
