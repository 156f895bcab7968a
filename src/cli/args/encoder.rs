//! Arguments that select and configure the encoder.

use clap::{Args, ValueEnum};

use super::parse_value;
use crate::cli::encoders::Given;
use turnwise_encoder::{
    DeviceChoice, DialogueMode, DialoguePooling, Precision,
    folder::PoolingMode,
    transformer::{Layers, Settings, Tokens},
};

/// Options that override the configuration files of a transformer.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Encoder")]
pub(crate) struct TokenArgs {
    /// How to pool the token vectors of a text [default: set by the model]
    #[arg(long, value_enum, value_name = "POOLING")]
    pub(crate) token_pooling: Option<PoolingMode>,
    /// Layers to pool: last, a number, or first-last [default: last]
    ///
    /// Layer 0 is the embeddings. `first-last` averages the first and the last layer; `first-last=0.4,0.6` gives them
    /// weights.
    #[arg(long, value_name = "LAYERS", value_parser = parse_value::<Layers>)]
    pub(crate) layers: Option<Layers>,
    /// Maximum number of tokens of a text, or of a window of a dialogue [default: set by the model]
    ///
    /// Longer texts are truncated. Longer dialogues are encoded in several windows.
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<usize>,
}

impl TokenArgs {
    pub(crate) fn given(&self) -> Tokens {
        Tokens { pooling: self.token_pooling, layers: self.layers.clone(), max: self.max_tokens }
    }
}

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Encoder")]
pub(crate) struct EncoderArgs {
    /// Model: a name or a folder
    ///
    /// A name from `turnwise model list`, org/name, org/name@revision, or the name of an imported model. A folder
    /// is written with a slash. Download models with `turnwise model pull`.
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Numeric precision
    #[arg(long, value_enum, value_name = "PRECISION", default_value = "auto")]
    pub(crate) precision: PrecisionArg,
    /// Device to run on: auto, cpu, cuda, cuda:1, metal
    #[arg(long, default_value_t, value_name = "DEVICE", value_parser = parse_value::<DeviceChoice>)]
    pub(crate) device: DeviceChoice,
    /// Name of one of the model's prompts, added before every text
    #[arg(long, value_name = "NAME")]
    pub(crate) prompt: Option<String>,
    /// How to encode a dialogue [default: sequence]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) dialogue_mode: Option<DialogueMode>,
    /// How to pool the parts of a dialogue into one vector [default: mean]
    #[arg(long, value_enum, value_name = "POOLING")]
    pub(crate) pooling: Option<DialoguePooling>,
}

impl EncoderArgs {
    pub(crate) fn given(&self) -> Given {
        Given { prompt: self.prompt.clone(), mode: self.dialogue_mode, pooling: self.pooling }
    }

    /// Settings of a transformer.
    pub(crate) fn settings(&self, precision: Option<Precision>, tokens: Tokens) -> Settings {
        Settings { device: self.device, precision, tokens, ..Settings::default() }
    }

    /// Requested precision; `None` lets the encoder choose.
    pub(crate) fn precision(&self) -> Option<Precision> {
        match self.precision {
            PrecisionArg::Auto => None,
            PrecisionArg::F32 => Some(Precision::F32),
            PrecisionArg::Bf16 => Some(Precision::Bf16),
            PrecisionArg::F16 => Some(Precision::F16),
            PrecisionArg::Int16 => Some(Precision::Int16),
            PrecisionArg::Int8 => Some(Precision::Int8),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum PrecisionArg {
    /// Fastest precision with no measurable loss of search quality: int8 for the default model, else 16 bits
    #[default]
    Auto,
    /// 32-bit floating point
    F32,
    /// 16-bit floating point with the range of f32
    Bf16,
    /// 16-bit floating point; GPUs only
    F16,
    /// 16-bit fixed point
    Int16,
    /// 8-bit fixed point
    Int8,
}
