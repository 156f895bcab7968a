//! Reports of a run to the program that started it.

use turnwise_core::error::{Error, Result};
use turnwise_eval::rank;

/// Receives the progress and the messages of a run, and can stop it. All methods have a default implementation.
///
/// The observer `()` ignores all reports and never stops the run.
pub trait RunObserver: Sync {
    /// Returns true to stop the run. The run saves the completed steps in a checkpoint, and returns
    /// [`Error::Interrupted`].
    fn should_stop(&self) -> bool {
        false
    }

    /// Receives the progress of a stage.
    fn progress(&self, _progress: &Progress<'_>) {}

    /// Receives a message about the run, such as the result of an evaluation.
    fn note(&self, _message: &str) {}

    /// Receives a debug message.
    fn detail(&self, _message: &str) {}

    /// Receives a warning.
    fn warn(&self, _message: &str) {}
}

impl RunObserver for () {}

/// Returns [`Error::Interrupted`] with this hint if the observer stops the run.
pub(super) fn check(observer: &dyn RunObserver, hint: Option<&str>) -> Result<()> {
    match observer.should_stop() {
        true => Err(Error::Interrupted { hint: hint.map(str::to_owned) }),
        false => Ok(()),
    }
}

/// A stage of a run that reports progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Reading the dialogues. The unit of `done` is bytes.
    Reading,
    /// Encoding dialogues for a teacher (a model of dialogue similarity).
    Encoding,
    /// Computing lexical vectors for a teacher (a model of dialogue similarity).
    FittingWords,
    /// Mining hard negatives.
    Mining,
    /// Taking gradient steps.
    Training,
    /// Encoding utterances and their contexts for a `context-cca` layer.
    EncodingContexts,
    /// A stage of an evaluation.
    Evaluating(rank::Step),
}

/// Progress of a stage.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The stage that is in progress.
    pub stage: Stage,
    /// Amount of work done so far. The unit depends on the stage: bytes, steps or items.
    pub done: u64,
    /// Total amount of work, in the unit of `done`; `None` if unknown.
    pub total: Option<u64>,
    /// Number of items processed so far, for example training examples.
    pub items: u64,
    /// Details, such as the loss; can be empty.
    pub detail: &'a str,
}

impl Progress<'_> {
    /// Creates the progress of a stage that measures its work in items.
    pub(super) fn of(stage: Stage, done: usize, total: usize) -> Self {
        Progress { stage, done: done as u64, total: Some(total as u64), items: done as u64, detail: "" }
    }
}

/// Forwards the progress of an evaluation to the observer of the run.
pub(super) struct EvaluationProgress<'a>(pub(super) &'a dyn RunObserver);

impl rank::Progress for EvaluationProgress<'_> {
    fn stop(&self) -> bool {
        self.0.should_stop()
    }

    fn done(&self, step: rank::Step, done: usize, all: usize) {
        self.0.progress(&Progress::of(Stage::Evaluating(step), done, all));
    }
}
