//! Configuration of a model: `config.json` with the architecture and sizes of the network, and
//! `sentence_bert_config.json` with the settings of sentence-transformers. Error messages name the file and the key, or
//! the line of invalid JSON.

mod architecture;
mod decoder;
mod jina;
mod object;
mod rotary;
mod sentence;

use serde_json::Value;
use turnwise_core::error::Result;

use crate::network::{Activation, RelativeBias, Shape};

pub use architecture::Architecture;
pub use object::{Object, parse};
pub use sentence::SentenceSettings;

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
    /// Number of position embeddings. For a network with a rotary position embedding, this is the maximum number of tokens.
    pub positions: usize,
    /// Number of segment embeddings; 0 if there are none.
    pub types: usize,
    /// Id of the padding token; `None` if `config.json` does not specify the id.
    pub padding: Option<u32>,
    /// Differences between the layers of this network and those of BERT.
    pub variant: Variant,
}

/// Differences between the layers of a network and those of BERT. The default is BERT.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Variant {
    /// Groups of parameters that have no bias.
    pub without_bias: WithoutBias,
    /// True if the feed-forward blocks have a gate.
    pub gated: bool,
    /// True if the embeddings are not normalized.
    pub embedding_norm_is_missing: bool,
    /// True if the queries and keys of each head are normalized.
    pub head_norms: bool,
    /// True if the outputs of attention and of the feed-forward blocks are normalized.
    pub result_norms: bool,
    /// True if the weights of norms are stored without the 1 that is added to them, as in Gemma.
    pub norms_add_one: bool,
    /// True if the word embeddings are multiplied by the root of their width, as in Gemma.
    pub scaled_words: bool,
    /// True if the first layer has no norm of attention.
    pub first_norm_is_missing: bool,
    /// True if a norm follows the last layer.
    pub final_norm: bool,
    /// Window of each layer; empty if no layer has one.
    pub windows: Vec<Option<usize>>,
    /// True if the head of a classifier reads the mean of all tokens, instead of the first token.
    pub classifier_pools_all: bool,
}

/// Groups of parameters; a group is true if its parameters have no bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WithoutBias {
    pub norms: bool,
    /// Projections to queries, keys and values.
    pub projections: bool,
    pub attention_output: bool,
    /// First linear layer of the feed-forward block, and its gate.
    pub intermediate: bool,
    /// Last linear layer of the feed-forward block.
    pub output: bool,
}

impl Config {
    /// Reads the configuration. Fails if an unsupported setting would change the vectors.
    pub fn new(file: &Object) -> Result<Self> {
        let architecture = architecture(file)?;
        let positions = match architecture {
            Architecture::Gte | Architecture::New => "rope",
            Architecture::JinaBert => "alibi",
            _ => "absolute",
        };
        refuse_variants(file, positions)?;
        match architecture {
            Architecture::ModernBert => return rotary::modern_bert(file),
            Architecture::NomicBert => return rotary::nomic_bert(file),
            Architecture::Gte | Architecture::New => return rotary::gte(file, architecture),
            Architecture::JinaBert => return jina::jina_bert(file),
            Architecture::Qwen3 => return decoder::qwen3(file),
            Architecture::Gemma3 => return decoder::gemma3(file),
            Architecture::Static => {
                return Err(file
                    .wrong("the model has static embeddings, but modules.json lists a Transformer")
                    .with_hint("download all files of the model again"));
            }
            _ => refuse_code(file)?,
        }
        let distil = architecture == Architecture::DistilBert;
        // DistilBERT has its own keys, but newer files can have the common keys instead.
        let size = |own: &str, common: &str| match distil && file.get(own).is_some() {
            true => file.size(own),
            false => file.size(common),
        };
        let hidden = size("dim", "hidden_size")?;
        let heads = size("n_heads", "num_attention_heads")?;
        check_heads(file, hidden, heads)?;
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
        let norm_epsilon = if distil { 1e-12 } else { epsilon(file, "layer_norm_eps", 1e-12)? };
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
                activation: activation(file, if distil { "activation" } else { "hidden_act" })?,
                norm_epsilon,
                first_position,
                ..Shape::bert(hidden, heads, size("hidden_dim", "intermediate_size")?)
            },
            layers: size("n_layers", "num_hidden_layers")?,
            words: file.size("vocab_size")?,
            positions,
            types,
            padding,
            variant: Variant::default(),
        })
    }

    /// Returns the maximum number of tokens per sequence.
    pub fn max_tokens(&self) -> usize {
        self.positions - self.shape.first_position
    }
}

/// Returns an error if the width of a head differs from the hidden size divided by the number of heads.
fn check_heads(file: &Object, hidden: usize, heads: usize) -> Result<()> {
    if !hidden.is_multiple_of(heads) {
        return Err(
            file.wrong(format!("the hidden size {hidden} is not divisible by the number of heads {heads}"))
        );
    }
    for key in ["attention_head_size", "head_dim"] {
        if let Some(width) = file.count(key)?.filter(|w| *w != hidden / heads) {
            return Err(file
                .wrong(format!("`{key}` is {width}; only heads of size {} are supported", hidden / heads)));
        }
    }
    Ok(())
}

/// Largest supported maximum number of tokens. Tables of positions are computed for all of them.
pub const MOST_TOKENS: usize = 1 << 20;

/// Returns an error if the maximum number of tokens of a network without position embeddings is too large. No tensor limits
/// it.
fn check_max_tokens(file: &Object, tokens: usize) -> Result<()> {
    if tokens <= MOST_TOKENS {
        return Ok(());
    }
    Err(file.wrong(format!("the maximum number of tokens is {tokens}; at most {MOST_TOKENS} are supported")))
}

/// Returns the epsilon of the layer norms.
fn epsilon(file: &Object, key: &str, default: f64) -> Result<f32> {
    let epsilon = file.number(key)?.unwrap_or(default) as f32;
    if epsilon > 0.0 && epsilon.is_finite() {
        return Ok(epsilon);
    }
    Err(file.wrong(format!("`{key}` must be greater than 0")))
}

fn architecture(file: &Object) -> Result<Architecture> {
    let supported = format!("supported: {}", Architecture::ALL.map(Architecture::name).join(", "));
    let unknown =
        |name: &str| file.wrong(format!("the architecture `{name}` is not supported")).with_hint(&supported);
    if let Some(name) = file.text("model_type")? {
        if name == Architecture::Bert.name() && file.text("position_embedding_type")? == Some("alibi") {
            return Ok(Architecture::JinaBert);
        }
        return Architecture::of_model_type(name).ok_or_else(|| unknown(name));
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
        "silu" | "swish" => Ok(Activation::Silu),
        other => Err(file
            .wrong(format!("the activation `{other}` is not supported"))
            .with_hint("supported: gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, relu, silu")),
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

/// Returns an error if a setting would change the vectors. `positions` is the supported type of position embeddings.
fn refuse_variants(file: &Object, positions: &str) -> Result<()> {
    if let Some(kind) = file.text("position_embedding_type")?.filter(|kind| *kind != positions) {
        return Err(
            file.wrong(format!("the position embedding `{kind}` is not supported; use `{positions}`"))
        );
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
