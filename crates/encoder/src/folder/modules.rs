//! Reads `modules.json` and the modules' files into a [`Pipeline`].

use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use turnwise_core::error::{Error, Result};

use crate::folder::{
    config::{self, Object},
    pipeline::{Dense, DenseActivation, Pipeline, Pooling, PoolingMode, Prompts, Step},
    weights::Weights,
};

/// Modules of a model, as listed in `modules.json`. The files of the modules are read later, by [`Modules::pipeline`].
#[derive(Debug)]
pub struct Modules {
    /// True if the folder has a `modules.json`.
    pub listed: bool,
    /// True if the network is a table of static embeddings.
    pub is_static: bool,
    /// Folder of the network with its weights and its tokenizer.
    pub transformer: PathBuf,
    pooling: Option<PathBuf>,
    steps: Vec<(Kind, PathBuf)>,
    /// Notices for the user.
    pub notices: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Transformer,
    StaticEmbedding,
    Pooling,
    Dense,
    Normalize,
}

impl Kind {
    /// Returns the kind of a module class. Old files use names such as `sentence_transformers.models.Pooling`. New
    /// files use names such as `sentence_transformers.sentence_transformer.modules.pooling.Pooling`. Returns `None` for
    /// an unsupported class. A class outside the package `sentence_transformers` is custom code and therefore not
    /// supported.
    fn of(class: &str) -> Option<Kind> {
        match class.strip_prefix("sentence_transformers.")?.rsplit('.').next()? {
            "Transformer" => Some(Kind::Transformer),
            "StaticEmbedding" => Some(Kind::StaticEmbedding),
            "Pooling" => Some(Kind::Pooling),
            "Dense" => Some(Kind::Dense),
            "Normalize" => Some(Kind::Normalize),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
struct Module {
    #[serde(default)]
    path: String,
    r#type: String,
}

impl Modules {
    /// Reads `modules.json`. If the file does not exist, the network is used with mean pooling, as in
    /// sentence-transformers. Fails if a module is not supported.
    pub fn read(folder: &Path) -> Result<Self> {
        let file = folder.join("modules.json");
        let Some(modules) = config::parse::<Vec<Module>>(&file)? else {
            let notice = "modules.json is missing: using mean pooling, as \
                          sentence-transformers does for such a folder";
            return Ok(Modules {
                listed: false,
                is_static: false,
                transformer: folder.to_owned(),
                pooling: None,
                steps: Vec::new(),
                notices: vec![notice.to_owned()],
            });
        };
        let wrong = |what: String| Error::data(format!("{}: {what}", file.display()));
        let order = "supported: a Transformer and a Pooling, or a StaticEmbedding; then any number of Dense and Normalize";
        let mut found = Vec::new();
        for module in &modules {
            let kind = Kind::of(&module.r#type);
            let kind = kind.ok_or_else(|| {
                wrong(format!("the module `{}` is not supported", module.r#type)).with_hint(order)
            })?;
            found.push((
                kind,
                inside(folder, &module.path)
                    .ok_or_else(|| wrong(format!("the path `{}` is outside the folder", module.path)))?,
            ));
        }
        let mut found = found.into_iter();
        let first = found.next();
        let (transformer, pooling) = match first {
            Some((Kind::StaticEmbedding, network)) => (network, None),
            Some((Kind::Transformer, network)) => match found.next() {
                Some((Kind::Pooling, pooling)) => (network, Some(pooling)),
                _ => {
                    return Err(
                        wrong("the order of the modules is not supported".to_owned()).with_hint(order)
                    );
                }
            },
            _ => return Err(wrong("the order of the modules is not supported".to_owned()).with_hint(order)),
        };
        let steps: Vec<_> = found.collect();
        if steps.iter().any(|(kind, _)| !matches!(kind, Kind::Dense | Kind::Normalize)) {
            return Err(wrong("there is more than one network or Pooling".to_owned()).with_hint(order));
        }
        let is_static = pooling.is_none();
        Ok(Modules { listed: true, is_static, transformer, pooling, steps, notices: Vec::new() })
    }

    /// Returns the modules of a cross-encoder: only the network, which is in the folder itself.
    pub fn of_scorer(folder: &Path) -> Result<Self> {
        Ok(Modules {
            listed: false,
            is_static: false,
            transformer: folder.to_owned(),
            pooling: None,
            steps: Vec::new(),
            notices: Vec::new(),
        })
    }

    /// Reads the settings of the pooling module, of the modules after the pooling module, and of the whole model. Fails
    /// if a setting is invalid or not supported.
    pub fn pipeline(&self, folder: &Path, hidden: usize, max_tokens: usize) -> Result<Pipeline> {
        let pooling = match &self.pooling {
            Some(path) => pooling(path, hidden)?,
            None => Pooling { modes: vec![PoolingMode::Mean], include_prompt: true },
        };
        let mut width = hidden * pooling.modes.len();
        let mut steps = Vec::with_capacity(self.steps.len());
        for (kind, path) in &self.steps {
            if *kind == Kind::Dense {
                let dense = dense(path, width)?;
                width = dense.outputs;
                steps.push(Step::Dense(dense));
            } else {
                // The file may not exist, because old versions of sentence-transformers do not write a folder for this
                // module.
                if let Some(file) = Object::read(&path.join("config.json"))? {
                    only_sentences(&file)?;
                }
                steps.push(Step::Normalize);
            }
        }
        let file = Object::read(&folder.join("config_sentence_transformers.json"))?.unwrap_or_default();
        if let Some(kind) = file.text("model_type")?.filter(|kind| *kind != "SentenceTransformer") {
            return Err(file
                .wrong(format!("the model is a {kind}, which does not produce one vector per text"))
                .with_hint("use a SentenceTransformer"));
        }
        let truncate_dim = file.positive("truncate_dim")?;
        Ok(Pipeline {
            pooling,
            steps,
            prompts: prompts(&file)?,
            max_tokens,
            similarity: file.text("similarity_fn_name")?.map(str::to_owned),
            truncate_dim,
        })
    }
}

/// Returns the folder of a module; `None` if the path is outside the model's folder.
fn inside(folder: &Path, path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    let plain = path.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    plain.then(|| if path.as_os_str().is_empty() { folder.to_owned() } else { folder.join(path) })
}

fn required(folder: &Path) -> Result<Object> {
    let path = folder.join("config.json");
    Object::read(&path)?.ok_or_else(|| {
        Error::data(format!("{} is missing, but its folder is listed in modules.json", path.display()))
            .with_hint("download all files of the model again")
    })
}

fn pooling(folder: &Path, hidden: usize) -> Result<Pooling> {
    let file = required(folder)?;
    for key in ["word_embedding_dimension", "embedding_dimension"] {
        if let Some(width) = file.count(key)?.filter(|w| *w != hidden) {
            return Err(
                file.wrong(format!("`{key}` is {width}, but the hidden size of the network is {hidden}"))
            );
        }
    }
    let named = |name: &str| {
        let mode = PoolingMode::ALL.into_iter().find(|m| m.name() == name);
        mode.ok_or_else(|| {
            let known = PoolingMode::ALL.map(PoolingMode::name).join(", ");
            file.wrong(format!("the pooling `{name}` is not supported"))
                .with_hint(format!("supported: {known}"))
        })
    };
    let modes = match file.get("pooling_mode") {
        Some(Value::String(name)) => vec![named(name)?],
        Some(Value::Array(names)) if !names.is_empty() => {
            names.iter().map(|n| named(n.as_str().unwrap_or("?"))).collect::<Result<_>>()?
        }
        Some(other) => {
            return Err(
                file.wrong(format!("`pooling_mode` must be a mode or a list of modes, but is {other}"))
            );
        }
        None => flagged(&file)?,
    };
    Ok(Pooling { modes, include_prompt: file.flag("include_prompt")?.unwrap_or(true) })
}

/// Returns the pooling modes that an old file enables with flags. Returns mean pooling if no flag is true.
fn flagged(file: &Object) -> Result<Vec<PoolingMode>> {
    let mut modes = Vec::new();
    for mode in PoolingMode::ALL {
        if file.flag(mode.flag())?.unwrap_or(false) {
            modes.push(mode);
        }
    }
    let known = |k: &String| PoolingMode::ALL.iter().any(|m| m.flag() == k);
    let on = file
        .values
        .iter()
        .find(|(k, v)| k.starts_with("pooling_mode_") && !known(k) && **v == Value::Bool(true));
    if let Some((key, _)) = on {
        return Err(file.wrong(format!("the pooling `{key}` is not supported")));
    }
    if modes.is_empty() {
        modes.push(PoolingMode::Mean);
    }
    Ok(modes)
}

fn only_sentences(file: &Object) -> Result<()> {
    for key in ["module_input_name", "module_output_name"] {
        if let Some(name) = file.text(key)?.filter(|name| *name != "sentence_embedding") {
            return Err(file.wrong(format!(
                "`{key}` is `{name}`; only modules that work on the `sentence_embedding` are supported"
            )));
        }
    }
    Ok(())
}

fn dense(folder: &Path, width: usize) -> Result<Dense> {
    let file = required(folder)?;
    only_sentences(&file)?;
    if file.flag("use_residual")?.unwrap_or(false) {
        return Err(file.wrong("`use_residual` is true; dense layers with a residual are not supported"));
    }
    let (inputs, outputs) = (file.size("in_features")?, file.size("out_features")?);
    if inputs != width {
        return Err(file.wrong(format!("`in_features` is {inputs}, but its input has {width} dimensions")));
    }
    let weights = Weights::open(folder)?;
    let bias = match file.flag("bias")?.unwrap_or(true) {
        true => Some(weights.expect("linear.bias", &[outputs])?.numbers()?),
        false => None,
    };
    Ok(Dense {
        inputs,
        outputs,
        weight: weights.expect("linear.weight", &[outputs, inputs])?.numbers()?,
        bias,
        activation: activation(&file)?,
    })
}

fn activation(file: &Object) -> Result<DenseActivation> {
    // Old files do not have this key. In this case, Tanh is used, the default of the class `Dense`.
    let Some(class) = file.text("activation_function")? else { return Ok(DenseActivation::Tanh) };
    let last = |class: &'static str| class.rsplit('.').next().unwrap_or(class);
    let known = DenseActivation::ALL.into_iter().find(|a| {
        class.strip_prefix("torch.nn.").is_some_and(|rest| rest.rsplit('.').next() == Some(last(a.class())))
    });
    known.ok_or_else(|| {
        let known = DenseActivation::ALL.map(|a| last(a.class())).join(", ");
        file.wrong(format!("the activation `{class}` is not supported"))
            .with_hint(format!("supported: PyTorch's {known}"))
    })
}

fn prompts(file: &Object) -> Result<Prompts> {
    let mut prompts = Prompts::default();
    for name in ["query", "document"] {
        prompts.texts.insert(name.to_owned(), String::new());
    }
    match file.get("prompts") {
        None => {}
        Some(Value::Object(texts)) => {
            for (name, text) in texts {
                let text = match text {
                    Value::Null => "",
                    Value::String(text) => text,
                    other => {
                        return Err(file.wrong(format!("the prompt `{name}` must be a text, but is {other}")));
                    }
                };
                prompts.texts.insert(name.clone(), text.to_owned());
            }
        }
        Some(other) => return Err(file.wrong(format!("`prompts` must map names to texts, but is {other}"))),
    }
    prompts.default = file.text("default_prompt_name")?.map(str::to_owned);
    match &prompts.default {
        Some(name) if !prompts.texts.contains_key(name) => {
            Err(file.wrong(format!("`default_prompt_name` is `{name}`, but this prompt does not exist")))
        }
        _ => Ok(prompts),
    }
}
