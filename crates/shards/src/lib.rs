//! Encoding in shards: many processes each encode a part of one corpus, and one process assembles the
//! parts.
//!
//! ```text
//! DIR or s3://bucket/folder
//!   shard-00003-of-00100-1f0c….arrow   the rows of a shard; the name contains a content hash
//!   shard-00003-of-00100.json          its record, written last: without it the shard does not exist
//!   .shard-00003-of-00100-….part…      leftover of a killed process; never read
//! ```
//!
//! The shard of a dialogue depends only on its id, so any launcher creates the same shards in any order. A
//! row is identified by the encoded text (see [`turnwise_index::vectors`]), not by its source. The same text in
//! two shards is the same row, and assembling drops the second copy. A data file never changes under its name.
//! If a shard is created again, or by two processes at once, readers see either the old or the new one.

mod assemble;
mod contents;
mod place;
mod record;
mod redo;
#[cfg(feature = "remote")]
mod remote;
mod shard;
mod survey;

pub(crate) use assemble::{Destination, is_whole, load};
pub(crate) use contents::{Contents, keys, row_id};
pub(crate) use place::{Place, Temporary, open, write};
pub(crate) use record::{Data, FORMAT, Record};
pub(crate) use redo::{command, reusable_args};
pub(crate) use shard::{Shard, Shards};
pub(crate) use survey::{Set, survey};
