//! Who waits for a generation.

use crate::vectors::Kind;

/// A part of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Records are read, for the keys of their vectors; counted in dialogues.
    Reading,
    /// The different vectors of a kind are linked to their neighbours.
    Linking(Kind),
    /// Recall is measured, query by query.
    Measuring(Kind),
}

/// Is asked now and then whether to go on, and told how far it is. Anything that can be asked is one that does not listen.
pub trait Progress: Sync {
    /// Whether to end.
    fn stop(&self) -> bool;

    /// So much of a step is done.
    fn done(&self, _step: Step, _done: u64, _of: u64) {}
}

impl<F: Fn() -> bool + Sync> Progress for F {
    fn stop(&self) -> bool {
        self()
    }
}

/// The part of the work that is of one kind.
pub(super) struct Of<'a>(pub(super) Kind, pub(super) &'a dyn Progress);

impl turnwise_nearest::Progress for Of<'_> {
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
