//! The segments that a snapshot reads, mapped when it is opened: a compaction may remove their files, and whoever has
//! them mapped reads on.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::log::{Position, Segment};
use turnwise_core::error::{Error, Result};

/// The segments of a log up to some place.
pub(super) struct Segments {
    log: PathBuf,
    mapped: Mutex<HashMap<u32, Arc<Segment>>>,
    all_there: bool,
}

impl Segments {
    /// Maps all segments up to the end of what is committed. One that is missing is told by whoever needs it.
    pub(super) fn map(log: &Path, end: Position) -> Result<Self> {
        let mut mapped = HashMap::new();
        let mut all_there = true;
        for number in 1..=end.segment {
            match open(log, number, end) {
                Ok(segment) => drop(mapped.insert(number, Arc::new(segment))),
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    all_there = false
                }
                Err(e) => return Err(e),
            }
        }
        Ok(Segments { log: log.to_owned(), mapped: Mutex::new(mapped), all_there })
    }

    /// Whether every segment could be mapped.
    pub(super) fn all_there(&self) -> bool {
        self.all_there
    }

    /// A segment whose header is sound. `end` is that of what is committed.
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

    /// More was committed to a segment: it is mapped anew when it is needed.
    pub(super) fn forget(&self, number: u32) {
        self.lock().remove(&number);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Arc<Segment>>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What lies behind the end can be cut off at any moment and is not mapped.
fn open(log: &Path, number: u32, end: Position) -> Result<Segment> {
    let limit = if number == end.segment { end.offset } else { u64::MAX };
    Segment::map_up_to(log, number, limit)
}
