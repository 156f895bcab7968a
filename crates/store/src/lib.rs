//! Durable storage for dialogues.
//!
//! An index is a folder. The source of truth is an append-only, checksummed log of all puts and deletes. Everything
//! else can be rebuilt from the log: the directory tables, a copy of the records in the embedded database sled
//! ([`records`]), and the search indexes. The directory tables map each dialogue id to a position in the log.
//!
//! * **One writer** ([`Store`]) at a time, enforced by a kernel lock. The lock file names its holder.
//! * **Any number of readers** ([`Snapshot`]), in any number of processes. Each reader sees the state of the index
//!   after one batch. Later batches do not change this view.
//! * A batch is acknowledged after it is flushed to disk. Readers see a batch as a whole or not at all.
//! * A crash loses no acknowledged batch and needs no manual recovery. The next writer truncates an incomplete batch at
//!   the end of the log. It also brings the tables and sled up to date.
//! * Deleted and replaced records stay in the log until the next compaction ([`compact`]).
//!
//! ```
//! use turnwise_core::ids::DialogueId;
//! use turnwise_corpus::{Dialogue, Role};
//! use turnwise_store::{Prepared, Snapshot, Store};
//!
//! # fn main() -> turnwise_core::Result<()> {
//! # let folder = std::env::temp_dir().join(format!("turnwise-store-doc-{}", std::process::id()));
//! let mut dialogue = Dialogue::new(DialogueId::new("deliveries-001")?);
//! dialogue.push("Ann", Role::User, "Where is my parcel?");
//! dialogue.check().map_err(turnwise_core::Error::data)?;
//!
//! let mut store = Store::open_or_create(&folder, "the name of this program")?;
//! store.put(&Prepared::new(&dialogue)?)?;
//! store.commit(None)?;
//! store.close()?;
//!
//! let snapshot = Snapshot::open(&folder)?;
//! assert_eq!(snapshot.get(&dialogue.id)?, Some(dialogue));
//! # std::fs::remove_dir_all(&folder).ok();
//! # Ok(())
//! # }
//! ```

pub mod backup;
pub mod compact;
mod directory;
mod frame;
pub mod ingest;
pub mod lock;
mod log;
mod manifest;
pub mod records;
pub mod repair;
mod snapshot;
mod table;
mod tail;
pub mod verify;
mod writer;

pub use compact::LogUsage;
pub use directory::KeyMap;
pub use frame::{IngestMark, Prepared, Totals};
pub use log::Position;
pub use manifest::{Checkpoint, IndexPaths, Manifest};
pub use snapshot::{Change, Changes, LiveRecords, Record, Snapshot, find_by};
pub use writer::{PutOutcome, Store};
