//! Making vectors: of files, and of an index.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{EncoderArgs, ReadArgs, RejectArgs, TokenArgs, parsed};
use crate::cli::{embeddings, shards::Shards};

#[derive(Debug, Args)]
#[command(after_help = EMBED_FORMATS)]
pub(crate) struct EmbedArgs {
    /// Files and folders (walked); `-` is standard input; .gz and .zst are unpacked on the way
    #[arg(required = true, value_name = "INPUT")]
    pub(crate) inputs: Vec<PathBuf>,
    /// The file of vectors; `-` is standard output, as JSON lines
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// The format of OUT; told by its ending if not given
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) to: Option<VectorTarget>,
    /// What becomes a vector
    #[arg(long, value_enum, value_name = "WHAT", default_value = "utterances")]
    pub(crate) of: OneOf,
    #[command(flatten)]
    pub(crate) encoder: EncoderArgs,
    #[command(flatten)]
    pub(crate) tokens: TokenArgs,
    /// Scale every vector to length 1
    #[arg(long)]
    pub(crate) normalize: bool,
    /// Keep the first N numbers of every vector (for models that were trained so)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) dim: Option<u32>,
    #[command(flatten)]
    pub(crate) rejects: RejectArgs,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
}

const EMBED_FORMATS: &str = "\
INPUT may hold one text a line (--from lines), JSON lines of {\"id\", \"text\"} (--from texts-jsonl), or a corpus \
(`corpus formats` lists them). Ids are the numbers of lines (FILE:LINE with several inputs), the ids of records, \
DIALOGUE#TURN, or those of dialogues. OUT keeps the order: .npy with OUT.ids.txt beside it, .safetensors \
(`embeddings`, and `ids` as UTF-8 with a line feed between), .jsonl ({\"id\", \"embedding\"}), .arrow (id, embedding).";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OneOf {
    /// Every text, or every turn
    Utterances,
    /// Every dialogue as a whole
    Dialogues,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnyOf {
    /// Every utterance
    Utterances,
    /// Every dialogue as a whole
    Dialogues,
    /// Each of them
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum VectorTarget {
    /// NumPy, with the ids in a text file beside it
    Npy,
    /// The tensors `embeddings` and `ids`
    Safetensors,
    /// One object a line
    Jsonl,
    /// Arrow IPC
    Arrow,
}

impl From<VectorTarget> for embeddings::Target {
    fn from(target: VectorTarget) -> Self {
        match target {
            VectorTarget::Npy => embeddings::Target::Npy,
            VectorTarget::Safetensors => embeddings::Target::Safetensors,
            VectorTarget::Jsonl => embeddings::Target::Jsonl,
            VectorTarget::Arrow => embeddings::Target::Arrow,
        }
    }
}

#[derive(Debug, Default, Args)]
#[command(after_help = SHARDS)]
pub(crate) struct EncodeArgs {
    /// With --shard: files and folders (walked), or the folder of an index; without any, the index that -i names. With --assemble and --engine: the files and folders that the shards were made of
    #[arg(value_name = "INPUT")]
    pub(crate) inputs: Vec<PathBuf>,
    /// What gets vectors; what the index has already if not given, and both where it has none
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) of: Option<AnyOf>,
    /// Make all vectors anew with another model or other options; the old ones stay in use until that is done
    #[arg(long)]
    pub(crate) replace: bool,
    #[command(flatten)]
    pub(crate) encoder: EncoderArgs,
    #[command(flatten)]
    pub(crate) tokens: TokenArgs,
    #[command(flatten)]
    pub(crate) shards: ShardArgs,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
}

/// Encoding in parts, by many processes.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Shards")]
pub(crate) struct ShardArgs {
    /// Encode this part of the dialogues into files: I of N, counted from 0; several are 3,7-9/100
    #[arg(long, value_name = "I/N", value_parser = parsed::<Shards>, requires = "out", conflicts_with_all = ["assemble", "replace"])]
    pub(crate) shard: Option<Shards>,
    /// Where shards are written: a folder, or s3://, gs://, az://
    #[arg(long, value_name = "PLACE", requires = "shard")]
    pub(crate) out: Option<String>,
    /// The format of a shard
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "arrow", requires = "shard")]
    pub(crate) to: ShardTarget,
    /// Put the shards of this place into the index, once all are there; or, with --engine, the dialogues of INPUT and their vectors into a Milvus
    #[arg(long, value_name = "PLACE", conflicts_with_all = ["of", "model", "precision", "prompt", "dialogue_mode", "pooling", "token_pooling", "layers", "max_tokens"])]
    pub(crate) assemble: Option<String>,
}

const SHARDS: &str = "\
With --shard, INPUT is divided by the ids of its dialogues, and one part is encoded into a file of PLACE. Whoever runs it \
again does what is not done yet. `encode --assemble PLACE -i INDEX` then checks that all parts are there and gives their \
vectors to the index; `encode --assemble PLACE INPUT… --engine ADDRESS` brings the dialogues of INPUT into a Milvus with them, \
and encodes nothing (docs/scale.md).";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ShardTarget {
    /// Arrow IPC
    #[default]
    Arrow,
    /// The tensors `embeddings` and `ids`
    Safetensors,
}

impl From<ShardTarget> for embeddings::Target {
    fn from(target: ShardTarget) -> Self {
        match target {
            ShardTarget::Arrow => embeddings::Target::Arrow,
            ShardTarget::Safetensors => embeddings::Target::Safetensors,
        }
    }
}
