//! Model folders in the layout of Hugging Face and sentence-transformers.
//!
//! [`ModelFolder::open`] reads the small files and the headers of the weights. It fails if the model has an unsupported
//! setting that would change the vectors. [`ModelFolder::network`] and [`ModelFolder::tokenizer`] read the large files.

mod config;
mod heads;
mod modules;
mod names;
mod network;
mod pipeline;
pub(crate) mod save;
mod static_embedding;
mod tokenizer;
mod tokenizer_files;
mod vocabulary;
pub(crate) mod weights;

use std::path::{Path, PathBuf};

pub(crate) use config::parse as parse_json;
use rayon::prelude::*;
pub(crate) use save::bytes_of;
use turnwise_core::error::{Error, Result};
use weights::Tensor;

use crate::{Fingerprint, Network, fingerprint::Fingerprinter};

pub use config::{Architecture, Config};
pub use heads::MlmHead;
pub use pipeline::{Dense, DenseActivation, Pipeline, Pooling, PoolingMode, Prompts, Step};
pub use save::{SavedModel, save};
pub use tokenizer::{Added, Additions, Specials, TokenizedText, Tokenizer, save_extended};

/// File that marks the folder of a selector, and that contains its settings.
pub(crate) const SELECTOR: &str = "selector.json";

/// Purpose of a model: it computes vectors of texts, or scores of pairs of texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Vectors,
    Scores,
}

/// A model folder, opened and checked.
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
    /// Opens a folder without reading the weights of the network. Fails if a file is missing or damaged, or if a
    /// setting is not supported.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_as(path, Purpose::Vectors)
    }

    /// Opens the folder of a selector or a cross-encoder without reading the weights of the network. Such a folder has
    /// no pooling.
    pub fn open_scorer(path: &Path) -> Result<Self> {
        Self::open_as(path, Purpose::Scores)
    }

    fn open_as(path: &Path, purpose: Purpose) -> Result<Self> {
        if !path.is_dir() {
            let what = if path.exists() { "is a file, not the folder of a model" } else { "does not exist" };
            return Err(Error::input(format!("{} {what}", path.display())).with_hint(
                "use the folder that contains config.json, or the name of a model (see `turnwise model list`)",
            ));
        }
        // The folder of a training run contains the model in a subfolder.
        let of_run = path.join("model");
        if !path.join("config.json").exists() && of_run.join("config.json").is_file() {
            let (run, of_run) = (path.display(), of_run.display());
            let error = Error::input(format!("{run} is the folder of a training run, not of a model"));
            return Err(error.with_hint(format!("use the model in it: {of_run}")));
        }
        if purpose == Purpose::Vectors && path.join(SELECTOR).is_file() {
            return Err(Error::input(format!("{} is a selector, which scores texts, not an encoder", path.display()))
                .with_hint("use it with `turnwise respond --selector`, `search --rerank selector:` or `bench response -r selector:`, or train it further with `turnwise train selector`"));
        }
        let modules = match purpose {
            Purpose::Vectors => modules::Modules::read(path)?,
            Purpose::Scores => modules::Modules::of_scorer(path)?,
        };
        let inner = &modules.transformer;
        if inner.join("adapter_config.json").exists() {
            let message = format!("{} contains an adapter, not a complete network", inner.display());
            let hint = "merge it into its base model (PEFT: `merge_and_unload`), then save that";
            return Err(Error::data(message).with_hint(hint));
        }
        let file = config::Object::read(&inner.join("config.json"))?;
        let is_model2vec = file.as_ref().map(static_embedding::is_config_of_model2vec).transpose()?;
        if modules.is_static || (is_model2vec == Some(true) && !modules.listed) {
            return ModelFolder::open_static(path, &modules, file);
        }
        let file = file.ok_or_else(|| {
            Error::input(format!("{} contains no model: config.json is missing", inner.display()))
                .with_hint("use the folder that contains config.json, model.safetensors and tokenizer.json")
        })?;
        let config = Config::new(&file)?;
        // Without modules.json, sentence-transformers treats the folder as a plain transformers model and
        // ignores its own settings there.
        let sentence = match modules.listed {
            true => config::SentenceSettings::read(inner)?,
            false => config::SentenceSettings::default(),
        };
        let tokenizer = tokenizer_files::TokenizerFiles::open(inner, config.architecture, sentence)?;
        let mut notices = modules.notices.clone();
        // The limit is chosen as in sentence-transformers, with one exception. If the limit exceeds the number of
        // positions, sentence-transformers fails during encoding, but turnwise reduces the limit.
        let wanted = match sentence.max_tokens {
            Some(wanted) => wanted,
            None => tokenizer.max_tokens()?.unwrap_or(usize::MAX).min(config.positions),
        };
        if wanted > config.max_tokens() {
            let most = config.max_tokens();
            notices.push(format!(
                "the settings allow {wanted} tokens, but the model has only {most} positions; using {most}"
            ));
        }
        let max_tokens = wanted.min(config.max_tokens());
        let pipeline = match purpose {
            Purpose::Vectors => modules.pipeline(path, config.shape.hidden, max_tokens)?,
            Purpose::Scores => Pipeline::plain(max_tokens),
        };
        let weights = weights::Weights::open(inner)?;
        let layout = network::Layout::find(&config, &weights)?;
        notices.extend(layout.notices.iter().cloned());
        Ok(ModelFolder { path: path.to_owned(), config, weights, layout, pipeline, tokenizer, notices })
    }

    /// Opens a static embedding model. `file` is its `config.json`, which only models of model2vec have.
    fn open_static(path: &Path, modules: &modules::Modules, file: Option<config::Object>) -> Result<Self> {
        let inner = &modules.transformer;
        let weights = weights::Weights::open(inner)?;
        let config = static_embedding::config(&weights)?;
        let mut tokenizer = tokenizer_files::TokenizerFiles::open(
            inner,
            config.architecture,
            config::SentenceSettings::default(),
        )?;
        tokenizer.skips_unknown = static_embedding::is_model2vec(&weights);
        let mut pipeline = modules.pipeline(path, config.shape.hidden, config.max_tokens())?;
        if let Some(file) = file.filter(|_| !modules.listed)
            && static_embedding::normalizes(&file)?
        {
            pipeline.steps.push(Step::Normalize);
        }
        let layout = network::Layout::default();
        Ok(ModelFolder {
            path: path.to_owned(),
            config,
            weights,
            layout,
            pipeline,
            tokenizer,
            notices: Vec::new(),
        })
    }

    /// Reads the weights into a network. Fails if a value is not finite.
    pub fn network(&self) -> Result<Network> {
        if self.config.architecture == Architecture::Static {
            return static_embedding::network(&self.config, &self.weights);
        }
        self.layout.read(&self.config, &self.weights)
    }

    /// Reads a second network of the same shape, whose tensors have names with this prefix.
    pub(crate) fn network_at(&self, prefix: &str) -> Result<Network> {
        network::Layout::at(&self.config, &self.weights, prefix)?.read(&self.config, &self.weights)
    }

    /// Adds the tensors of a second network to a fingerprint.
    pub(crate) fn hash_network_at(&self, prefix: &str, all: &mut Fingerprinter) -> Result<()> {
        let layout = network::Layout::at(&self.config, &self.weights, prefix)?;
        self.hash_network(&layout, all)
    }

    fn hash_network(&self, layout: &network::Layout, all: &mut Fingerprinter) -> Result<()> {
        for (parameter, tensor) in layout.tensors(&self.weights)? {
            all.text(&parameter.name, format_args!("{:?}", parameter.dims)).part("numbers", &hash(&tensor)?);
        }
        Ok(())
    }

    /// Reads the tokenizer. Fails if a file is damaged, or if the tokenizer does not match the network.
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        self.tokenizer.load(&self.config, self.pipeline.max_tokens)
    }

    /// Returns the pooling, final steps, prompts and limits of the model.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Returns the weights.
    pub(crate) fn weights(&self) -> &weights::Weights {
        &self.weights
    }

    /// Returns the prefix of the names of the network's tensors, such as `bert.`.
    pub(crate) fn prefix(&self) -> &str {
        &self.layout.prefix
    }

    /// Replaces the pipeline. The network stays the same.
    pub fn with_pipeline(self, pipeline: Pipeline) -> Self {
        ModelFolder { pipeline, ..self }
    }

    /// Returns the contents of `config.json`.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the width of the vectors.
    pub fn dim(&self) -> usize {
        self.pipeline.dim(self.config.shape.hidden)
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns notices for the user about missing or contradictory settings and ignored weights.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }
}

/// Returns the display name of a model folder: the folder's name. If the model comes from a training run, the display
/// name also contains the folder of the run: `run/model`. If the run belongs to a group of runs, it also contains the
/// folder of the group: `runs/run/model`.
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

/// Number of elements per chunk when a tensor is hashed. The chunks of a large tensor are hashed in parallel.
const CHUNK: usize = 1 << 20;

impl ModelFolder {
    /// Returns the fingerprint that identifies the model in an index. The fingerprint does not depend on the path, on
    /// the tensor names, or on how the tensors are split into files. It also does not depend on the data type, as long
    /// as the values are the same. Every other change that affects the vectors also changes the fingerprint.
    pub fn fingerprint(&self) -> Result<Fingerprint> {
        let mut all = Fingerprinter::new("transformer");
        let shape = &self.config.shape;
        all.text("architecture", self.config.architecture.name())
            .text("heads", shape.heads)
            .text("activation", format_args!("{:?}", shape.activation))
            .text("epsilon", shape.norm_epsilon.to_bits())
            .text("first position", shape.first_position);
        if let Some(rotary) = shape.rotary {
            let windows = &self.config.variant.windows;
            all.text("rotary", format_args!("{rotary:?}"))
                .text("windows", format_args!("{windows:?}"))
                .text("key heads", format_args!("{} {}", shape.key_heads, shape.causal));
        }
        if self.config.architecture == Architecture::Static {
            all.part("words", &bytes_of(&self.network()?.embeddings.words.data))
                .text("unknown tokens are skipped", self.tokenizer.skips_unknown);
        }
        self.hash_network(&self.layout, &mut all)?;
        settings(&mut all, &self.pipeline);
        let tokenizer = self.tokenizer()?;
        all.part("tokenizer", tokenizer.to_json()?.as_bytes())
            .text("frame", format_args!("{:?} {:?}", tokenizer.before(), tokenizer.after()))
            .text("cut in front", tokenizer.parts.cut_front);
        Ok(all.finish())
    }
}

fn hash(tensor: &Tensor) -> Result<Vec<u8>> {
    let chunks = tensor.len().div_ceil(CHUNK);
    let hashes = (0..chunks).into_par_iter().map(|n| {
        let range = n * CHUNK..((n + 1) * CHUNK).min(tensor.len());
        Ok(blake3::hash(&tensor.part(range)?).as_bytes().to_vec())
    });
    Ok(hashes.collect::<Result<Vec<_>>>()?.concat())
}

fn settings(all: &mut Fingerprinter, pipeline: &Pipeline) {
    let modes: Vec<&str> = pipeline.pooling.modes.iter().map(|m: &PoolingMode| m.name()).collect();
    all.text("pooling", modes.join(" ")).text("prompt is pooled", pipeline.pooling.include_prompt);
    for step in &pipeline.steps {
        match step {
            Step::Normalize => all.text("normalize", ""),
            Step::Dense(dense) => all
                .text(
                    "dense",
                    format_args!("{} {} {}", dense.inputs, dense.outputs, dense.activation.class()),
                )
                .part("weight", &bytes_of(&dense.weight))
                .part("bias", &bytes_of(dense.bias.as_deref().unwrap_or(&[]))),
        };
    }
    for (name, text) in pipeline.prompts.texts.iter().filter(|(_, text)| !text.is_empty()) {
        all.text("prompt", name).text("is", text);
    }
    all.text("default prompt", pipeline.prompts.text(None).unwrap_or_default());
    all.text("max tokens", pipeline.max_tokens);
    all.text("truncate", pipeline.truncate_dim.unwrap_or(0));
}

#[cfg(test)]
pub(super) mod tests;
