//! Finds, unpacks and reads the shared data sets.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock},
};

use turnwise_corpus::{
    Dialogue,
    formats::{self, Problem, ReadOptions},
    walk,
};

/// Returns the unpacked folder of the archive `../shared/data/NAME.tar.zst`. If the archive is missing, prints a
/// message and returns `None`.
pub fn folder(name: &str) -> Option<PathBuf> {
    static UNPACKED: OnceLock<Mutex<BTreeMap<String, PathBuf>>> = OnceLock::new();
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../shared/data/{name}.tar.zst"));
    if !archive.exists() {
        eprintln!("skipped: {} is not on this machine", archive.display());
        return None;
    }
    let mut unpacked = UNPACKED.get_or_init(Mutex::default).lock().unwrap();
    if let Some(path) = unpacked.get(name) {
        return Some(path.clone());
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shared-data").join(name);
    let _ = fs::remove_dir_all(&target);
    fs::create_dir_all(&target).unwrap();
    let stream = zstd::Decoder::new(fs::File::open(&archive).unwrap()).unwrap();
    tar::Archive::new(stream).unpack(&target).unwrap();
    unpacked.insert(name.to_owned(), target.clone());
    Some(target)
}

/// Result of reading a path.
pub struct Read {
    pub dialogues: Vec<Dialogue>,
    pub problems: Vec<String>,
    /// Number of files in each format, by the name of the format.
    pub formats: BTreeMap<&'static str, usize>,
}

impl Read {
    pub fn turns(&self) -> usize {
        self.dialogues.iter().map(|d| d.turns.len()).sum()
    }

    /// Returns the number of dialogues per domain.
    #[allow(dead_code)]
    pub fn domains(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for domain in self.dialogues.iter().flat_map(|d| &d.domains) {
            *counts.entry(domain.clone()).or_default() += 1;
        }
        counts
    }
}

/// Reads a file or a folder as `ingest` does. The format is detected if none is given.
pub fn read(path: &Path, from: Option<&str>, options: &ReadOptions) -> Read {
    let from = from.map(|name| formats::by_name(name).unwrap());
    let plan = walk::plan(&[path.to_owned()], from).unwrap();
    let mut read = Read { dialogues: Vec::new(), problems: Vec::new(), formats: BTreeMap::new() };
    for source in plan.sources {
        *read.formats.entry(source.format.name).or_default() += 1;
        for item in source.read(options).unwrap() {
            match item {
                Ok(dialogue) => read.dialogues.push(dialogue),
                Err(Problem::Record(r) | Problem::File(r)) => read.problems.push(r.to_string()),
            }
        }
    }
    read
}
