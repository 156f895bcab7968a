//! Encoding of large corpora: vector files, encoding in shards, and copies to and from Milvus.
//!
//! - [`vector_files`] writes vectors with ids to files, in common formats.
//! - [`embed`](mod@embed) encodes texts or dialogues and writes the vectors to a file. It needs no index.
//! - [`encode`] encodes a corpus in shards. Many processes, on any machines, encode one shard each.
//! - [`assemble`] adds the vectors of all shards to an index. `assemble_milvus` (feature `milvus`) writes them to
//!   Milvus, together with the dialogues.
//! - `migrate` (feature `milvus`) copies an index to Milvus, or a collection in Milvus to an index.
//! - `reencode_milvus` (feature `milvus`) encodes the dialogues in Milvus again, with a different encoder.
//!
//! ```text
//! DIR or s3://bucket/folder
//!   shard-00003-of-00100-1f0c….arrow   the rows of a shard; the name contains a content hash
//!   shard-00003-of-00100.json          its manifest, written last: without it the shard does not exist
//!   .shard-00003-of-00100-….part…      leftover of a killed process; never read
//! ```
//!
//! The shard of a dialogue depends only on its id, so the shards can be encoded in any order, on any machine. A row is
//! a vector with an id. The id depends only on the encoded text (see [`turnwise_index::vectors`]). If two shards
//! contain the same text, their rows have the same id, and assembling keeps only one of them.
//!
//! A data file never changes after it gets its name. If a shard is created again, or by two processes at once, readers
//! see exactly one of the versions, and this version is complete.
//!
//! ```
//! use turnwise_core::ids::DialogueId;
//! use turnwise_shards::shard::{Shard, Shards};
//!
//! # fn main() -> turnwise_core::Result<()> {
//! let shards: Shards = "0-2/3".parse()?;
//! let id = DialogueId::new("call-17")?;
//! assert_eq!(shards.iter().filter(|shard| shard.holds(&id)).count(), 1);
//! # Ok(())
//! # }
//! ```

pub mod assemble;
#[cfg(feature = "milvus")]
pub mod assemble_milvus;
pub mod embed;
pub mod encode;
mod folder;
pub mod inputs;
mod manifest;
#[cfg(feature = "milvus")]
pub mod migrate;
#[cfg(feature = "remote")]
mod object_store;
mod progress;
#[cfg(feature = "milvus")]
pub mod reencode_milvus;
pub mod shard;
mod survey;
pub mod vector_files;

pub use folder::{FileEntry, Folder, TemporaryFile, open_folder};
pub use manifest::{DataFile, ShardManifest};
pub use progress::{Amount, Progress, Step};
