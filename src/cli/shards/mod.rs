//! Encoding in shards: many processes encode one corpus, each a part of it, and one puts the parts together.
//!
//! ```text
//! DIR or s3://bucket/folder
//!   shard-00003-of-00100-1f0c….arrow   the rows of a shard; its name holds the hash of its bytes
//!   shard-00003-of-00100.json          its record, written last: without it the shard is not there
//!   .shard-00003-of-00100-….part…      what a killed process left; nobody reads it
//! ```
//!
//! Which shard a dialogue is in depends on its id alone, so that any launcher, in any order, makes the same shards. A
//! row is named by what was encoded (see [`turnwise_index::vectors`]), not by where it was said: the same text in two
//! shards is the same row, and putting the shards together drops the second. A data file never changes under its name,
//! so that a shard that is made anew, or by two processes at once, is the old one or the new one, never a mixture.

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
pub(crate) use redo::{again, command};
pub(crate) use shard::{Shard, Shards};
pub(crate) use survey::{Set, survey};
