//! Number of live and dead bytes in the log.

use serde::Serialize;

use crate::{Snapshot, frame::Kind, log::Position};
use turnwise_core::error::Result;

/// Size of the log's put and delete frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Weight {
    /// Bytes of live dialogues.
    pub live_bytes: u64,
    /// Bytes of deleted or replaced dialogues and of the delete frames.
    pub dead_bytes: u64,
    /// Number of frames counted in `dead_bytes`.
    pub dead_frames: u64,
}

impl Snapshot {
    /// Measures the live and dead bytes of the log. Reads the whole log. `progress` receives the number of live
    /// dialogues read so far.
    pub fn weigh(&self, progress: &mut dyn FnMut(u64)) -> Result<Weight> {
        let mut weight = Weight::default();
        let mut walk = self.walk(Position::START);
        let mut live = 0;
        while let Some(found) = walk.find(|frame| frame.kind != Kind::Commit) {
            let (frame, ..) = found?;
            if self.is_live(&frame) {
                weight.live_bytes += frame.bytes();
                live += 1;
                progress(live);
            } else {
                weight.dead_bytes += frame.bytes();
                weight.dead_frames += 1;
            }
        }
        Ok(weight)
    }
}
