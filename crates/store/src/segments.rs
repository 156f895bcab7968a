//! The log segments of a snapshot. They are mapped when the snapshot is opened, because a compaction may later
//! remove the files. A mapped file remains readable.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::log::{Position, Segment};
use turnwise_core::error::{Error, Result};

/// The segments of a log up to a position.
pub(super) struct Segments {
    log: PathBuf,
    mapped: Mutex<HashMap<u32, Arc<Segment>>>,
    is_complete: bool,
}

impl Segments {
    /// Maps all segments up to the committed end. A missing segment is not an error here; [`Segments::get`] reports
    /// it.
    pub(super) fn map(log: &Path, end: Position) -> Result<Self> {
        let mut mapped = HashMap::new();
        let mut is_complete = true;
        for number in 1..=end.segment {
            match open(log, number, end) {
                Ok(segment) => drop(mapped.insert(number, Arc::new(segment))),
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    is_complete = false
                }
                Err(e) => return Err(e),
            }
        }
        Ok(Segments { log: log.to_owned(), mapped: Mutex::new(mapped), is_complete })
    }

    /// Returns whether all segments existed.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns a segment and checks its header. `end` is the committed end of the log.
    pub(super) fn get(&self, number: u32, end: Position) -> Result<Arc<Segment>> {
        let known = self.lock().get(&number).cloned();
        let segment = match known {
            Some(segment) => segment,
            None => {
                let segment = Arc::new(open(&self.log, number, end)?);
                self.lock().insert(number, segment.clone());
                segment
            }
        };
        segment.check_header()?;
        Ok(segment)
    }

    /// Removes a segment from the cache after a commit to it. The next [`Segments::get`] maps it again.
    pub(super) fn forget(&self, number: u32) {
        self.lock().remove(&number);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Arc<Segment>>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Maps the committed part of a segment. A writer may truncate the bytes after it at any time.
fn open(log: &Path, number: u32, end: Position) -> Result<Segment> {
    let limit = if number == end.segment { end.offset } else { u64::MAX };
    Segment::map_up_to(log, number, limit)
}
