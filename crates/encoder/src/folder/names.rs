//! Names of the parameters in the weight files, by architecture. The product uses the names of BERT.

use std::collections::{BTreeMap, HashSet};

use turnwise_core::error::{Error, Result};

use crate::folder::{
    config::{Architecture, Config},
    network::Parameter,
    weights::{Tensor, Weights},
};

pub(super) const WORDS: &str = "embeddings.word_embeddings.weight";
pub(super) const POSITIONS: &str = "embeddings.position_embeddings.weight";
pub(super) const TYPES: &str = "embeddings.token_type_embeddings.weight";
/// Name of the turn embeddings, which only some models have.
pub(super) const TURNS: &str = "embeddings.turn_embeddings.weight";
/// Name of the role embeddings, which only some models have.
pub(super) const ROLES: &str = "embeddings.role_embeddings.weight";
pub(super) const EMBEDDING_NORM: &str = "embeddings.LayerNorm";
/// Names of the norms of queries and keys, which BERT does not have.
pub(super) const HEAD_NORMS: [&str; 2] = ["attention.self.query_norm", "attention.self.key_norm"];
/// Names of the norms of the outputs of attention and of the feed-forward block, which BERT does not have.
pub(super) const RESULT_NORMS: [&str; 2] = ["attention.output.norm", "output.norm"];
/// Name of the norm after the last layer, which BERT does not have.
pub(super) const FINAL_NORM: &str = "encoder.LayerNorm";
/// Name of the table of the relative position bias, which only MPNet has.
pub(super) const RELATIVE_BIAS: &str = "encoder.relative_attention_bias.weight";

pub(super) const QUERY: &str = "attention.self.query";
pub(super) const KEY: &str = "attention.self.key";
pub(super) const VALUE: &str = "attention.self.value";
pub(super) const ATTENTION_OUTPUT: &str = "attention.output.dense";
pub(super) const ATTENTION_NORM: &str = "attention.output.LayerNorm";
pub(super) const INTERMEDIATE: &str = "intermediate.dense";
/// Name of the gate of the feed-forward block, which BERT does not have.
pub(super) const GATE: &str = "intermediate.gate";
pub(super) const OUTPUT: &str = "output.dense";
pub(super) const OUTPUT_NORM: &str = "output.LayerNorm";

/// Location of a parameter: a tensor, or one of several parts of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Name of the tensor.
    pub tensor: String,
    /// Number of the part, from 0, and number of parts. The parts have the same number of rows.
    part: (usize, usize),
}

impl Source {
    /// Returns the part of the tensor that is the parameter. Fails if the tensor is missing or has the wrong shape.
    pub fn read<'w>(&self, weights: &'w Weights, parameter: &Parameter) -> Result<Tensor<'w>> {
        let (part, parts) = self.part;
        let mut dims = parameter.dims.clone();
        if let Some(rows) = dims.first_mut() {
            *rows = rows.saturating_mul(parts);
        }
        Ok(weights.expect(&self.tensor, &dims)?.rows(part, parts))
    }
}

/// Names that an architecture uses.
struct Spelling {
    /// Prefix of the names of layers, without the number of the layer.
    layer: &'static str,
    /// Submodules of a layer: BERT's name, the name in the files, and the part of the tensor.
    in_layer: &'static [(&'static str, &'static str, (usize, usize))],
    /// Other names: BERT's name, without `weight` or `bias`, and the name in the files.
    others: &'static [(&'static str, &'static str)],
}

const WHOLE: (usize, usize) = (0, 1);

const BERT: Spelling = Spelling { layer: "encoder.layer", in_layer: &[], others: &[] };

const DISTILBERT: Spelling = Spelling {
    layer: "transformer.layer",
    in_layer: &[
        (QUERY, "attention.q_lin", WHOLE),
        (KEY, "attention.k_lin", WHOLE),
        (VALUE, "attention.v_lin", WHOLE),
        (ATTENTION_OUTPUT, "attention.out_lin", WHOLE),
        (ATTENTION_NORM, "sa_layer_norm", WHOLE),
        (INTERMEDIATE, "ffn.lin1", WHOLE),
        (OUTPUT, "ffn.lin2", WHOLE),
        (OUTPUT_NORM, "output_layer_norm", WHOLE),
    ],
    others: &[],
};

const MPNET: Spelling = Spelling {
    layer: "encoder.layer",
    in_layer: &[
        (QUERY, "attention.attn.q", WHOLE),
        (KEY, "attention.attn.k", WHOLE),
        (VALUE, "attention.attn.v", WHOLE),
        (ATTENTION_OUTPUT, "attention.attn.o", WHOLE),
        (ATTENTION_NORM, "attention.LayerNorm", WHOLE),
    ],
    others: &[],
};

const MODERN_BERT: Spelling = Spelling {
    layer: "layers",
    in_layer: &[
        (QUERY, "attn.Wqkv", (0, 3)),
        (KEY, "attn.Wqkv", (1, 3)),
        (VALUE, "attn.Wqkv", (2, 3)),
        (ATTENTION_OUTPUT, "attn.Wo", WHOLE),
        (ATTENTION_NORM, "attn_norm", WHOLE),
        (INTERMEDIATE, "mlp.Wi", (0, 2)),
        (GATE, "mlp.Wi", (1, 2)),
        (OUTPUT, "mlp.Wo", WHOLE),
        (OUTPUT_NORM, "mlp_norm", WHOLE),
    ],
    others: &[
        ("embeddings.word_embeddings", "embeddings.tok_embeddings"),
        (EMBEDDING_NORM, "embeddings.norm"),
        (FINAL_NORM, "final_norm"),
    ],
};

const NOMIC_BERT: Spelling = Spelling {
    layer: "encoder.layers",
    in_layer: &[
        (QUERY, "attn.Wqkv", (0, 3)),
        (KEY, "attn.Wqkv", (1, 3)),
        (VALUE, "attn.Wqkv", (2, 3)),
        (ATTENTION_OUTPUT, "attn.out_proj", WHOLE),
        (ATTENTION_NORM, "norm1", WHOLE),
        (INTERMEDIATE, "mlp.fc12", WHOLE),
        (GATE, "mlp.fc11", WHOLE),
        (OUTPUT, "mlp.fc2", WHOLE),
        (OUTPUT_NORM, "norm2", WHOLE),
    ],
    others: &[(EMBEDDING_NORM, "emb_ln")],
};

const GTE: Spelling = Spelling {
    layer: "encoder.layer",
    in_layer: &[
        (QUERY, "attention.qkv_proj", (0, 3)),
        (KEY, "attention.qkv_proj", (1, 3)),
        (VALUE, "attention.qkv_proj", (2, 3)),
        (ATTENTION_OUTPUT, "attention.o_proj", WHOLE),
        (ATTENTION_NORM, "attn_ln", WHOLE),
        (INTERMEDIATE, "mlp.up_gate_proj", (1, 2)),
        (GATE, "mlp.up_gate_proj", (0, 2)),
        (OUTPUT, "mlp.down_proj", WHOLE),
        (OUTPUT_NORM, "mlp_ln", WHOLE),
    ],
    others: &[],
};

const JINA_BERT: Spelling = Spelling {
    layer: "encoder.layer",
    in_layer: &[
        (INTERMEDIATE, "mlp.gated_layers", (0, 2)),
        (GATE, "mlp.gated_layers", (1, 2)),
        (OUTPUT, "mlp.wo", WHOLE),
        (OUTPUT_NORM, "mlp.layernorm", WHOLE),
    ],
    others: &[],
};

const QWEN3: Spelling = Spelling {
    layer: "layers",
    in_layer: &[
        (QUERY, "self_attn.q_proj", WHOLE),
        (KEY, "self_attn.k_proj", WHOLE),
        (VALUE, "self_attn.v_proj", WHOLE),
        (HEAD_NORMS[0], "self_attn.q_norm", WHOLE),
        (HEAD_NORMS[1], "self_attn.k_norm", WHOLE),
        (ATTENTION_OUTPUT, "self_attn.o_proj", WHOLE),
        (ATTENTION_NORM, "input_layernorm", WHOLE),
        (INTERMEDIATE, "mlp.gate_proj", WHOLE),
        (GATE, "mlp.up_proj", WHOLE),
        (OUTPUT, "mlp.down_proj", WHOLE),
        (OUTPUT_NORM, "post_attention_layernorm", WHOLE),
    ],
    others: &[("embeddings.word_embeddings", "embed_tokens"), (FINAL_NORM, "norm")],
};

const GEMMA3: Spelling = Spelling {
    layer: "layers",
    in_layer: &[
        (QUERY, "self_attn.q_proj", WHOLE),
        (KEY, "self_attn.k_proj", WHOLE),
        (VALUE, "self_attn.v_proj", WHOLE),
        (HEAD_NORMS[0], "self_attn.q_norm", WHOLE),
        (HEAD_NORMS[1], "self_attn.k_norm", WHOLE),
        (ATTENTION_OUTPUT, "self_attn.o_proj", WHOLE),
        (ATTENTION_NORM, "input_layernorm", WHOLE),
        (RESULT_NORMS[0], "post_attention_layernorm", WHOLE),
        (INTERMEDIATE, "mlp.gate_proj", WHOLE),
        (GATE, "mlp.up_proj", WHOLE),
        (OUTPUT, "mlp.down_proj", WHOLE),
        (OUTPUT_NORM, "pre_feedforward_layernorm", WHOLE),
        (RESULT_NORMS[1], "post_feedforward_layernorm", WHOLE),
    ],
    others: QWEN3.others,
};

fn spelling(architecture: Architecture) -> &'static Spelling {
    match architecture {
        Architecture::DistilBert => &DISTILBERT,
        Architecture::MpNet => &MPNET,
        Architecture::ModernBert => &MODERN_BERT,
        Architecture::NomicBert => &NOMIC_BERT,
        Architecture::Gte | Architecture::New => &GTE,
        Architecture::JinaBert => &JINA_BERT,
        Architecture::Qwen3 => &QWEN3,
        Architecture::Gemma3 => &GEMMA3,
        Architecture::Bert
        | Architecture::Roberta
        | Architecture::XlmRoberta
        | Architecture::Camembert
        | Architecture::Static => &BERT,
    }
}

/// Beginnings of the names of tensors that belong to a network, without the prefix. All other tensors are heads.
const NETWORK: [&str; 8] = [
    "embeddings.",
    "encoder.",
    "transformer.",
    "layers.",
    "emb_ln.",
    "final_norm.",
    "embed_tokens.",
    "norm.",
];

/// Translates BERT's name of a parameter to the name that an architecture uses, without prefix.
pub fn name_in(architecture: Architecture, name: &str) -> String {
    source_in(architecture, name).tensor
}

fn source_in(architecture: Architecture, name: &str) -> Source {
    let spelling = spelling(architecture);
    let of_layer = || {
        let (number, part) = name.strip_prefix("encoder.layer.")?.split_once('.')?;
        let (part, kind) = part.rsplit_once('.')?;
        let (_, own, of_tensor) = spelling.in_layer.iter().find(|(common, ..)| *common == part)?;
        Some(Source { tensor: format!("{}.{number}.{own}.{kind}", spelling.layer), part: *of_tensor })
    };
    let other = || {
        let (part, kind) = name.rsplit_once('.')?;
        let (_, own) = spelling.others.iter().find(|(common, _)| *common == part)?;
        Some(Source { tensor: format!("{own}.{kind}"), part: WHOLE })
    };
    of_layer().or_else(other).unwrap_or_else(|| Source { tensor: name.to_owned(), part: WHOLE })
}

/// Parameter names in the weight files of a model.
pub struct Names<'a> {
    architecture: Architecture,
    pub prefix: String,
    /// Maps a name without prefix to the name in the file. In the names without prefix, `gamma` and `beta` of a norm
    /// are replaced with `weight` and `bias`.
    names_in_file: BTreeMap<String, &'a str>,
}

/// Possible components of the prefix of parameter names, such as `bert` in `bert.encoder`. A class that wraps the
/// network, such as a task head, adds a component.
const WRAPPERS: [&str; 14] = [
    "bert",
    "roberta",
    "xlm_roberta",
    "camembert",
    "distilbert",
    "mpnet",
    "nomic_bert",
    "gte",
    "new",
    "model",
    "auto_model",
    "module",
    "encoder_model",
    "0",
];

impl<'a> Names<'a> {
    pub fn new(architecture: Architecture, weights: &'a Weights) -> Result<Self> {
        let known = |prefix: &str| {
            prefix.is_empty() || prefix.trim_end_matches('.').split('.').all(|p| WRAPPERS.contains(&p))
        };
        let words = source_in(architecture, WORDS).tensor;
        let found: Vec<&str> = weights
            .names()
            .filter_map(|name| name.strip_suffix(words.as_str()))
            .filter(|prefix| known(prefix))
            .collect();
        let prefix = match found[..] {
            [prefix] => prefix.to_owned(),
            // The tensor is missing. `Weights::expect` reports this later, with the most similar name.
            [] => String::new(),
            [first, second, ..] => {
                return Err(Error::data(format!(
                    "the weights contain two networks, with `{first}{words}` and `{second}{words}`"
                ))
                .with_hint("save only the network that encodes texts"));
            }
        };
        Ok(Names::at(architecture, weights, prefix))
    }

    /// Collects the names of the tensors that start with a prefix.
    pub fn at(architecture: Architecture, weights: &'a Weights, prefix: String) -> Self {
        let names_in_file = weights.names().filter_map(|name| {
            let bare = name.strip_prefix(prefix.as_str())?;
            let bare = bare.replace("LayerNorm.gamma", "LayerNorm.weight");
            Some((bare.replace("LayerNorm.beta", "LayerNorm.bias"), name))
        });
        Names { architecture, names_in_file: names_in_file.collect(), prefix }
    }

    /// Returns the location of a parameter in the file, or the expected location if the tensor is missing.
    pub fn in_file(&self, name: &str) -> Source {
        let own = source_in(self.architecture, name);
        let found = self.names_in_file.get(&own.tensor).map(|name| (*name).to_owned());
        let tensor = found.unwrap_or_else(|| format!("{}{}", self.prefix, own.tensor));
        Source { tensor, ..own }
    }

    /// Checks the tensors that are not parameters of the network. Ignores heads and poolers, because they do not affect
    /// the vectors. Fails if the embeddings or layers contain an unknown tensor. Returns a notice if there are extra
    /// layers.
    pub fn unused(&self, config: &Config, used: &[(Parameter, Source)]) -> Result<Vec<String>> {
        let used: HashSet<&str> = used.iter().map(|(_, source)| source.tensor.as_str()).collect();
        let layer = format!("{}.", spelling(self.architecture).layer);
        let mut above = 0;
        for (bare, name) in self.names_in_file.iter().filter(|(_, name)| !used.contains(*name)) {
            let inside = NETWORK.iter().any(|p| bare.starts_with(p));
            let buffer = ["position_ids", "token_type_ids", "inv_freq"].iter().any(|b| bare.ends_with(b));
            let number =
                bare.strip_prefix(layer.as_str()).and_then(|r| r.split('.').next()?.parse::<usize>().ok());
            match number {
                Some(number) if number >= config.layers => above = above.max(number + 1),
                _ if inside && !buffer => {
                    return Err(Error::data(format!(
                        "the weights contain `{name}`, which the architecture `{}` does not support",
                        self.architecture.name()
                    ))
                    .with_hint("without this tensor the vectors would be wrong; use a different model"));
                }
                _ => {}
            }
        }
        let layers = config.layers;
        let ignored = format!(
            "the weights have {above} layers, but config.json has {layers}; the last ones are ignored"
        );
        Ok(if above > 0 { vec![ignored] } else { Vec::new() })
    }
}
