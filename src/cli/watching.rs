//! Progress bars of operations with several steps, updated from any thread.

use std::sync::{Mutex, PoisonError};

use crate::cli::{printer::Printer, progress::ProgressBar, signals};
use turnwise_eval::rank;
use turnwise_index::{
    dense::{Progress, Step},
    vectors::Kind,
};

/// Shows the progress of the current step, and reports interruption by the user.
pub(crate) struct StepProgress<'a, S> {
    printer: &'a Printer,
    current: Mutex<Option<Current<'a, S>>>,
}

/// Current step.
struct Current<'a, S> {
    step: S,
    done: u64,
    of: u64,
    progress: ProgressBar<'a>,
}

impl<'a, S: Copy + PartialEq> StepProgress<'a, S> {
    pub(crate) fn new(printer: &'a Printer) -> Self {
        StepProgress { printer, current: Mutex::new(None) }
    }

    fn show(&self, step: S, (what, unit): (&'static str, &'static str), done: u64, of: u64) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // The same step can start again for different data. Threads can report slightly out of order.
        let continues = |at: &Current<'a, S>| at.step == step && at.of == of && at.done <= 2 * done;
        if !current.as_ref().is_some_and(continues) {
            // Remove the old bar before drawing the new one.
            current.take();
            let progress = ProgressBar::new(self.printer, what, unit, Some(of));
            *current = Some(Current { step, done, of, progress });
        }
        if let Some(current) = current.as_mut() {
            current.done = done;
            current.progress.set(done, done);
        }
    }
}

impl Progress for StepProgress<'_, Step> {
    fn stop(&self) -> bool {
        signals::stopped()
    }

    fn done(&self, step: Step, done: u64, of: u64) {
        let names = match step {
            Step::Reading => ("reading", "dialogues"),
            Step::Linking(Kind::Utterances) => ("building graph of utterances", "vectors"),
            Step::Linking(Kind::Dialogues) => ("building graph of dialogues", "vectors"),
            Step::Measuring(_) => ("measuring recall", "queries"),
        };
        self.show(step, names, done, of);
    }
}

impl rank::Progress for StepProgress<'_, rank::Step> {
    fn stop(&self) -> bool {
        signals::stopped()
    }

    fn done(&self, step: rank::Step, done: usize, of: usize) {
        self.show(step, names_of_rank_step(step), done as u64, of as u64);
    }
}

/// Name and unit of a step of an evaluation.
pub(crate) fn names_of_rank_step(step: rank::Step) -> (&'static str, &'static str) {
    match step {
        rank::Step::Encoding => ("encoding", "items"),
        rank::Step::FindingTopics => ("finding topics", "rounds"),
        rank::Step::Ranking => ("ranking", "queries"),
        rank::Step::Clustering => ("clustering", "runs"),
        rank::Step::Linking => ("building graph", "vectors"),
        rank::Step::Mapping => ("computing map", "rounds"),
    }
}
