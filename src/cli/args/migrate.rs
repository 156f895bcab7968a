//! Moving between an index on this machine and a Milvus.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// Where to: milvus://host:19530/chats, or, with --engine, an index that does not exist yet (NAME or PATH)
    #[arg(long, value_name = "ADDRESS|INDEX")]
    pub(crate) to: String,
    /// Put it in the place of what the address stands for, in one step once it is complete
    #[arg(long)]
    pub(crate) replace: bool,
    /// Compare the answers to so many searches
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) samples: usize,
}
