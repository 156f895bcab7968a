//! The pipeline around a network: pooling, final steps, prompts and limits, as configured in a model's files.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use turnwise_core::error::{Error, Result};

/// Settings of a model that do not belong to the network: pooling, final steps, prompts and limits.
#[derive(Debug, Clone, PartialEq)]
pub struct Pipeline {
    /// Pooling of token vectors into one vector.
    pub pooling: Pooling,
    /// Steps applied to the pooled vector, from first to last.
    pub steps: Vec<Step>,
    /// Prompts that are added before a text.
    pub prompts: Prompts,
    /// Maximum number of tokens per text, including special tokens.
    pub max_tokens: usize,
    /// Similarity function that the model recommends, such as `cosine` or `dot`; `None` if the model recommends none.
    pub similarity: Option<String>,
    /// Number of dimensions to keep; `None` if vectors are not truncated.
    pub truncate_dim: Option<usize>,
}

impl Pipeline {
    /// Creates a pipeline with mean pooling, and without prompts and final steps.
    pub(crate) fn plain(max_tokens: usize) -> Self {
        Pipeline {
            pooling: Pooling { modes: vec![PoolingMode::Mean], include_prompt: true },
            steps: Vec::new(),
            prompts: Prompts::default(),
            max_tokens,
            similarity: None,
            truncate_dim: None,
        }
    }

    /// Returns the width of the vectors for a network with the given hidden size.
    pub fn dim(&self, hidden: usize) -> usize {
        let pooled = hidden * self.pooling.modes.len();
        let last = self.steps.iter().rev().find_map(|step| match step {
            Step::Dense(dense) => Some(dense.outputs),
            Step::Normalize => None,
        });
        let dim = last.unwrap_or(pooled);
        self.truncate_dim.map_or(dim, |cut| cut.min(dim))
    }

    /// Returns true if the vectors are L2-normalized before truncation.
    pub fn normalizes(&self) -> bool {
        matches!(self.steps.last(), Some(Step::Normalize))
    }
}

/// Pooling of token vectors into one vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pooling {
    /// Pooling modes. The results of the modes are concatenated in list order.
    pub modes: Vec<PoolingMode>,
    /// True if pooling includes the tokens of the prompt and the special tokens before it.
    pub include_prompt: bool,
}

/// Operation that pools the vectors of all tokens into one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum PoolingMode {
    /// Vector of the first token.
    Cls,
    /// Maximum of each dimension over all tokens.
    Max,
    /// Mean over all tokens.
    Mean,
    /// Sum over all tokens, divided by the square root of their number.
    MeanSqrtLen,
    /// Mean over all tokens with the weights 1, 2, 3, … by position.
    WeightedMean,
    /// Vector of the last token.
    LastToken,
}

impl PoolingMode {
    /// All modes. If several modes are enabled by flags, sentence-transformers concatenates their results in this
    /// order.
    pub const ALL: [Self; 6] =
        [Self::Cls, Self::Max, Self::Mean, Self::MeanSqrtLen, Self::WeightedMean, Self::LastToken];

    /// Returns the name of the mode in the model's files.
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

    /// Returns the key that enables the mode in files of old versions of sentence-transformers.
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

/// A step applied to a pooled vector.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A linear layer with an activation function.
    Dense(Dense),
    /// L2 normalization.
    Normalize,
}

/// Linear layer with an activation function: `f(W·x + b)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Dense {
    /// Width of the input `x`.
    pub inputs: usize,
    /// Width of the result.
    pub outputs: usize,
    /// Weight matrix: `outputs` rows of `inputs` elements.
    pub weight: Vec<f32>,
    /// Bias, with one element per output; `None` if the layer has no bias.
    pub bias: Option<Vec<f32>>,
    /// Activation function `f`.
    pub activation: DenseActivation,
}

/// Activation function of a dense layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenseActivation {
    /// `x`.
    Identity,
    /// `tanh x`.
    Tanh,
    /// `max(x, 0)`.
    Relu,
    /// `x·Φ(x)`, where `Φ` is the standard normal distribution function. The tanh approximation is not used.
    Gelu,
    /// `1/(1 + exp(−x))`.
    Sigmoid,
    /// `x/(1 + exp(−x))`.
    Silu,
}

impl DenseActivation {
    /// Applies the activation function to `x`.
    pub(crate) fn apply(self, x: f32) -> f32 {
        match self {
            DenseActivation::Identity => x,
            DenseActivation::Tanh => x.tanh(),
            DenseActivation::Relu => x.max(0.0),
            DenseActivation::Gelu => {
                let x = f64::from(x);
                (0.5 * x * (1.0 + candle_core::cpu::erf::erf_f64(x * std::f64::consts::FRAC_1_SQRT_2))) as f32
            }
            DenseActivation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            DenseActivation::Silu => x / (1.0 + (-x).exp()),
        }
    }

    /// All activation functions.
    pub const ALL: [Self; 6] =
        [Self::Identity, Self::Tanh, Self::Relu, Self::Gelu, Self::Sigmoid, Self::Silu];

    /// Returns the name of the PyTorch class in the model's files.
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

/// Prompts of a model, which are added before texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompts {
    /// Prompts by name. `query` and `document` always exist, but their text can be empty.
    pub texts: BTreeMap<String, String>,
    /// Name of the default prompt; `None` if there is none.
    pub default: Option<String>,
}

impl Prompts {
    /// Returns the text of the prompt with this name. `None` selects the default prompt; the text is empty if there is
    /// no default. Fails if the name is unknown.
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
