//! How much of a log stands for what is there.

use serde::Serialize;

use crate::{Snapshot, frame::Kind, log::Position};
use turnwise_core::error::Result;

/// The bytes of a log's frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Weight {
    /// Of dialogues that are there.
    pub live_bytes: u64,
    /// Of what was deleted or replaced, and of the deletes themselves.
    pub dead_bytes: u64,
    /// How many frames those are.
    pub dead_frames: u64,
}

impl Snapshot {
    /// Weighs the log. Reads all of it; `progress` is told how many dialogues that are there have been passed.
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
