//! Progress reports and cancellation of a graph build.

use crate::vectors::Kind;

/// Step of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Reads records to compute the keys of their vectors; counted in dialogues.
    Reading,
    /// Links the distinct vectors of a kind to their neighbors.
    Linking(Kind),
    /// Measures the recall, query by query.
    Measuring(Kind),
}

/// Receives progress reports of a build and can cancel it. A closure that returns a bool is enough for
/// cancellation.
pub trait Progress: Sync {
    /// Returns true to cancel.
    fn stop(&self) -> bool;

    /// Reports progress: `_done` of `_of` items of a step are complete.
    fn done(&self, _step: Step, _done: u64, _of: u64) {}
}

impl<F: Fn() -> bool + Sync> Progress for F {
    fn stop(&self) -> bool {
        self()
    }
}

/// Adapter that forwards the progress of one kind.
pub(super) struct KindProgress<'a>(pub(super) Kind, pub(super) &'a dyn Progress);

impl turnwise_nearest::Progress for KindProgress<'_> {
    fn stop(&self) -> bool {
        self.1.stop()
    }

    fn done(&self, step: turnwise_nearest::Step, done: usize, of: usize) {
        let step = match step {
            turnwise_nearest::Step::Linking => Step::Linking(self.0),
            turnwise_nearest::Step::Measuring => Step::Measuring(self.0),
        };
        self.1.done(step, done as u64, of as u64);
    }
}
