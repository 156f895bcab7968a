//! Progress and cancellation of long operations.

/// Long operation that reports progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Inserting vectors into the graph.
    Linking,
    /// Measuring recall.
    Measuring,
}

/// Receives progress and can cancel an operation. A closure that returns whether to stop implements it and ignores
/// the progress.
pub trait Progress: Sync {
    /// Returns whether to cancel the operation. Called from time to time.
    fn stop(&self) -> bool;

    /// Reports that `done` of `of` items of a step are finished.
    fn done(&self, _step: Step, _done: usize, _of: usize) {}
}

impl<F: Fn() -> bool + Sync> Progress for F {
    fn stop(&self) -> bool {
        self()
    }
}

/// Returns the error for an operation that [`Progress::stop`] canceled.
pub fn stopped() -> turnwise_core::Error {
    turnwise_core::Error::Interrupted {
        hint: Some("nothing was changed; run `turnwise index build` to start again".to_owned()),
    }
}
