//! A model on disk, in the layout of Hugging Face and sentence-transformers.
//!
//! [`ModelFolder::open`] reads the small files and the headers of the weights and refuses whatever would give other
//! vectors than the model's own; [`ModelFolder::network`] and [`ModelFolder::tokenizer`] read the large ones.

mod config;
mod fingerprint;
mod json;
mod modules;
mod network;
mod parameters;
mod pipeline;
mod save;
mod save_config;
mod sentence;
mod separator;
mod tokenizer;
mod tokenizer_files;
mod vocabulary;
mod weights;

use std::path::{Path, PathBuf};

pub use config::{Architecture, Config};
pub use pipeline::{Dense, DenseActivation, Pipeline, Pooling, PoolingMode, Prompts, Step};
pub use save::{SavedModel, save};
pub use separator::save_divided;
pub use tokenizer::{Specials, TokenizedText, Tokenizer};

use crate::Network;
use turnwise_core::error::{Error, Result};

/// A model in a folder, opened and checked.
#[derive(Debug)]
pub struct ModelFolder {
    path: PathBuf,
    config: Config,
    weights: weights::Weights,
    layout: network::Layout,
    pipeline: Pipeline,
    tokenizer: tokenizer_files::TokenizerFiles,
    notices: Vec<String>,
}

impl ModelFolder {
    /// Opens a folder; quick, whatever the size of the model.
    pub fn open(path: &Path) -> Result<Self> {
        if !path.is_dir() {
            let what = if path.exists() { "is a file, not the folder of a model" } else { "does not exist" };
            return Err(Error::input(format!("{} {what}", path.display())).with_hint(
                "give the folder that holds config.json, or the name of a model (`turnwise model list`)",
            ));
        }
        let modules = modules::Modules::read(path)?;
        let inner = &modules.transformer;
        config::refuse_adapter(inner)?;
        let config = json::Object::read(&inner.join("config.json"))?;
        let config = config.ok_or_else(|| {
            Error::input(format!("{} holds no model: there is no config.json", inner.display()))
                .with_hint("give the folder that holds config.json, model.safetensors and tokenizer.json")
        })?;
        let config = Config::new(&config)?;
        // Without a list of modules sentence-transformers takes the folder as transformers' own, and does not look for
        // its own settings there.
        let sentence = match modules.listed {
            true => sentence::Settings::read(inner)?,
            false => sentence::Settings::default(),
        };
        let tokenizer = tokenizer_files::TokenizerFiles::open(inner, config.architecture, sentence)?;
        let mut notices = modules.notices.clone();
        // As sentence-transformers decides, except that it fails later on what exceeds the positions.
        let wanted = match sentence.max_tokens {
            Some(wanted) => wanted,
            None => tokenizer.max_tokens()?.unwrap_or(usize::MAX).min(config.positions),
        };
        if wanted > config.max_tokens() {
            let most = config.max_tokens();
            notices.push(format!(
                "its settings allow {wanted} tokens, and it has positions for {most}: {most} it is"
            ));
        }
        let max_tokens = wanted.min(config.max_tokens());
        let pipeline = modules.pipeline(path, config.shape.hidden, max_tokens)?;
        let weights = weights::Weights::open(inner)?;
        let layout = network::Layout::find(&config, &weights)?;
        notices.extend(layout.notices.iter().cloned());
        Ok(ModelFolder { path: path.to_owned(), config, weights, layout, pipeline, tokenizer, notices })
    }

    /// Reads the parameters; every number is finite.
    pub fn network(&self) -> Result<Network> {
        self.layout.read(&self.config, &self.weights)
    }

    /// Reads the tokenizer, and checks that it fits the network.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        self.tokenizer.load(&self.config, self.pipeline.max_tokens)
    }

    /// What stands before and after the network.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// The same network with something else before and after it.
    pub fn with_pipeline(self, pipeline: Pipeline) -> Self {
        ModelFolder { pipeline, ..self }
    }

    /// What `config.json` says.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Which network of the family.
    pub fn architecture(&self) -> Architecture {
        self.config.architecture
    }

    /// How many tokens a text may have, special ones included.
    pub fn max_tokens(&self) -> usize {
        self.pipeline.max_tokens
    }

    /// The width of its vectors.
    pub fn dim(&self) -> usize {
        self.pipeline.dim(self.config.shape.hidden)
    }

    /// The name of the folder.
    pub fn name(&self) -> String {
        name_of(&self.path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What people should know: where files are silent or disagree, and what was done.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }
}

/// What a model in a folder is called: as the folder is. One that training has left, which is called as all such are, has
/// the run's name before it.
pub fn name_of(folder: &Path) -> String {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let is_of = |folder: &&Path, file: &str| folder.join(file).is_file();
    let run = whole.parent().filter(|run| is_of(run, "recipe.toml"));
    let several = run.and_then(Path::parent).filter(|several| is_of(several, "runs.json"));
    let above = several.or(run).and_then(Path::parent);
    let name = match above {
        Some(above) => whole.strip_prefix(above).unwrap_or(&whole),
        None => Path::new(whole.file_name().unwrap_or(whole.as_os_str())),
    };
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
pub(super) mod tests;
