//! Progress reports, messages and cancellation for the long operations of this crate.

use turnwise_core::error::{Error, Reject, Result};
use turnwise_index::vectors::Kind;

use crate::embed::MAX_WARNINGS;

/// Step of an operation of this crate, for progress reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Embedding texts or dialogues into a file.
    Embedding(Kind),
    /// Encoding the dialogues of a shard.
    Encoding,
    /// Verifying the checksums of shards.
    CheckingShards,
    /// Loading the rows of shards.
    Assembling,
    /// Looking up the vectors of the dialogues to ingest, or reading back the copy of a migration.
    CheckingDialogues,
    /// Reading the dialogues of an index before a migration.
    Reading,
    /// Copying dialogues in a migration.
    Copying,
    /// Updating the lexical index after a migration.
    Indexing,
}

/// Amount of work done in a step.
#[derive(Debug, Clone, Copy, Default)]
pub struct Amount {
    /// Progress toward the total of the step: the number of input bytes read, or the same value as `units`.
    pub done: u64,
    /// Number of processed dialogues, rows, shards or utterances.
    pub units: u64,
    /// Number of vectors computed, if `units` counts input dialogues; otherwise 0.
    pub texts: u64,
    /// Number of encoded tokens.
    pub tokens: u64,
}

impl Amount {
    /// Creates an amount for a step in which `done` and `units` count the same things.
    pub fn units(units: u64) -> Self {
        Amount { done: units, units, ..Amount::default() }
    }
}

/// Receives progress and messages, and can cancel an operation. The supertrait receives the progress of graph builds. A
/// closure that returns whether to stop implements both traits and ignores progress and messages.
pub trait Progress: turnwise_index::dense::Progress {
    /// Starts a step. `total` is the expected final value of [`Amount::done`], or `None` if unknown. `before` is the
    /// value that an earlier, interrupted run has already reached, or 0.
    fn begin(&self, _step: Step, _total: Option<u64>, _before: u64) {}

    /// Reports the amount of work that the current step has done so far.
    fn advance(&self, _amount: Amount) {}

    /// Ends the current step.
    fn end(&self) {}

    /// Reports a problem that does not stop the operation.
    fn warn(&self, _text: String) {}

    /// Reports an automatic decision that the user may want to override, such as a detected file format.
    fn say(&self, _text: String) {}

    /// Reports a detail for verbose output.
    fn detail(&self, _text: String) {}
}

impl<F: Fn() -> bool + Sync> Progress for F {}

/// Returns [`Error::Interrupted`] with the hint `hint` if the user has stopped the operation.
pub(crate) fn stop_if_asked(progress: &dyn Progress, hint: impl Into<String>) -> Result<()> {
    match progress.stop() {
        true => Err(Error::Interrupted { hint: Some(hint.into()) }),
        false => Ok(()),
    }
}

/// Counts a rejected record in `rejected`. Warns about the first [`MAX_WARNINGS`] rejected records. If more than
/// `allowed` records are rejected, returns an error whose message ends with `consequence`.
pub(crate) fn count_reject(
    reject: Reject,
    rejected: &mut u64,
    allowed: u64,
    consequence: &str,
    progress: &dyn Progress,
) -> Result<()> {
    *rejected += 1;
    if *rejected <= MAX_WARNINGS {
        progress.warn(format!("rejected: {reject}"));
    }
    if *rejected <= allowed {
        return Ok(());
    }
    let e = Error::TooManyRejects { rejected: *rejected, allowed, last: reject };
    Err(Error::data(format!("{e}; {consequence}")))
}
