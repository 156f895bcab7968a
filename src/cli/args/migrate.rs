//! Arguments of `turnwise migrate`.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// Destination: a Milvus address, or with --engine a new index
    ///
    /// A Milvus address looks like milvus://localhost:19530/chats. With --engine, the destination is the name or
    /// path of an index that does not exist yet.
    #[arg(long, value_name = "ADDRESS|INDEX")]
    pub(crate) to: String,
    /// Replace the existing collection, in one step when the copy is complete
    #[arg(long)]
    pub(crate) replace: bool,
    /// Number of sample searches to compare on both sides
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) samples: usize,
}
