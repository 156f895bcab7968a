//! Encoding of corpora too large for one process: files of vectors, shards, and copies to and from Milvus.
//!
//! - [`vector_files`] writes vectors with ids to files, in common formats.
//! - [`embed`](mod@embed) writes the vectors of texts or dialogues to a file, without an index.
//! - [`encode`] encodes a corpus in shards: many processes each encode one shard, on any machine.
//! - [`assemble`] adds the vectors of all shards to an index, or with their dialogues to Milvus.
//! - `migrate` (feature `milvus`) copies an index to Milvus, or back.
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
//! identified by the encoded text (see [`turnwise_index::vectors`]), not by its source. The same text in two shards is the
//! same row, and assembling drops the second copy. A data file never changes under its name. If a shard is created again,
//! or by two processes at once, readers see either the old or the new one.
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
