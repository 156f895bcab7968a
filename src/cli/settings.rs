//! Reads the settings of the program from files, environment variables and flags.
//!
//! Precedence, from low to high: defaults, the user's file, `./turnwise.toml`, `TURNWISE_*` variables, flags.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::ValueEnum as _;
use serde::Serialize;

use crate::cli::{
    args::{Format, GlobalArgs},
    env_vars,
};
use turnwise_core::error::{Error, IoContext, Result};

/// Definition of a setting: its name, default value and description.
pub(crate) struct Definition {
    pub(crate) key: &'static str,
    pub(crate) default: &'static str,
    pub(crate) about: &'static str,
}

impl Definition {
    const fn new(key: &'static str, default: &'static str, about: &'static str) -> Self {
        Definition { key, default, about }
    }
}

/// All settings.
pub(crate) const DEFINITIONS: [Definition; 15] = [
    Definition::new("index", "", "index to use if -i is not given"),
    Definition::new("indexes_dir", "indexes", "folder that contains the indexes"),
    Definition::new(
        "engine",
        "",
        "Milvus collection to use if -i is not given, such as milvus://localhost:19530/chats",
    ),
    Definition::new(
        "models_dir",
        "",
        "folder of imported models; if empty, turnwise/models in the user's data folder",
    ),
    Definition::new("format", "text", "output format of results: text, json or jsonl"),
    Definition::new("progress", "true", "show the progress of long commands"),
    Definition::new("threads", "0", "number of threads; 0 means one per core"),
    Definition::new("seed", "0", "seed of the random number generator"),
    Definition::new("ingest.max_errors", "100", "maximum number of rejected records before an ingest stops"),
    Definition::new(
        "ingest.max_record_mb",
        "64",
        "maximum size of a record in megabytes (1,000,000 bytes); larger records are rejected",
    ),
    Definition::new(
        "ingest.index",
        "true",
        "update the lexical index and the vectors after an ingest; false is the same as --no-index",
    ),
    Definition::new(
        "ingest.encode",
        "true",
        "encode new records after an ingest, with the model of the index, or the default model if it is installed",
    ),
    Definition::new("ingest.batch", "1000", "number of dialogues flushed to disk together"),
    Definition::new("encode.batch", "4096", "maximum number of texts to encode together"),
    Definition::new("store.segment_mb", "64", "maximum size of a data file (log segment) in megabytes"),
];

/// Name of the settings file in the working folder.
pub(crate) const LOCAL_FILE: &str = "turnwise.toml";

/// Source of a setting's value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Origin {
    Default,
    File(PathBuf),
    Environment(String),
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path) => path.display().fmt(f),
            Origin::Environment(name) => f.write_str(name),
            Origin::Flag(flag) => f.write_str(flag),
        }
    }
}

/// Settings in effect. The value of a setting comes from its flag, else its environment variable, else a settings file,
/// else its default.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) index: Option<String>,
    pub(crate) indexes_dir: PathBuf,
    /// Milvus address to use instead of a local index.
    pub(crate) engine: Option<String>,
    /// Folder of imported models. If empty, the default folder in the user's data folder is used.
    pub(crate) models_dir: PathBuf,
    pub(crate) format: Format,
    pub(crate) progress: bool,
    /// Number of threads; never 0.
    pub(crate) threads: usize,
    pub(crate) seed: u64,
    pub(crate) max_errors: u64,
    /// Maximum size of a record in bytes.
    pub(crate) max_record: usize,
    pub(crate) ingest_index: bool,
    pub(crate) ingest_encode: bool,
    /// Number of dialogues that an ingest flushes to disk together.
    pub(crate) batch: usize,
    pub(crate) encode_batch: usize,
    pub(crate) segment_bytes: u64,
    /// For each key, the value as text and the source of the value.
    pub(crate) origins: BTreeMap<&'static str, (String, Origin)>,
    /// Paths of the settings files, and whether each file exists.
    pub(crate) files: Vec<(PathBuf, bool)>,
}

impl Settings {
    /// Returns whether a setting was given by a flag, an environment variable or a file.
    pub(crate) fn is_given(&self, key: &str) -> bool {
        self.origins.get(key).is_some_and(|(_, origin)| *origin != Origin::Default)
    }

    pub(crate) fn resolve(args: &GlobalArgs) -> Result<Self> {
        Settings::resolve_from(args, &env_vars::get)
    }

    fn resolve_from(args: &GlobalArgs, environment: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let mut layers: BTreeMap<&'static str, (String, Origin)> =
            DEFINITIONS.iter().map(|d| (d.key, (d.default.to_owned(), Origin::Default))).collect();
        let mut files = Vec::new();
        let user_file = user_folder(environment).map(|folder| folder.join("turnwise").join("config.toml"));
        let local_file = args.config.clone().unwrap_or_else(|| LOCAL_FILE.into());
        for path in user_file.into_iter().chain([local_file]) {
            let required = args.config.as_deref() == Some(&path);
            let found = read_file(&path, required)?;
            files.push((path.clone(), found.is_some()));
            for (key, value) in found.unwrap_or_default() {
                layers.insert(key, (value, Origin::File(path.clone())));
            }
        }
        for definition in &DEFINITIONS {
            let name = env_vars::of_setting(definition.key);
            if let Some(value) = environment(&name) {
                layers.insert(definition.key, (value, Origin::Environment(name)));
            }
        }
        let mut flag = |key: &'static str, flag: &'static str, value: Option<String>| {
            if let Some(value) = value {
                layers.insert(key, (value, Origin::Flag(flag)));
            }
        };
        flag("index", "--index", args.index.clone());
        flag("engine", "--engine", args.engine.clone());
        let format = args.format.and_then(|format| format.to_possible_value());
        flag("format", "--format", format.map(|value| value.get_name().to_owned()));
        flag("progress", "--no-progress", args.no_progress.then(|| "false".to_owned()));
        flag("threads", "--threads", args.threads.map(|n| n.to_string()));
        flag("seed", "--seed", args.seed.map(|n| n.to_string()));

        let get = |key: &str| layers.get(key).map(|(value, _)| value.clone()).unwrap_or_default();
        let threads: usize = typed(&layers, "threads", "a number")?;
        Ok(Settings {
            index: Some(get("index")).filter(|name| !name.is_empty()),
            engine: Some(get("engine")).filter(|address| !address.is_empty() && args.index.is_none()),
            indexes_dir: get("indexes_dir").into(),
            models_dir: get("models_dir").into(),
            format: typed(&layers, "format", "text, json or jsonl")?,
            progress: typed(&layers, "progress", "true or false")?,
            threads: match threads {
                0 => std::thread::available_parallelism().map_or(1, usize::from),
                n => n.min(1024),
            },
            seed: typed(&layers, "seed", "a number")?,
            max_errors: typed(&layers, "ingest.max_errors", "a number")?,
            max_record: typed::<usize>(&layers, "ingest.max_record_mb", "a number")?.clamp(1, 4000)
                * 1_000_000,
            ingest_index: typed(&layers, "ingest.index", "true or false")?,
            ingest_encode: typed(&layers, "ingest.encode", "true or false")?,
            batch: typed::<usize>(&layers, "ingest.batch", "a number")?.clamp(1, 100_000),
            encode_batch: typed::<usize>(&layers, "encode.batch", "a number")?.clamp(1, 1_000_000),
            segment_bytes: typed::<u64>(&layers, "store.segment_mb", "a number")?.clamp(1, 1000) * 1_000_000,
            origins: layers,
            files,
        })
    }
}

/// Parses the value of a setting. `expected` describes a valid value in the error.
fn typed<T: FromStr>(
    layers: &BTreeMap<&'static str, (String, Origin)>,
    key: &'static str,
    expected: &str,
) -> Result<T> {
    let (value, origin) = layers.get(key).ok_or_else(|| Error::Internal(format!("no setting {key}")))?;
    value.parse().map_err(|_| {
        Error::input(format!("the setting `{key}` must be {expected}, not `{value}`"))
            .with_hint(format!("the value comes from {origin}"))
    })
}

fn user_folder(environment: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let home = || environment(env_vars::HOME).map(|home| Path::new(&home).join(".config"));
    environment(env_vars::XDG_CONFIG_HOME).map(PathBuf::from).or_else(home)
}

/// Reads the keys and values of a settings file. Returns `None` if the file does not exist and is not required.
fn read_file(path: &Path, required: bool) -> Result<Option<Vec<(&'static str, String)>>> {
    let text = match fs::read_to_string(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && !required => return Ok(None),
        other => other.at("read", path)?,
    };
    let wrong = |message: String, hint: Option<String>| Error::Input {
        message: format!("{}: {message}", path.display()),
        hint: hint
            .or_else(|| Some("`turnwise config init` writes a file that documents every setting".to_owned())),
    };
    let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
        let line = e.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        wrong(format!("line {line}: {}", e.message()), None)
    })?;
    let mut found = Vec::new();
    flatten("", &table, &mut |key, value| {
        let definition = DEFINITIONS.iter().find(|d| d.key == key).ok_or_else(|| {
            let e = Error::unknown_name("setting", &key, DEFINITIONS.iter().map(|d| d.key));
            wrong(e.to_string(), e.hint())
        })?;
        let value = match value {
            toml::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        found.push((definition.key, value));
        Ok(())
    })?;
    Ok(Some(found))
}

/// Calls `f` with each key of a TOML table, such as `ingest.batch`, and with the value of the key.
fn flatten(
    prefix: &str,
    table: &toml::Table,
    f: &mut dyn FnMut(String, &toml::Value) -> Result<()>,
) -> Result<()> {
    for (name, value) in table {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            toml::Value::Table(inner) => flatten(&key, inner, f)?,
            other => f(key, other)?,
        }
    }
    Ok(())
}

/// Returns the text of a settings file that documents every setting but sets none.
pub(crate) fn template() -> String {
    let mut text = String::from(
        "# Settings of turnwise. Each line shows a default; remove its `#` to change it.\n\
         # TURNWISE_* variables and flags override this file. `turnwise config show --origin` prints\n\
         # the values in effect and where they come from.\n",
    );
    let mut section = "";
    for definition in &DEFINITIONS {
        let (table, name) = definition.key.rsplit_once('.').unwrap_or(("", definition.key));
        if table != section {
            section = table;
            text.push_str(&format!("\n[{table}]"));
        }
        let plain = definition.default.parse::<f64>().is_ok() || definition.default.parse::<bool>().is_ok();
        let value = if plain { definition.default.to_owned() } else { format!("{:?}", definition.default) };
        text.push_str(&format!("\n# {}\n# {name} = {value}\n", definition.about));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> GlobalArgs {
        GlobalArgs::default()
    }

    #[test]
    fn later_layers_are_stronger() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.toml");
        fs::write(&file, "threads = 3\nseed = 5\n[ingest]\nmax_errors = 7\n").unwrap();
        let env = |name: &str| match name {
            "TURNWISE_SEED" => Some("6".to_owned()),
            _ => None,
        };
        let mut global = args();
        global.config = Some(file.clone());
        let s = Settings::resolve_from(&global, &env).unwrap();
        assert_eq!((s.threads, s.seed, s.max_errors), (3, 6, 7));
        assert!(s.is_given("seed") && s.is_given("threads") && !s.is_given("format"));
        assert_eq!(s.origins["seed"].1, Origin::Environment("TURNWISE_SEED".into()));
        assert_eq!(s.origins["threads"].1, Origin::File(file));
        global.seed = Some(9);
        assert_eq!(Settings::resolve_from(&global, &env).unwrap().seed, 9);
    }

    #[test]
    fn errors_name_the_setting_and_its_location() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.toml");
        let mut global = args();
        global.config = Some(file.clone());
        let error = |text: &str| {
            fs::write(&file, text).unwrap();
            Settings::resolve_from(&global, &|_| None).err().unwrap()
        };
        assert_eq!(error("thread = 3").hint().as_deref(), Some("did you mean `threads`?"));
        assert!(error("\nthreads = ").to_string().contains("line 2"));
        assert!(error("threads = \"many\"").to_string().contains("must be a number"));
        global.config = Some(dir.path().join("none.toml"));
        assert!(Settings::resolve_from(&global, &|_| None).is_err());
    }

    #[test]
    fn the_template_is_a_valid_file_that_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("c.toml");
        fs::write(&file, template()).unwrap();
        assert_eq!(read_file(&file, true).unwrap().unwrap(), []);
        // With the `#` of every setting removed, the file sets every default.
        let set: String = template()
            .lines()
            .map(|l| l.strip_prefix("# ").filter(|l| l.contains(" = ")).unwrap_or(l))
            .fold(String::new(), |t, l| t + l + "\n");
        fs::write(&file, set).unwrap();
        let values = read_file(&file, true).unwrap().unwrap();
        let expected: Vec<_> = DEFINITIONS.iter().map(|d| (d.key, d.default.to_owned())).collect();
        assert_eq!(BTreeMap::from_iter(values), BTreeMap::from_iter(expected));
    }
}
