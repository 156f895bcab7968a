//! What must not be lost.
//!
//! An index is a folder. Its truth is an append-only, checksummed log ([`log`]) of every dialogue that came and every
//! delete. Everything else can be made anew from it: the directory's tables ([`table`]) that find a dialogue by its id,
//! the records in sled ([`records`]), and the search indexes.
//!
//! * **One writer** ([`Store`]), held by a kernel lock that names its holder; **any number of readers** ([`Snapshot`])
//!   in any number of processes, each seeing the index as of one batch.
//! * A batch is acknowledged once it is flushed to the disk, and is visible whole or not at all.
//! * A kill at any instant loses nothing that was acknowledged and needs no manual step: opening cuts the torn end of
//!   the log and brings the rest up to date.
//! * What was deleted or replaced stays in the log until it is compacted ([`compact`]).

pub mod backup;
pub mod compact;
pub mod directory;
mod find;
pub mod frame;
pub mod ingest;
pub mod lock;
pub mod log;
pub mod manifest;
mod places;
pub mod records;
pub mod repair;
mod segments;
mod snapshot;
pub mod table;
mod tail;
pub mod verify;
mod weight;
mod writer;

pub use find::find_by;
pub use frame::{IngestMark, Prepared, Totals};
pub use log::Position;
pub use manifest::Manifest;
pub use places::Places;
pub use snapshot::{Change, Changes, Live, Record, Snapshot};
pub use weight::Weight;
pub use writer::{Put, Store};
