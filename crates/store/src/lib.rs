//! Durable storage for dialogues.
//!
//! An index is a folder. Its source of truth is an append-only, checksummed log ([`log`]) of all puts and deletes.
//! Everything else can be rebuilt from the log: the directory tables ([`table`]) that map a dialogue id to its
//! position, the records in sled ([`records`]), and the search indexes.
//!
//! * **One writer** ([`Store`]) at a time, enforced by a kernel lock. The lock file names its holder.
//! * **Any number of readers** ([`Snapshot`]), in any number of processes. Each reader sees the index as of one
//!   batch.
//! * A batch is acknowledged after it is flushed to disk. It is visible as a whole or not at all.
//! * A crash loses no acknowledged batch and needs no manual step. The next writer truncates the unfinished end of
//!   the log and brings the tables and sled up to date.
//! * Deleted and replaced records stay in the log until it is compacted ([`compact`]).

pub mod backup;
pub mod compact;
pub mod directory;

pub mod frame;
pub mod ingest;
pub mod lock;
pub mod log;
pub mod manifest;

pub mod records;
pub mod repair;

mod snapshot;
pub mod table;
mod tail;
pub mod verify;

mod writer;

pub use frame::{IngestMark, Prepared, Totals};
pub use log::Position;
pub use manifest::{IndexPaths, Manifest};

pub use snapshot::{Change, Changes, LiveRecords, Record, Snapshot, find_by};

pub use compact::LogUsage;
pub use writer::{PutOutcome, Store};
