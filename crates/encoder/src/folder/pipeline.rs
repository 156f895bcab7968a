//! What makes one vector of a network's hidden states, as a model's files say.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use turnwise_core::error::{Error, Result};

/// What stands before and after the network.
#[derive(Debug, Clone, PartialEq)]
pub struct Pipeline {
    /// How the vectors of the tokens become one.
    pub pooling: Pooling,
    /// What happens to that one, in this order.
    pub steps: Vec<Step>,
    /// What is put in front of a text.
    pub prompts: Prompts,
    /// Tokens a text may have, special ones included.
    pub max_tokens: usize,
    /// How vectors are meant to be compared (`cosine`, `dot`, …), where the model says so.
    pub similarity: Option<String>,
    /// To how many numbers vectors are to be cut at the end, where the model says so.
    pub truncate_dim: Option<usize>,
}

impl Pipeline {
    /// The width of the vectors, for a network of that hidden width.
    pub fn dim(&self, hidden: usize) -> usize {
        let pooled = hidden * self.pooling.modes.len();
        let last = self.steps.iter().rev().find_map(|step| match step {
            Step::Dense(dense) => Some(dense.outputs),
            Step::Normalize => None,
        });
        let dim = last.unwrap_or(pooled);
        self.truncate_dim.map_or(dim, |cut| cut.min(dim))
    }

    /// Whether the vectors have length 1 before they are cut.
    pub fn normalizes(&self) -> bool {
        matches!(self.steps.last(), Some(Step::Normalize))
    }
}

/// How the vectors of the tokens become one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pooling {
    /// The results of several modes stand side by side, in this order.
    pub modes: Vec<PoolingMode>,
    /// Whether the tokens of a prompt (and what stands before it) take part.
    pub include_prompt: bool,
}

/// One way to pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolingMode {
    /// The first token.
    Cls,
    /// The largest of each column.
    Max,
    /// The mean.
    Mean,
    /// The sum, divided by the root of the number of tokens.
    MeanSqrtLen,
    /// The mean with weights 1, 2, 3, … by position.
    WeightedMean,
    /// The last token.
    LastToken,
}

impl PoolingMode {
    /// All of them, in the order in which sentence-transformers joins those that old files switch on by flags.
    pub const ALL: [PoolingMode; 6] = [
        PoolingMode::Cls,
        PoolingMode::Max,
        PoolingMode::Mean,
        PoolingMode::MeanSqrtLen,
        PoolingMode::WeightedMean,
        PoolingMode::LastToken,
    ];

    /// Its name in the files.
    pub const fn name(self) -> &'static str {
        match self {
            PoolingMode::Cls => "cls",
            PoolingMode::Max => "max",
            PoolingMode::Mean => "mean",
            PoolingMode::MeanSqrtLen => "mean_sqrt_len_tokens",
            PoolingMode::WeightedMean => "weightedmean",
            PoolingMode::LastToken => "lasttoken",
        }
    }

    /// The key that switches it on in files of old versions.
    pub const fn flag(self) -> &'static str {
        match self {
            PoolingMode::Cls => "pooling_mode_cls_token",
            PoolingMode::Max => "pooling_mode_max_tokens",
            PoolingMode::Mean => "pooling_mode_mean_tokens",
            PoolingMode::MeanSqrtLen => "pooling_mode_mean_sqrt_len_tokens",
            PoolingMode::WeightedMean => "pooling_mode_weightedmean_tokens",
            PoolingMode::LastToken => "pooling_mode_lasttoken",
        }
    }
}

/// What happens to a pooled vector.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A linear layer and a function.
    Dense(Dense),
    /// To length 1.
    Normalize,
}

/// `f(W·x + b)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Dense {
    /// Width of `x`.
    pub inputs: usize,
    /// Width of the result.
    pub outputs: usize,
    /// `outputs` rows of `inputs`.
    pub weight: Vec<f32>,
    /// One number an output.
    pub bias: Option<Vec<f32>>,
    /// `f`.
    pub activation: DenseActivation,
}

/// The function of a dense layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenseActivation {
    /// None.
    Identity,
    /// `tanh x`.
    Tanh,
    /// `max(x, 0)`.
    Relu,
    /// `x·Φ(x)`, exact.
    Gelu,
    /// `1/(1 + exp(−x))`.
    Sigmoid,
    /// `x/(1 + exp(−x))`.
    Silu,
}

impl DenseActivation {
    /// All of them.
    pub const ALL: [DenseActivation; 6] = [
        DenseActivation::Identity,
        DenseActivation::Tanh,
        DenseActivation::Relu,
        DenseActivation::Gelu,
        DenseActivation::Sigmoid,
        DenseActivation::Silu,
    ];

    /// The class of PyTorch that stands for it in the files.
    pub const fn class(self) -> &'static str {
        match self {
            DenseActivation::Identity => "torch.nn.modules.linear.Identity",
            DenseActivation::Tanh => "torch.nn.modules.activation.Tanh",
            DenseActivation::Relu => "torch.nn.modules.activation.ReLU",
            DenseActivation::Gelu => "torch.nn.modules.activation.GELU",
            DenseActivation::Sigmoid => "torch.nn.modules.activation.Sigmoid",
            DenseActivation::Silu => "torch.nn.modules.activation.SiLU",
        }
    }
}

/// What a model wants in front of texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompts {
    /// By name; `query` and `document` are always there, if only as nothing.
    pub texts: BTreeMap<String, String>,
    /// The name of the one that is used if none is asked for.
    pub default: Option<String>,
}

impl Prompts {
    /// The prompt of that name; without a name the default one; nothing if there is none.
    pub fn text(&self, name: Option<&str>) -> Result<&str> {
        match name {
            Some(name) => match self.texts.get(name) {
                Some(text) => Ok(text),
                None => Err(Error::unknown_name("prompt", name, self.texts.keys().map(String::as_str))),
            },
            None => Ok(self.default.as_ref().and_then(|d| self.texts.get(d)).map_or("", String::as_str)),
        }
    }
}
