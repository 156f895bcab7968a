//! What a ranker reached, as a file: with all that it depends on, so that it need not be done twice.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::tasks::{Outcome, Skipped, Task, Value};
use crate::{
    error::{Error, IoContext, Result},
    store::files,
};

/// The shape of the file. Another number is another way to compute: results with it are not taken for these.
const SCHEMA: &str = "turnwise/bench/1";

/// A task done by a ranker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Names this shape.
    pub schema: String,
    /// The task's short name.
    pub task: String,
    /// What it is, with its paper.
    pub about: String,
    /// The task's options, in words.
    pub options: String,
    /// What it was done on.
    pub data: Data,
    /// The ranker's name.
    pub ranker: String,
    /// Everything that changes its scores.
    pub identity: String,
    /// The version of turnwise.
    pub turnwise: String,
    /// The machine, in words.
    pub machine: String,
    /// What it took.
    pub seconds: f64,
    /// What was left out, and why.
    pub skipped: Vec<Skipped>,
    /// By measure; each query's where there are queries.
    pub values: Vec<Value>,
    /// The queries, in the order of their values.
    pub queries: Vec<String>,
}

/// What a task was done on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Data {
    /// The files, as they were named.
    pub paths: Vec<String>,
    /// The hash of what is in them.
    pub hash: String,
    /// How many of what.
    pub size: String,
}

/// What a result hangs on: the same of all three is the same result.
#[derive(Clone, Copy)]
pub struct Of<'a> {
    /// The task and its options.
    pub task: &'a dyn Task,
    /// The files.
    pub data: &'a Data,
    /// The ranker's name and identity.
    pub ranker: (&'a str, &'a str),
}

impl Of<'_> {
    /// The file of the result in a folder of results.
    pub fn path(&self, folder: &Path) -> PathBuf {
        let mut hasher = blake3::Hasher::new();
        for part in [SCHEMA, env!("CARGO_PKG_VERSION"), &self.task.identity(), &self.data.hash, self.ranker.1]
        {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        let key = &hasher.finalize().to_hex()[..12];
        let plain = |text: &str| -> String {
            let letters =
                text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
            let text: String = letters.collect();
            text.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
        };
        let stem = self.data.paths.first().map(|path| plain(&stem(path))).unwrap_or_default();
        folder.join(format!("{}-{stem}-{}-{key}.json", self.task.name(), plain(self.ranker.0)))
    }

    /// The result, if it is there.
    pub fn known(&self, folder: &Path) -> Option<Done> {
        let done = Done::read(&self.path(folder)).ok()?;
        (done.data.hash == self.data.hash && done.identity == self.ranker.1).then_some(done)
    }

    /// A new result.
    pub fn done(&self, outcome: Outcome, seconds: f64) -> Done {
        Done {
            schema: SCHEMA.to_owned(),
            task: self.task.name().to_owned(),
            about: self.task.about().to_owned(),
            options: self.task.identity(),
            data: self.data.clone(),
            ranker: self.ranker.0.to_owned(),
            identity: self.ranker.1.to_owned(),
            turnwise: env!("CARGO_PKG_VERSION").to_owned(),
            machine: machine(),
            seconds,
            skipped: self.task.skipped().to_vec(),
            values: outcome.values,
            queries: outcome.queries,
        }
    }
}

/// The name of a file without its folder and its ending.
fn stem(path: &str) -> String {
    Path::new(path).file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

impl Done {
    /// Reads a result.
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = std::fs::read(path).at("read", path)?;
        let wrong = |why: String| Error::Data {
            message: format!("{} is no result of `turnwise bench`: {why}", path.display()),
            hint: Some("`turnwise bench` writes such files into its folder of results".to_owned()),
        };
        let done: Done = serde_json::from_slice(&bytes).map_err(|e| wrong(e.to_string()))?;
        match done.schema == SCHEMA {
            true => Ok(done),
            false => Err(wrong(format!("its schema is {}, not {SCHEMA}", done.schema))),
        }
    }

    /// Writes it; the file appears whole or not at all.
    pub fn write(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).at("create", folder)?;
        }
        let bytes = serde_json::to_vec_pretty(self).map_err(|e| Error::Internal(e.to_string()))?;
        files::replace(path, &bytes)
    }

    /// A measure's value.
    pub fn value(&self, measure: &str) -> Option<&Value> {
        self.values.iter().find(|value| value.measure == measure)
    }
}

/// The processor and its number, in words.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let name = name.map_or(std::env::consts::ARCH, |(_, name)| name.trim());
    format!("{name}, {cores} threads, {}", std::env::consts::OS)
}
