//! Who waits for what takes long.

/// What takes long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Vectors are linked to their neighbours, one by one.
    Linking,
    /// Recall is measured, query by query.
    Measuring,
}

/// Is asked now and then whether to go on, and told how far it is. Anything that can be asked is one that does not listen.
pub trait Progress: Sync {
    /// Whether to end.
    fn stop(&self) -> bool;

    /// So much of a step is done.
    fn done(&self, _step: Step, _done: usize, _of: usize) {}
}

impl<F: Fn() -> bool + Sync> Progress for F {
    fn stop(&self) -> bool {
        self()
    }
}

/// The error of work that was stopped by [`Progress::stop`].
pub fn stopped() -> turnwise_core::Error {
    turnwise_core::Error::Interrupted {
        hint: Some("`turnwise index build` starts it again; nothing was changed".to_owned()),
    }
}
