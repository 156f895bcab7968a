//! Configuration of a model: `config.json` with the architecture and sizes of the network, and
//! `sentence_bert_config.json` with the settings of sentence-transformers. Error messages name the file and the key, or
//! the line of invalid JSON.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use turnwise_core::error::{Error, IoContext, Result};

use crate::network::{Activation, RelativeBias, Shape};

/// Architecture of a network. All supported architectures belong to the BERT family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// BERT. Most MiniLM, E5 and BGE models have this architecture.
    Bert,
    /// RoBERTa.
    Roberta,
    /// XLM-RoBERTa.
    XlmRoberta,
    /// CamemBERT.
    Camembert,
    /// DistilBERT.
    DistilBert,
    /// MPNet, with a relative position bias.
    MpNet,
}

impl Architecture {
    /// All supported architectures.
    pub const ALL: [Self; 6] =
        [Self::Bert, Self::Roberta, Self::XlmRoberta, Self::Camembert, Self::DistilBert, Self::MpNet];

    /// Returns the value of `model_type` in `config.json`.
    pub const fn name(self) -> &'static str {
        match self {
            Architecture::Bert => "bert",
            Architecture::Roberta => "roberta",
            Architecture::XlmRoberta => "xlm-roberta",
            Architecture::Camembert => "camembert",
            Architecture::DistilBert => "distilbert",
            Architecture::MpNet => "mpnet",
        }
    }

    /// Returns the name of the class in the `transformers` library that implements the network without a task head.
    pub const fn class(self) -> &'static str {
        match self {
            Architecture::Bert => "BertModel",
            Architecture::Roberta => "RobertaModel",
            Architecture::XlmRoberta => "XLMRobertaModel",
            Architecture::Camembert => "CamembertModel",
            Architecture::DistilBert => "DistilBertModel",
            Architecture::MpNet => "MPNetModel",
        }
    }

    /// Returns the prefix that the names of the network's tensors have in a model with a task head.
    pub const fn prefix(self) -> &'static str {
        match self {
            Architecture::Bert => "bert.",
            Architecture::DistilBert => "distilbert.",
            Architecture::MpNet => "mpnet.",
            // The classes of XLM-RoBERTa and CamemBERT use the name of RoBERTa.
            _ => "roberta.",
        }
    }

    /// Returns true if position ids start at the id of the padding token plus 1.
    pub const fn counts_from_padding(self) -> bool {
        !matches!(self, Architecture::Bert | Architecture::DistilBert)
    }

    /// Returns true if the network has segment embeddings.
    pub const fn has_segments(self) -> bool {
        !matches!(self, Architecture::DistilBert | Architecture::MpNet)
    }

    /// Returns true if the network has a relative position bias.
    pub const fn has_relative_bias(self) -> bool {
        matches!(self, Architecture::MpNet)
    }
}

/// Contents of `config.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Architecture of the network.
    pub architecture: Architecture,
    /// Hyperparameters of the network, such as the hidden size.
    pub shape: Shape,
    /// Number of layers.
    pub layers: usize,
    /// Number of word embeddings.
    pub words: usize,
    /// Number of position embeddings.
    pub positions: usize,
    /// Number of segment embeddings; 0 if there are none.
    pub types: usize,
    /// Id of the padding token; `None` if `config.json` does not specify the id.
    pub padding: Option<u32>,
}

impl Config {
    /// Reads the configuration. Fails if an unsupported setting would change the vectors.
    pub fn new(file: &Object) -> Result<Self> {
        refuse_code(file)?;
        let architecture = architecture(file)?;
        refuse_variants(file)?;
        let distil = architecture == Architecture::DistilBert;
        // DistilBERT has its own keys, but newer files can have the common keys instead.
        let size = |own: &str, common: &str| match distil && file.get(own).is_some() {
            true => file.size(own),
            false => file.size(common),
        };
        let hidden = size("dim", "hidden_size")?;
        let heads = size("n_heads", "num_attention_heads")?;
        if !hidden.is_multiple_of(heads) {
            return Err(file
                .wrong(format!("the hidden size {hidden} is not divisible by the number of heads {heads}")));
        }
        for key in ["attention_head_size", "head_dim"] {
            if let Some(width) = file.count(key)?.filter(|w| *w != hidden / heads) {
                return Err(file.wrong(format!(
                    "`{key}` is {width}; only heads of size {} are supported",
                    hidden / heads
                )));
            }
        }
        let padding = file.count("pad_token_id")?.map(|n| n as u32);
        let first_position = match architecture {
            // transformers counts from id 1, whatever the padding id of the tokenizer is.
            Architecture::MpNet => 2,
            _ if architecture.counts_from_padding() => padding.unwrap_or(1) as usize + 1,
            _ => 0,
        };
        let positions = file.count("max_position_embeddings")?.unwrap_or(512);
        if positions <= first_position {
            return Err(file.wrong(format!("`max_position_embeddings` is {positions}, which is too small")));
        }
        let epsilon = if distil { None } else { file.number("layer_norm_eps")? };
        let norm_epsilon = epsilon.unwrap_or(1e-12) as f32;
        if !(norm_epsilon > 0.0 && norm_epsilon.is_finite()) {
            return Err(file.wrong("`layer_norm_eps` must be greater than 0"));
        }
        let types = match architecture.has_segments() {
            true => file.count("type_vocab_size")?.unwrap_or(2),
            false => 0,
        };
        // transformers ignores another number.
        let buckets = file.count("relative_attention_num_buckets")?.unwrap_or(RelativeBias::BUCKETS);
        if architecture.has_relative_bias() && buckets != RelativeBias::BUCKETS {
            return Err(file.wrong(format!(
                "`relative_attention_num_buckets` is {buckets}; only {} is supported",
                RelativeBias::BUCKETS
            )));
        }
        Ok(Config {
            architecture,
            shape: Shape {
                hidden,
                heads,
                intermediate: size("hidden_dim", "intermediate_size")?,
                activation: activation(file, if distil { "activation" } else { "hidden_act" })?,
                norm_epsilon,
                first_position,
            },
            layers: size("n_layers", "num_hidden_layers")?,
            words: file.size("vocab_size")?,
            positions,
            types,
            padding,
        })
    }

    /// Returns the maximum number of tokens per sequence.
    pub fn max_tokens(&self) -> usize {
        self.positions - self.shape.first_position
    }
}

fn architecture(file: &Object) -> Result<Architecture> {
    let supported = format!("supported: {}", Architecture::ALL.map(Architecture::name).join(", "));
    let unknown =
        |name: &str| file.wrong(format!("the architecture `{name}` is not supported")).with_hint(&supported);
    if let Some(name) = file.text("model_type")? {
        let known = Architecture::ALL.into_iter().find(|a| a.name() == name);
        return known.ok_or_else(|| unknown(name));
    }
    // Old files have no `model_type`. They contain only the name of the network's class.
    let classes = file.get("architectures").and_then(Value::as_array);
    let class = classes.and_then(|c| c.first()).and_then(Value::as_str);
    let Some(class) = class else {
        return Err(file.wrong("no architecture (`model_type` is missing)").with_hint(supported));
    };
    let stem = |a: Architecture| a.class().trim_end_matches("Model");
    let known = Architecture::ALL.into_iter().find(|a| {
        class.strip_prefix(stem(*a)).is_some_and(|rest| rest == "Model" || rest.starts_with("For"))
    });
    known.ok_or_else(|| unknown(class))
}

fn activation(file: &Object, key: &str) -> Result<Activation> {
    match file.text(key)?.unwrap_or("gelu") {
        "gelu" | "gelu_python" => Ok(Activation::Gelu),
        // These names mean the same formula; the implementations differ only in rounding.
        "gelu_new" | "gelu_pytorch_tanh" | "gelu_python_tanh" | "gelu_fast" | "gelu_accurate" => {
            Ok(Activation::GeluTanh)
        }
        "relu" => Ok(Activation::Relu),
        other => Err(file
            .wrong(format!("the activation `{other}` is not supported"))
            .with_hint("supported: gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, relu")),
    }
}

/// Returns an error if the model contains custom code, because such code can change the network.
fn refuse_code(file: &Object) -> Result<()> {
    let map = file.get("auto_map").and_then(Value::as_object);
    match map.and_then(|m| m.get("AutoModel")) {
        None => Ok(()),
        Some(class) => Err(file
            .wrong(format!("the model uses its own code ({class})"))
            .with_hint("turnwise does not run code of models; choose a model without `auto_map`")),
    }
}

fn refuse_variants(file: &Object) -> Result<()> {
    if let Some(kind) = file.text("position_embedding_type")?.filter(|k| *k != "absolute") {
        return Err(file.wrong(format!("the position embedding `{kind}` is not supported; use `absolute`")));
    }
    for key in ["is_decoder", "add_cross_attention", "is_encoder_decoder", "relative_attention"] {
        if file.flag(key)?.unwrap_or(false) {
            return Err(file.wrong(format!("`{key}` is true: only plain encoders are supported")));
        }
    }
    let width = file.get("hidden_size").or_else(|| file.get("dim"));
    if let Some(inner) = file.get("embedding_size").filter(|e| Some(*e) != width) {
        return Err(
            file.wrong(format!("`embedding_size` is {inner}: projected embeddings are not supported"))
        );
    }
    for key in ["quantization_config", "pruned_heads", "adapters", "compression_config"] {
        let empty = |v: &Value| {
            v.as_object().is_some_and(|o| o.values().all(|v| v.as_object().is_some_and(|o| o.is_empty())))
        };
        if file.get(key).is_some_and(|v| !empty(v)) {
            return Err(file.wrong(format!("`{key}` is not supported")).with_hint(
                "save the full network in 16 or 32 bits, without quantization, pruning or adapters",
            ));
        }
    }
    Ok(())
}

/// Possible names of the file with the settings of sentence-transformers. Older versions of sentence-transformers use
/// a different name for each architecture.
const NAMES: [&str; 7] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];

/// Contents of `sentence_bert_config.json`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SentenceSettings {
    /// Maximum number of tokens per text; `None` if the file does not set a maximum.
    pub max_tokens: Option<usize>,
    /// True if texts are converted to lower case before tokenization.
    pub lowercase: bool,
}

impl SentenceSettings {
    /// Reads `sentence_bert_config.json`, or the corresponding file of older versions, from the folder of the network.
    /// Returns the default settings if none of these files exists.
    pub fn read(folder: &Path) -> Result<Self> {
        for name in NAMES {
            if let Some(file) = Object::read(&folder.join(name))? {
                return Self::new(&file);
            }
        }
        Ok(SentenceSettings::default())
    }

    fn new(file: &Object) -> Result<Self> {
        for (key, value) in &file.values {
            let harmless = match (key.as_str(), value) {
                ("max_seq_length" | "do_lower_case" | "unpad_inputs", _) | (_, Value::Null) => true,
                ("transformer_task", task) => task == "feature-extraction",
                ("module_output_name", name) => name == "token_embeddings",
                ("modality_config", Value::Object(kinds)) => kinds.iter().all(|(kind, how)| {
                    kind != "text" || how.get("method_output_name").is_some_and(|o| o == "last_hidden_state")
                }),
                (_, Value::Object(values)) => values.is_empty(),
                _ => false,
            };
            if !harmless {
                return Err(file.wrong(format!("the setting `{key}`: {value} is not supported")));
            }
        }
        let max_tokens = file.positive("max_seq_length")?;
        Ok(SentenceSettings { max_tokens, lowercase: file.flag("do_lower_case")?.unwrap_or(false) })
    }
}

/// JSON file that contains an object, such as `config.json`.
#[derive(Debug, Clone, Default)]
pub struct Object {
    path: PathBuf,
    pub values: Map<String, Value>,
}

impl Object {
    /// Reads a file. Returns `None` if the file does not exist.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        match parse::<Value>(path)? {
            None => Ok(None),
            Some(Value::Object(values)) => Ok(Some(Object { path: path.to_owned(), values })),
            Some(_) => Err(Error::data(format!("{}: must contain one JSON object", path.display()))
                .with_hint("download the model again")),
        }
    }

    /// Returns the value of a key; `None` if the key is missing or its value is `null`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key).filter(|v| !v.is_null())
    }

    /// Returns the value of a key as a non-negative integer; `None` if the key is missing. Fails if the value has a
    /// different type.
    pub fn count(&self, key: &str) -> Result<Option<usize>> {
        self.typed(key, "a whole number", |v| v.as_u64().and_then(|n| usize::try_from(n).ok()))
    }

    /// Returns the value of a key as a positive integer; `None` if the key is missing. Fails if the value is not a
    /// positive integer.
    pub fn positive(&self, key: &str) -> Result<Option<usize>> {
        match self.count(key)? {
            Some(0) => Err(self.wrong(format!("`{key}` is 0"))),
            count => Ok(count),
        }
    }

    /// Returns the value of a key as a positive integer. Fails if the key is missing or the value is not a positive
    /// integer.
    pub fn size(&self, key: &str) -> Result<usize> {
        self.positive(key)?.ok_or_else(|| self.wrong(format!("`{key}` is missing")))
    }

    /// Returns the value of a key as a number; `None` if the key is missing. Fails if the value has a different type.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", Value::as_f64)
    }

    /// Returns the value of a key as a Boolean; `None` if the key is missing. Fails if the value has a different type.
    pub fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// Returns the value of a key as a string; `None` if the key is missing. Fails if the value has a different type.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a text", Value::as_str)
    }

    pub fn wrong(&self, what: impl std::fmt::Display) -> Error {
        Error::data(format!("{}: {what}", self.path.display()))
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        kind: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        convert(value).map(Some).ok_or_else(|| self.wrong(format!("`{key}` must be {kind}, but is {value}")))
    }
}

/// Reads and parses a JSON file. Returns `None` if the file does not exist.
pub fn parse<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let bytes = match fs::read(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.at("read", path)?,
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|e| {
        Error::data(format!("{}:{}: invalid JSON: {e}", path.display(), e.line()))
            .with_hint("the file is damaged or truncated; download the model again")
    })
}
