//! Arguments that select and configure the encoder.

use clap::{Arg, Args, ValueEnum};

use super::parse_value;
use crate::cli::encoders::Given;
use turnwise_encoder::{
    DeviceChoice, DialogueMode, DialoguePooling, Precision,
    folder::PoolingMode,
    transformer::{Layers, Settings, Tokens},
};

/// Options that override settings in the model folder of a transformer.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Encoder")]
pub(crate) struct TokenArgs {
    /// How to pool the token vectors of a text or utterance [default: set by the model]
    #[arg(long, value_enum, value_name = "POOLING")]
    pub(crate) token_pooling: Option<PoolingMode>,
    /// Layers whose token vectors are pooled: `last`, the number of a layer, or `first-last` [default: last]
    ///
    /// Layer 0 is the embeddings, layer 1 the first transformer layer. `first-last` averages layer 1 and the last
    /// layer; `first-last=0.4,0.6` gives layer 1 the weight 0.4 and the last layer the weight 0.6.
    #[arg(long, value_name = "LAYERS", value_parser = parse_value::<Layers>)]
    pub(crate) layers: Option<Layers>,
    /// Maximum number of tokens of a text, or of a window of a dialogue [default: set by the model]
    ///
    /// Longer texts are truncated. With --dialogue-mode sequence, a longer dialogue is split into windows of whole turns;
    /// the dialogue still gets one vector.
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
    /// Model: a name or a folder [default: all-MiniLM-L6-v2]
    ///
    /// A name is one from `turnwise model list`, org/name or org/name@revision on the Hugging Face hub, or the name
    /// of an imported model. A folder is written with a slash, such as ./fitted. `turnwise model pull` downloads a
    /// model.
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// Numeric precision of the computation
    ///
    /// `auto` on the CPU: the fastest of f32, int16 and bf16, and for the default model also of int8. The speed is
    /// measured once and kept in the user's cache folder. `auto` on a GPU: bf16.
    ///
    /// f32 gives the same vectors as sentence-transformers; the other precisions are faster and slightly less accurate.
    /// `turnwise model bench` measures the speed and the accuracy of each precision on this machine.
    #[arg(long, value_enum, value_name = "PRECISION", default_value = "auto")]
    pub(crate) precision: PrecisionArg,
    /// Device to run on: auto, cpu, cuda, cuda:N (GPU number N, from 0) or metal
    ///
    /// `auto` is a GPU if this build of turnwise supports one and it can be opened, else the CPU.
    #[arg(long, default_value_t, value_name = "DEVICE", value_parser = parse_value::<DeviceChoice>)]
    pub(crate) device: DeviceChoice,
    /// Name of the model's prompt to put before every text [default: set by the model]
    ///
    /// `turnwise model info` lists the prompts of a model.
    #[arg(long, value_name = "NAME")]
    pub(crate) prompt: Option<String>,
    /// How to encode a dialogue as a whole [default: sequence]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) dialogue_mode: Option<DialogueMode>,
    /// How to pool the parts of a dialogue into one vector [default: mean]
    ///
    /// With --dialogue-mode sequence, the parts are the tokens of the dialogue; with --dialogue-mode
    /// utterances, they are the vectors of its utterances.
    #[arg(long, value_enum, value_name = "POOLING")]
    pub(crate) pooling: Option<DialoguePooling>,
}

/// Replaces the help text of an option that has a different meaning in benchmarks. Returns other options unchanged.
pub(super) fn describe_for_benchmarks(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "precision" => arg.long_help(
            "Numeric precision of the computation\n\n\
             Here, `auto` means f32, which gives the same vectors as sentence-transformers. The other precisions are \
             faster and slightly less accurate. For the ranker `search`, `auto` is the precision that `turnwise ingest` uses.",
        ),
        _ => arg,
    }
}

/// Replaces the help text of an option that has a different meaning in `turnwise model bench`. Returns other options
/// unchanged.
pub(super) fn describe_for_model_bench(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "precision" => arg.long_help(
            "Numeric precision to measure\n\n\
             `auto` measures every precision that the device supports, one after the other.",
        ),
        _ => arg,
    }
}

/// Replaces the help text of an option that has a different meaning in `turnwise encode`. Returns other options
/// unchanged.
pub(super) fn describe_for_encode(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "model" => arg
            .help("Model: a name or a folder [default: the model of the index; else all-MiniLM-L6-v2]")
            .long_help(
                "Model: a name or a folder [default: the model of the index; else all-MiniLM-L6-v2]\n\n\
                 A name is one from `turnwise model list`, org/name or org/name@revision on the Hugging Face hub, or the \
                 name of an imported model. A folder is written with a slash, such as ./fitted. `turnwise model pull` \
                 downloads a model.",
            ),
        "precision" => arg.long_help(
            "Numeric precision of the computation\n\n\
             `auto` is the precision of the vectors in the index. If the index has no vectors, or with --replace, `auto` \
             on the CPU is int8 for the default model, else bf16 or int16, whichever is faster; on a GPU, it is bf16.\n\n\
             f32 gives the same vectors as sentence-transformers; the other precisions are faster and slightly less accurate. \
             `turnwise model bench` measures the speed and the accuracy of each precision on this machine.",
        ),
        _ => arg,
    }
}

impl EncoderArgs {
    pub(crate) fn given(&self) -> Given {
        Given { prompt: self.prompt.clone(), mode: self.dialogue_mode, pooling: self.pooling }
    }

    /// Returns the settings for loading a transformer, with the device from these arguments.
    pub(crate) fn settings(&self, precision: Option<Precision>, tokens: Tokens) -> Settings {
        Settings { device: self.device, precision, tokens, ..Settings::default() }
    }

    /// Returns the precision given by `--precision`; `None` for `auto`.
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
    /// The default, described above
    #[default]
    Auto,
    /// 32-bit floating point
    F32,
    /// 16-bit floating point (bfloat16)
    Bf16,
    /// 16-bit floating point; GPUs only
    F16,
    /// 16-bit fixed point; CPU only
    Int16,
    /// 8-bit fixed point; CPU only
    Int8,
}
