//! Results of rankers on tasks. A file stores a result, the hash of the data, and the options of the task and the
//! ranker.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    significance::mean_and_deviation,
    tasks::{Map, Outcome, Skipped, TaskDescription, Value},
};
use turnwise_core::{
    error::{Error, IoContext, Result},
    files,
};

/// Name and version of the file format. Stored results with another version are not used.
const SCHEMA: &str = "turnwise/bench/2";

/// Result of a ranker on a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Name and version of the file format.
    pub schema: String,
    /// Short name of the task.
    pub task: String,
    /// Description of the task, with the name of the paper.
    pub about: String,
    /// Text that contains all options of the task that affect the values, from [`Task::identity`](super::tasks::Task::identity).
    pub options: String,
    /// Data of the task.
    pub data: Data,
    /// Name of the ranker.
    pub ranker: String,
    /// Text that contains all settings of the ranker that affect its scores.
    pub identity: String,
    /// Version of turnwise that ran the benchmark.
    pub turnwise: String,
    /// Random seed.
    pub seed: u64,
    /// Random seeds of the results whose values were averaged; empty if the result is for one seed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seeds: Vec<u64>,
    /// Description of the machine.
    pub machine: String,
    /// Elapsed time of the run in seconds.
    pub seconds: f64,
    /// Numbers of data items that were skipped, with the reasons.
    pub skipped: Vec<Skipped>,
    /// One entry per measure. If the task has queries, an entry also contains the value of each query.
    pub values: Vec<Value>,
    /// Ids of the queries. Each entry of `values` lists its query values in this order.
    pub queries: Vec<String>,
    /// Category of each query, in the order of `queries`; empty if the task does not report categories.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// Two-dimensional map of the documents; `None` if the task has no labels or the ranker has no vectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<Map>,
}

/// Data of a task: the paths of its files, a hash of their content, and the size of the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Data {
    /// Paths of the files, as the user gave them.
    pub paths: Vec<String>,
    /// Hash of the content of the files.
    pub hash: String,
    /// Size of the task as text, for example "20 pairs".
    pub size: String,
}

/// Key of a stored result: task, data, ranker and random seed. Results with the same key are interchangeable.
#[derive(Clone, Copy)]
pub struct Of<'a> {
    /// Name and description of the task.
    pub task: TaskDescription<'a>,
    /// Text that contains all options of the task that affect the values.
    pub options: &'a str,
    /// Data of the task.
    pub data: &'a Data,
    /// Name and identity of the ranker. The identity contains all settings that affect the scores.
    pub ranker: (&'a str, &'a str),
    /// Random seed. The identity of a task or ranker includes the seed if the results depend on the seed.
    pub seed: u64,
}

impl Of<'_> {
    /// Returns the path of the result's file in a results folder.
    pub fn path(&self, folder: &Path) -> PathBuf {
        path(folder, self.task.name, self.data, self.ranker.0, &[self.options, self.ranker.1])
    }

    /// Reads the stored result with this key. Returns `None` if there is no readable result with the same data and
    /// ranker.
    pub fn known(&self, folder: &Path) -> Option<Done> {
        let done = Done::read(&self.path(folder)).ok()?;
        (done.data.hash == self.data.hash && done.identity == self.ranker.1).then_some(done)
    }

    /// Creates the result to store from the outcome of the task and the elapsed time.
    pub fn done(&self, outcome: Outcome, seconds: f64) -> Done {
        Done {
            schema: SCHEMA.to_owned(),
            task: self.task.name.to_owned(),
            about: self.task.about.to_owned(),
            options: self.options.to_owned(),
            data: self.data.clone(),
            ranker: self.ranker.0.to_owned(),
            identity: self.ranker.1.to_owned(),
            turnwise: env!("CARGO_PKG_VERSION").to_owned(),
            seed: self.seed,
            seeds: Vec::new(),
            machine: machine(),
            seconds,
            skipped: self.task.skipped.to_vec(),
            values: outcome.values,
            queries: outcome.queries,
            categories: outcome.categories,
            map: outcome.map,
        }
    }
}

/// Returns the path of a result's file. The file name is a readable name followed by a hash of everything that the
/// result depends on.
fn path(folder: &Path, task: &str, data: &Data, ranker: &str, identities: &[&str]) -> PathBuf {
    let mut hasher = blake3::Hasher::new();
    for part in [SCHEMA, env!("CARGO_PKG_VERSION"), &data.hash].iter().chain(identities) {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    let key = &hasher.finalize().to_hex()[..12];
    let stem = data.paths.first().map(|path| stem(path)).unwrap_or_default();
    folder.join(format!("{task}-{stem}-{}-{key}.json", file_name(ranker)))
}

/// Converts a text to a portable file name, which contains only lowercase ASCII letters, digits and hyphens.
pub fn file_name(text: &str) -> String {
    let letters = text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
    let text: String = letters.collect();
    text.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

/// Returns the name of a file as a portable file name, without its folder and extension.
pub(crate) fn stem(path: &str) -> String {
    file_name(&Path::new(path).file_stem().unwrap_or_default().to_string_lossy())
}

impl Done {
    /// Reads a result from its file. Returns an error if the file has a different schema.
    pub fn read(path: &Path) -> Result<Self> {
        read_file(path, SCHEMA)
    }

    /// Writes the result to a file, atomically.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_file(path, self)
    }

    /// Combines the results of several random seeds into one result with means and standard deviations. Returns `None`
    /// if `seeds` is empty.
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
            // If there is one value per query, average the values of each query over the seeds. Otherwise, the values
            // are random draws, and the draws of different seeds do not correspond. Then keep one mean per seed.
            value.each = match of_seeds.iter().all(|of_seed| of_seed.each.len() == one.queries.len()) {
                true => (0..one.queries.len())
                    .map(|n| of_seeds.iter().map(|of_seed| of_seed.each[n]).sum::<f64>() / means.len() as f64)
                    .collect(),
                false => means,
            };
        }
        Some(one)
    }

    /// Returns the path of the file for a result of several random seeds.
    pub fn path(&self, folder: &Path) -> PathBuf {
        let seeds = format!("{:?}", self.seeds);
        path(folder, &self.task, &self.data, &self.ranker, &[&self.options, &self.identity, &seeds])
    }

    /// Returns the value of a measure. Returns `None` if the result does not contain the measure.
    pub fn value(&self, measure: &str) -> Option<&Value> {
        self.values.iter().find(|value| value.measure == measure)
    }
}

/// Returns a description of this machine: processor, number of threads and operating system.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let name = name.map_or(std::env::consts::ARCH, |(_, name)| name.trim());
    format!("{name}, {cores} threads, {}", std::env::consts::OS)
}

/// Reads a result file. Returns an error if its schema is not `schema`.
pub(crate) fn read_file<T: DeserializeOwned>(path: &Path, schema: &str) -> Result<T> {
    let bytes = std::fs::read(path).at("read", path)?;
    let wrong = |why: String| {
        Error::data(format!("{} is not a result of `turnwise bench`: {why}", path.display()))
            .with_hint("`turnwise bench` writes such files into its results folder")
    };
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(|e| wrong(e.to_string()))?;
    match value.get("schema").and_then(|schema| schema.as_str()) {
        Some(found) if found == schema => serde_json::from_value(value).map_err(|e| wrong(e.to_string())),
        Some(found) => Err(wrong(format!("its schema is {found}, not {schema}"))),
        None => Err(wrong("it has no schema".to_owned())),
    }
}

/// Writes a result file atomically and creates its folder if necessary.
pub(crate) fn write_file<T: Serialize>(path: &Path, result: &T) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).at("create", folder)?;
    }
    files::replace_json(path, result)
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
            categories: Vec::new(),
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
