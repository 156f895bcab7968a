//! What a ranker reached, as a file: with all that it depends on, so that it need not be done twice.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    result_store,
    significance::mean_and_deviation,
    tasks::{Map, Outcome, Skipped, Task, Value},
};
use turnwise_core::error::Result;

/// The shape of the file. Another number is another way to compute: results with it are not taken for these.
const SCHEMA: &str = "turnwise/bench/2";

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
    /// The seed of all that was drawn.
    pub seed: u64,
    /// With several, what was reached is the mean over them, and its deviation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seeds: Vec<u64>,
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
    /// Where things lie, for tasks that have vectors and labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<Map>,
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
    /// The seed; what hangs on it has it in its identity.
    pub seed: u64,
}

impl Of<'_> {
    /// The file of the result in a folder of results.
    pub fn path(&self, folder: &Path) -> PathBuf {
        path(folder, self.task.name(), self.data, self.ranker.0, &[&self.task.identity(), self.ranker.1])
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
            seed: self.seed,
            seeds: Vec::new(),
            machine: machine(),
            seconds,
            skipped: self.task.skipped().to_vec(),
            values: outcome.values,
            queries: outcome.queries,
            map: outcome.map,
        }
    }
}

/// The file of a result: named for people, and by the hash of all that it hangs on.
fn path(folder: &Path, task: &str, data: &Data, ranker: &str, identities: &[&str]) -> PathBuf {
    let mut hasher = blake3::Hasher::new();
    for part in [SCHEMA, env!("CARGO_PKG_VERSION"), &data.hash].iter().chain(identities) {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    let key = &hasher.finalize().to_hex()[..12];
    let stem = data.paths.first().map(|path| file_name(&stem(path))).unwrap_or_default();
    folder.join(format!("{task}-{stem}-{}-{key}.json", file_name(ranker)))
}

/// What of a text can stand in the name of a file anywhere.
pub fn file_name(text: &str) -> String {
    let letters = text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
    let text: String = letters.collect();
    text.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

/// The name of a file without its folder and its ending.
fn stem(path: &str) -> String {
    Path::new(path).file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

impl Done {
    /// Reads a result.
    pub fn read(path: &Path) -> Result<Self> {
        result_store::read(path, SCHEMA)
    }

    /// Writes it; the file appears whole or not at all.
    pub fn write(&self, path: &Path) -> Result<()> {
        result_store::write(path, self)
    }

    /// What was reached with several seeds, as one result: means, and how far the seeds are apart. `None` of none.
    pub fn over(seeds: &[Done]) -> Option<Done> {
        let mut one = seeds.first()?.clone();
        one.seeds = seeds.iter().map(|done| done.seed).collect();
        one.identity = seeds.iter().map(|done| done.identity.as_str()).collect::<Vec<_>>().join(" + ");
        one.options = seeds.iter().map(|done| done.options.as_str()).collect::<Vec<_>>().join(" + ");
        one.seconds = seeds.iter().map(|done| done.seconds).sum();
        for value in &mut one.values {
            let of_seeds: Vec<&Value> = seeds.iter().filter_map(|done| done.value(&value.measure)).collect();
            let means: Vec<f64> = of_seeds.iter().map(|of_seed| of_seed.value).collect();
            let (mean, deviation) = mean_and_deviation(&means);
            (value.value, value.deviation) = (mean, Some(deviation));
            let floors: Option<Vec<f64>> = of_seeds.iter().map(|of_seed| of_seed.floor).collect();
            value.floor = floors.map(|floors| mean_and_deviation(&floors).0);
            // Each query's mean, where there are queries; what was drawn anew with each seed is no query.
            value.each = match of_seeds.iter().all(|of_seed| of_seed.each.len() == one.queries.len()) {
                true => (0..one.queries.len())
                    .map(|n| of_seeds.iter().map(|of_seed| of_seed.each[n]).sum::<f64>() / means.len() as f64)
                    .collect(),
                false => means,
            };
        }
        Some(one)
    }

    /// The file of a result over several seeds.
    pub fn path(&self, folder: &Path) -> PathBuf {
        let seeds = format!("{:?}", self.seeds);
        path(folder, &self.task, &self.data, &self.ranker, &[&self.options, &self.identity, &seeds])
    }

    /// A measure's value.
    pub fn value(&self, measure: &str) -> Option<&Value> {
        self.values.iter().find(|value| value.measure == measure)
    }
}

/// The processor and its number, in words.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let name = name.map_or(std::env::consts::ARCH, |(_, name)| name.trim());
    format!("{name}, {cores} threads, {}", std::env::consts::OS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_seeds_are_one_result_with_mean_and_deviation() {
        let done = |seed: u64, values: &[f64]| Done {
            schema: SCHEMA.to_owned(),
            task: "sr".to_owned(),
            about: String::new(),
            options: "sr".to_owned(),
            data: Data { paths: vec!["a/b.txt".to_owned()], hash: "h".to_owned(), size: String::new() },
            ranker: "LDA".to_owned(),
            identity: format!("lda/{seed}"),
            turnwise: String::new(),
            seed,
            seeds: Vec::new(),
            machine: String::new(),
            seconds: 1.0,
            skipped: Vec::new(),
            values: vec![Value {
                measure: "MAP".to_owned(),
                value: values.iter().sum::<f64>() / values.len() as f64,
                deviation: None,
                floor: Some(0.25),
                each: values.to_vec(),
            }],
            queries: vec!["x".to_owned(), "y".to_owned()],
            map: None,
        };
        let of = [done(3, &[0.2, 0.4]), done(4, &[0.4, 0.8])];
        let one = Done::over(&of).unwrap();
        let value = &one.values[0];
        assert!((value.value - 0.45).abs() < 1e-12);
        assert!((value.deviation.unwrap() - mean_and_deviation(&[0.3, 0.6]).1).abs() < 1e-12);
        assert_eq!((value.floor, one.seeds.as_slice(), one.seconds), (Some(0.25), &[3, 4][..], 2.0));
        assert!(value.each.iter().zip([0.3, 0.6]).all(|(a, b)| (a - b).abs() < 1e-12));
        assert_ne!(one.path(Path::new("r")), of[0].path(Path::new("r")));
        assert!(one.path(Path::new("r")).to_str().unwrap().starts_with("r/sr-b-lda-"));
        assert_eq!(Done::over(&[]), None);
    }
}
