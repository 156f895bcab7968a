//! Opens encoders by the name or folder of a model, such as the value of `--model`. Also configures the access to the
//! Hugging Face hub. Both depend on settings and environment variables.

use std::collections::BTreeMap;

use crate::cli::{env_vars, prelude::*};
use turnwise_encoder::{
    DeviceChoice, DialogueMode, DialogueOptions, DialoguePooling, Encoder, Precision, TextOptions, Vectors,
    ahead::Options,
    folder::name_of,
    hub::{
        Places, Resolved,
        known::DEFAULT,
        pull::{HUB, Hub},
        resolve,
    },
    open,
    selector::{Selector, is_selector},
    statics,
    transformer::Settings,
};
use turnwise_shards::vector_files::{self, VectorFileFormat};
use turnwise_train::run::model_in;

/// Function that returns the value of an environment variable.
type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Context<'_> {
    /// Returns the folders of downloaded models (`cache`) and of imported models (`imports`).
    pub(crate) fn places(&self) -> Places {
        let set = &self.settings.models_dir;
        let imports = if set.as_os_str().is_empty() { imports(&env_vars::get) } else { set.clone() };
        Places { cache: cache(&env_vars::get), imports }
    }

    /// Finds a model by name or path. Never uses the network.
    pub(crate) fn model(&self, spec: &str) -> Result<Resolved> {
        resolve(spec, &self.places())
    }
}

/// Returns the configuration for accessing the Hugging Face hub, read from the environment variables of its libraries.
pub(crate) fn hub() -> Hub {
    hub_from(&env_vars::get)
}

fn hub_from(environment: Environment<'_>) -> Hub {
    // The Hugging Face libraries accept the same values.
    let is_on = |value: String| ["1", "on", "yes", "true"].contains(&value.to_lowercase().as_str());
    let offline = environment(env_vars::HF_HUB_OFFLINE).filter(|value| is_on(value.clone()));
    Hub {
        endpoint: environment(env_vars::HF_ENDPOINT).unwrap_or_else(|| HUB.to_owned()),
        token: environment(env_vars::HF_TOKEN).map(|token| token.trim().to_owned()),
        authorities: [env_vars::SSL_CERT_FILE, env_vars::REQUESTS_CA_BUNDLE]
            .into_iter()
            .find_map(environment)
            .map(PathBuf::from),
        offline: offline.map(|value| format!("{}={value}", env_vars::HF_HUB_OFFLINE)),
    }
}

fn cache(environment: Environment<'_>) -> PathBuf {
    let path = |name: &str| environment(name).map(PathBuf::from);
    path(env_vars::HF_HUB_CACHE)
        .or_else(|| path(env_vars::HF_HOME).map(|home| home.join("hub")))
        .or_else(|| path(env_vars::XDG_CACHE_HOME).map(|caches| caches.join("huggingface").join("hub")))
        .unwrap_or_else(|| home(environment).join(".cache").join("huggingface").join("hub"))
}

fn imports(environment: Environment<'_>) -> PathBuf {
    let data = environment(env_vars::XDG_DATA_HOME).map(PathBuf::from);
    let data = data.unwrap_or_else(|| home(environment).join(".local").join("share"));
    data.join("turnwise").join("models")
}

fn home(environment: Environment<'_>) -> PathBuf {
    environment(env_vars::HOME).map_or_else(|| Path::new(".").to_owned(), PathBuf::from)
}

/// Name of the model that is used if the user names none.
pub(crate) const DEFAULT_MODEL: &str = DEFAULT;

/// Function that opens an encoder by the name of its model, with the given settings.
pub(crate) type Open<'a> = &'a dyn Fn(&str, &Settings) -> Result<Box<dyn Encoder>>;

/// Opens an encoder by the name or folder of its model. Never uses the network.
pub(crate) fn open(context: &Context<'_>, model: &str, settings: &Settings) -> Result<Box<dyn Encoder>> {
    let found = context.model(model)?;
    let encoder = open::open(&found.name, &found.path, settings)?;
    encoder.notices().iter().for_each(|notice| context.printer.warn(format!("{}: {notice}", found.name)));
    context.printer.detail(format!("{} from {}: {}", found.name, found.path.display(), encoder.describe()));
    Ok(encoder)
}

/// Opens a selector: the folder of a training run, the folder of a selector or cross-encoder, or the name of a
/// downloaded cross-encoder. Never uses the network.
pub(crate) fn selector(
    context: &Context<'_>,
    name: &str,
    device: DeviceChoice,
    precision: Option<Precision>,
) -> Result<Selector> {
    let (name, path) = find_selector(context, name)?;
    let selector = Selector::open(&name, &path, device, precision)?;
    context.printer.detail(format!("{name} from {}: {}", path.display(), selector.describe()));
    Ok(selector)
}

/// Returns the display name and the folder of a selector, without opening it.
pub(crate) fn find_selector(context: &Context<'_>, name: &str) -> Result<(String, PathBuf)> {
    let (given, of_run) = (Path::new(name), model_in(Path::new(name)));
    let is_run = given.join("recipe.toml").is_file();
    let (name, path) = match is_run && of_run.is_dir() {
        true => (name_of(&of_run), of_run),
        false if is_run => {
            return Err(Error::input(format!("the training run {name} is not finished"))
                .with_hint("continue it: repeat its command with --resume"));
        }
        false => {
            let found = context.model(name).map_err(|e| {
                let run =
                    "a selector is the folder of a run of `turnwise train selector`, such as runs/replies";
                // The folder of a run also has the form of a name on the hub.
                let is_folder =
                    given.parent().is_some_and(|parent| parent != Path::new("") && parent.is_dir());
                let hint = e.hint().filter(|_| !is_folder);
                e.with_hint(hint.map_or_else(|| run.to_owned(), |hint| format!("{hint}; {run}")))
            })?;
            (found.name, found.path)
        }
    };
    if !is_selector(&path) {
        let is_model = path.join("config.json").is_file();
        let what = if is_model { "not a selector, but an encoder" } else { "not the folder of a selector" };
        let hint = match run_in(&path) {
            Some(run) => format!("use the folder of a run, such as {}", run.display()),
            None => "train a selector with `turnwise train selector`, or use a cross-encoder of sentence-transformers"
                .to_owned(),
        };
        return Err(Error::input(format!("{} is {what}", path.display())).with_hint(hint));
    }
    Ok((name, path))
}

/// Returns the first subfolder that is the folder of a finished training run.
fn run_in(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?;
    let runs = entries.filter_map(|entry| Some(entry.ok()?.path()));
    runs.filter(|path| path.join("recipe.toml").is_file() && model_in(path).is_dir()).min()
}

/// Returns whether a model is static, that is, has no neural network. The precision of a static model cannot be chosen.
pub(crate) fn is_static(context: &Context<'_>, model: &str) -> Result<bool> {
    Ok(statics::is_static(&context.model(model)?.path))
}

/// Writes vectors to a NumPy file, and their ids to a file next to the NumPy file. The id of a vector is its row
/// number, counted from 1.
pub(crate) fn write_npy(path: &Path, vectors: &Vectors) -> Result<()> {
    let mut sink = vector_files::create(path, VectorFileFormat::Npy, vectors.dim(), &BTreeMap::new())?;
    let ids: Vec<String> = (1..=vectors.len()).map(|n| n.to_string()).collect();
    sink.write(&ids, vectors)?;
    sink.finish()
}

/// Encoding options given by the user. Missing options come from the existing vectors or the defaults.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given {
    pub(crate) prompt: Option<String>,
    pub(crate) mode: Option<DialogueMode>,
    pub(crate) pooling: Option<DialoguePooling>,
}

impl Given {
    pub(crate) fn into_options(self) -> Options {
        Options {
            texts: TextOptions { prompt: self.prompt.clone() },
            dialogues: DialogueOptions {
                mode: self.mode.unwrap_or_default(),
                pooling: self.pooling.unwrap_or_default(),
                prompt: self.prompt,
            },
        }
    }
}

/// Returns a name of the model that stays valid if the working folder changes. This is the absolute path if `model` is
/// a folder, else `model` itself.
pub(crate) fn absolute_name(model: &str) -> String {
    match std::fs::canonicalize(model) {
        Ok(path) if Path::new(model).is_dir() => path.display().to_string(),
        _ => model.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(set: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        move |name| set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn the_cache_is_that_of_the_hugging_face_libraries() {
        let is = |set, path: &str| assert_eq!(cache(&with(set)), Path::new(path));
        is(&[("HOME", "/h")], "/h/.cache/huggingface/hub");
        is(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/c")], "/c/huggingface/hub");
        is(&[("XDG_CACHE_HOME", "/c"), ("HF_HOME", "/f")], "/f/hub");
        is(&[("HF_HOME", "/f"), ("HF_HUB_CACHE", "/x")], "/x");
        assert_eq!(imports(&with(&[("HOME", "/h")])), Path::new("/h/.local/share/turnwise/models"));
        assert_eq!(imports(&with(&[("XDG_DATA_HOME", "/d")])), Path::new("/d/turnwise/models"));
    }

    #[test]
    fn the_hub_is_configured_by_environment_variables() {
        let hub = hub_from(&with(&[]));
        assert_eq!((hub.endpoint.as_str(), hub.token, hub.offline), (HUB, None, None));
        let hub =
            hub_from(&with(&[("HF_HUB_OFFLINE", "0"), ("HF_ENDPOINT", "http://m"), ("HF_TOKEN", "t\n")]));
        assert_eq!((hub.endpoint.as_str(), hub.token.as_deref(), hub.offline), ("http://m", Some("t"), None));
        let hub = hub_from(&with(&[("HF_HUB_OFFLINE", "True"), ("REQUESTS_CA_BUNDLE", "/ca")]));
        assert_eq!(hub.offline.as_deref(), Some("HF_HUB_OFFLINE=True"));
        assert_eq!(hub.authorities, Some("/ca".into()));
    }
}
