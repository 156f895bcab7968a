//! Reports of a run to the program that started it.

use turnwise_core::error::{Error, Result};
use turnwise_eval::rank;

/// Receives the progress and the messages of a run, and can stop it. All methods have a default.
///
/// `()` ignores all reports and never stops.
pub trait RunObserver: Sync {
    /// Whether to stop. A stopped run saves its steps and returns [`Error::Interrupted`].
    fn should_stop(&self) -> bool {
        false
    }

    /// Receives the progress of a stage.
    fn progress(&self, _progress: &Progress<'_>) {}

    /// Receives a message about the run, such as the result of an evaluation.
    fn note(&self, _message: &str) {}

    /// Receives a message that only matters when a problem is investigated.
    fn detail(&self, _message: &str) {}

    /// Receives a warning.
    fn warn(&self, _message: &str) {}
}

impl RunObserver for () {}

/// Returns an error with this hint if the observer wants to stop.
pub(super) fn check(observer: &dyn RunObserver, hint: Option<&str>) -> Result<()> {
    match observer.should_stop() {
        true => Err(Error::Interrupted { hint: hint.map(str::to_owned) }),
        false => Ok(()),
    }
}

/// A stage of a run that takes long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Reading the dialogues. The amount is in bytes, if known.
    Reading,
    /// Encoding dialogues for a teacher.
    Encoding,
    /// Fitting lexical vectors for a teacher.
    FittingWords,
    /// Mining hard negatives.
    Mining,
    /// Gradient steps.
    Training,
    /// Encoding utterances and their contexts for a layer.
    ReadingContexts,
    /// A step of an evaluation.
    Evaluating(rank::Step),
}

/// Progress of a stage.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The stage.
    pub stage: Stage,
    /// Amount of work that is done.
    pub done: u64,
    /// Total amount of work, if known.
    pub total: Option<u64>,
    /// Number of processed items, for example training examples.
    pub items: u64,
    /// Details, such as the loss; can be empty.
    pub detail: &'a str,
}

impl Progress<'_> {
    /// Progress of a stage whose amount of work is its number of items.
    pub(super) fn of(stage: Stage, done: usize, total: usize) -> Self {
        Progress { stage, done: done as u64, total: Some(total as u64), items: done as u64, detail: "" }
    }
}

/// Forwards the progress of an evaluation.
pub(super) struct EvaluationProgress<'a>(pub(super) &'a dyn RunObserver);

impl rank::Progress for EvaluationProgress<'_> {
    fn stop(&self) -> bool {
        self.0.should_stop()
    }

    fn done(&self, step: rank::Step, done: usize, all: usize) {
        self.0.progress(&Progress::of(Stage::Evaluating(step), done, all));
    }
}
