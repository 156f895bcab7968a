//! Which encoder, and how it is to run.

use clap::{Args, ValueEnum};

use super::parsed;
use crate::cli::encoders::Given;
use turnwise_encoder::{
    DeviceChoice, DialogueMode, DialoguePooling, Precision,
    folder::PoolingMode,
    transformer::{Layers, Settings, Tokens},
};

/// What a transformer is to do otherwise than its files say.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Encoder")]
pub(crate) struct TokenArgs {
    /// How the tokens of a text become one vector, instead of the model's way
    #[arg(long, value_enum, value_name = "POOLING")]
    pub(crate) token_pooling: Option<TokenPoolingArg>,
    /// Which layers are pooled: last, a number (0 is the embeddings), or first-last=0.4,0.6
    #[arg(long, value_name = "LAYERS", value_parser = parsed::<Layers>)]
    pub(crate) layers: Option<Layers>,
    /// Tokens a text or a window of a dialogue may have
    #[arg(long, value_name = "N")]
    pub(crate) max_tokens: Option<usize>,
}

impl TokenArgs {
    pub(crate) fn given(&self) -> Tokens {
        Tokens {
            pooling: self.token_pooling.map(Into::into),
            layers: self.layers.clone(),
            max: self.max_tokens,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TokenPoolingArg {
    /// The first token
    Cls,
    /// The mean of all
    Mean,
    /// The greatest of each column
    Max,
    /// The sum over the root of their number
    MeanSqrtLen,
    /// The mean, later ones weighing more
    WeightedMean,
    /// The last token
    LastToken,
}

impl From<TokenPoolingArg> for PoolingMode {
    fn from(pooling: TokenPoolingArg) -> Self {
        match pooling {
            TokenPoolingArg::Cls => PoolingMode::Cls,
            TokenPoolingArg::Mean => PoolingMode::Mean,
            TokenPoolingArg::Max => PoolingMode::Max,
            TokenPoolingArg::MeanSqrtLen => PoolingMode::MeanSqrtLen,
            TokenPoolingArg::WeightedMean => PoolingMode::WeightedMean,
            TokenPoolingArg::LastToken => PoolingMode::LastToken,
        }
    }
}

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Encoder")]
pub(crate) struct EncoderArgs {
    /// The model: a folder, or a name
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// In which numbers it computes
    #[arg(long, value_enum, value_name = "PRECISION", default_value = "auto")]
    pub(crate) precision: PrecisionArg,
    /// Where it computes: auto, cpu, cuda, cuda:1, metal
    #[arg(long, default_value_t, value_name = "DEVICE", value_parser = parsed::<DeviceChoice>)]
    pub(crate) device: DeviceChoice,
    /// One of the model's prompts, put in front of every text
    #[arg(long, value_name = "NAME")]
    pub(crate) prompt: Option<String>,
    /// What a dialogue is to the encoder
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) dialogue_mode: Option<DialogueModeArg>,
    /// How the parts of a dialogue become one vector
    #[arg(long, value_enum, value_name = "POOLING")]
    pub(crate) pooling: Option<PoolingArg>,
}

impl EncoderArgs {
    pub(crate) fn given(&self) -> Given {
        Given {
            prompt: self.prompt.clone(),
            mode: self.dialogue_mode.map(Into::into),
            pooling: self.pooling.map(Into::into),
        }
    }

    /// How a transformer is to run.
    pub(crate) fn settings(&self, precision: Option<Precision>, tokens: Tokens) -> Settings {
        Settings { device: self.device, precision, tokens, ..Settings::default() }
    }

    /// `None` is the encoder's own choice.
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
    /// The fastest that was measured to find as well: int8 for the default model, else 16 bits
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DialogueModeArg {
    /// One sequence; windows of whole turns where it is longer than the model takes
    Sequence,
    /// The mean of the vectors of its utterances
    Utterances,
}

impl From<DialogueModeArg> for DialogueMode {
    fn from(mode: DialogueModeArg) -> Self {
        match mode {
            DialogueModeArg::Sequence => DialogueMode::Sequence,
            DialogueModeArg::Utterances => DialogueMode::Utterances,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PoolingArg {
    /// The mean of all
    Mean,
    /// The sum, over the speakers, of the mean of each one's parts
    Interlocutors,
    /// The mean of the parts of whoever speaks first
    FirstSpeaker,
    /// The mean of the parts of all others
    OtherSpeakers,
}

impl From<PoolingArg> for DialoguePooling {
    fn from(pooling: PoolingArg) -> Self {
        match pooling {
            PoolingArg::Mean => DialoguePooling::Mean,
            PoolingArg::Interlocutors => DialoguePooling::Interlocutors,
            PoolingArg::FirstSpeaker => DialoguePooling::FirstSpeaker,
            PoolingArg::OtherSpeakers => DialoguePooling::OtherSpeakers,
        }
    }
}
