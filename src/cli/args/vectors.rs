//! Arguments of `turnwise embed` and `turnwise encode`.

use std::path::PathBuf;

use clap::{Arg, Args, ValueEnum};

use super::{EncoderArgs, ReadArgs, RejectArgs, TokenArgs, encoder::describe_for_encode, parse_value};
use turnwise_index::vectors::Kind;
use turnwise_shards::{shard::Shards, vector_files::VectorFileFormat};

#[derive(Debug, Args)]
#[command(after_help = EMBED_FORMATS, mut_args(describe_for_embed))]
pub(crate) struct EmbedArgs {
    /// Files and folders to read; `-` is standard input
    ///
    /// Folders are read recursively. Files that end in .gz or .zst are decompressed.
    #[arg(required = true, value_name = "INPUT")]
    pub(crate) inputs: Vec<PathBuf>,
    /// Output file; `-` writes JSON lines to standard output
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Output format [default: by the extension of OUT]
    ///
    /// The extensions are .npy, .safetensors, .jsonl or .ndjson, and .arrow, .feather or .ipc. JSON lines can be
    /// compressed: .jsonl.gz or .jsonl.zst.
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) to: Option<VectorFileFormat>,
    /// What to encode: each utterance, or each dialogue as a whole
    #[arg(long, value_enum, value_name = "UNIT", default_value = "utterances")]
    pub(crate) of: UnitArg,
    #[command(flatten)]
    pub(crate) encoder: EncoderArgs,
    #[command(flatten)]
    pub(crate) tokens: TokenArgs,
    /// Normalize every vector to length 1
    ///
    /// The dot product of two normalized vectors is their cosine. Many models normalize their vectors themselves.
    #[arg(long)]
    pub(crate) normalize: bool,
    /// Truncate every vector to its first N dimensions
    ///
    /// For models trained with Matryoshka representation learning. --normalize applies after the truncation.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) dim: Option<u32>,
    #[command(flatten)]
    pub(crate) rejects: RejectArgs,
    #[command(flatten)]
    pub(crate) read: ReadArgs,
}

/// Replaces the help text of `--max-errors`, which has a different effect in `turnwise embed`. Returns other options
/// unchanged.
fn describe_for_embed(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "max_errors" => arg.long_help(
            "Stop after more than N rejected records [default: 100]\n\n\
             OUT is not written in this case.\n\n\
             The setting `ingest.max_errors` changes the default.",
        ),
        _ => arg,
    }
}

const EMBED_FORMATS: &str = "\
INPUT and the ID of each vector (`turnwise corpus formats` lists the formats of dialogues):
  one text per line (detected; or --from lines)  line number; FILE:LINE with several inputs
  {\"id\", \"text\"} per line (--from texts-jsonl)   id; without an id, as above
  dialogues, --of utterances                     DIALOGUE#TURN
  dialogues, --of dialogues                      ID of the dialogue

OUT has the vectors in the order of the input:
  .npy                   a matrix; the IDs are in a text file: vectors.ids.txt for vectors.npy
  .safetensors           the tensors `embeddings` and `ids` (UTF-8 text, one ID per line)
  .jsonl                 {\"id\", \"embedding\"} per line
  .arrow                 the columns `id` and `embedding`";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum UnitArg {
    /// Each turn of a dialogue; in `turnwise embed`, also each text of a file of texts
    Utterances,
    /// Each dialogue as a whole
    Dialogues,
}

impl From<UnitArg> for Kind {
    fn from(unit: UnitArg) -> Self {
        match unit {
            UnitArg::Utterances => Kind::Utterances,
            UnitArg::Dialogues => Kind::Dialogues,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum UnitsArg {
    /// Each utterance
    Utterances,
    /// Each dialogue as a whole
    Dialogues,
    /// Utterances and dialogues
    Both,
}

#[derive(Debug, Default, Args)]
#[command(after_help = SHARDS, mut_args(describe_for_encode))]
pub(crate) struct EncodeArgs {
    /// Files and folders of dialogues; only with --shard, or with --assemble and --engine
    ///
    /// Usually, there is no INPUT: the dialogues of the index are encoded. With --shard: the dialogues to encode, or the
    /// folder of an index [default: the index given by -i]. With --assemble and --engine: the files and folders that
    /// the shards were made from.
    #[arg(value_name = "INPUT")]
    pub(crate) inputs: Vec<PathBuf>,
    /// What to encode [default: the kinds that already have vectors; both if there are no vectors]
    #[arg(long, value_enum, value_name = "UNIT")]
    pub(crate) of: Option<UnitsArg>,
    /// Compute all vectors again; required to change the model or its options
    ///
    /// The old vectors stay in use until the new ones are complete.
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

/// Options for encoding in shards, on several machines or processes.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Shards")]
pub(crate) struct ShardArgs {
    /// Encode only shard I of N, such as 0/4, and write it to files in --out; I counts from 0
    ///
    /// Requires --out. Several shards can be given: 3,7-9/100 means the shards 3, 7, 8 and 9 of 100.
    #[arg(long, value_name = "I/N", value_parser = parse_value::<Shards>, requires = "out", conflicts_with_all = ["assemble", "replace"])]
    pub(crate) shard: Option<Shards>,
    /// Place to write the shards to: a folder or an s3://, gs:// or az:// URL
    #[arg(long, value_name = "PLACE", requires = "shard")]
    pub(crate) out: Option<String>,
    /// File format of a shard
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "arrow", requires = "shard")]
    pub(crate) to: ShardTarget,
    /// Add the vectors of the shards in PLACE to the index, which must contain the dialogues
    ///
    /// PLACE is the value of --out; all its shards must be complete. With --engine, writes the dialogues of INPUT and
    /// their vectors to Milvus instead.
    #[arg(long, value_name = "PLACE", conflicts_with_all = ["of", "model", "precision", "prompt", "dialogue_mode", "pooling", "token_pooling", "layers", "max_tokens"])]
    pub(crate) assemble: Option<String>,
}

const SHARDS: &str = "\
Encoding in shards: --shard splits INPUT by dialogue ID, encodes one part and writes it to PLACE. To continue after an \
interruption, run the same command again:
  turnwise encode --shard 0/4 --out PLACE INPUT…                 encode the first of four shards

When all shards are complete, add them to an index or to Milvus, without encoding anything again:
  turnwise encode --assemble PLACE -i INDEX                      add the vectors to an index
  turnwise encode --assemble PLACE INPUT… --engine ADDRESS       write dialogues and vectors to Milvus

See docs/scale.md.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ShardTarget {
    /// Arrow IPC
    #[default]
    Arrow,
    /// Safetensors, with the tensors `embeddings` and `ids`
    Safetensors,
}

impl From<ShardTarget> for VectorFileFormat {
    fn from(target: ShardTarget) -> Self {
        match target {
            ShardTarget::Arrow => VectorFileFormat::Arrow,
            ShardTarget::Safetensors => VectorFileFormat::Safetensors,
        }
    }
}
