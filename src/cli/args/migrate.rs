//! Arguments of `turnwise migrate`.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    /// Destination of the copy
    ///
    /// With -i, copies that index to Milvus: ADDRESS is a collection, such as milvus://localhost:19530/chats. With
    /// --engine, copies that collection to a new local index: INDEX is its name or path.
    #[arg(long, value_name = "ADDRESS|INDEX")]
    pub(crate) to: String,
    /// Replace an existing Milvus collection
    ///
    /// Without this flag, the command refuses to copy to a collection that exists. The old collection stays in use until
    /// the copy is complete. An existing local index is never replaced.
    #[arg(long)]
    pub(crate) replace: bool,
    /// Number of sample searches to run on the original and on the copy, to compare their results
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) samples: usize,
}
