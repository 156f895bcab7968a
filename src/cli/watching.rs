//! Bars for what takes several steps, told from any thread.

use std::sync::{Mutex, PoisonError};

use crate::cli::{printer::Printer, progress::ProgressBar, signals};
use turnwise_eval::rank;
use turnwise_index::{
    dense::{Progress, Step},
    vectors::Kind,
};

/// Shows how far the step is that something is at, and ends it when somebody interrupts.
pub(crate) struct Watching<'a, S> {
    printer: &'a Printer,
    now: Mutex<Option<Now<'a, S>>>,
}

/// The step that something is at.
struct Now<'a, S> {
    step: S,
    done: u64,
    of: u64,
    progress: ProgressBar<'a>,
}

impl<'a, S: Copy + PartialEq> Watching<'a, S> {
    pub(crate) fn new(printer: &'a Printer) -> Self {
        Watching { printer, now: Mutex::new(None) }
    }

    fn show(&self, step: S, (what, unit): (&'static str, &'static str), done: u64, of: u64) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        // The same step may come again, for something else. Threads may tell of what they did a little out of order.
        let goes_on = |now: &Now<'a, S>| now.step == step && now.of == of && now.done <= 2 * done;
        if !now.as_ref().is_some_and(goes_on) {
            // The old bar goes before the new one comes.
            now.take();
            let progress = ProgressBar::new(self.printer, what, unit, Some(of));
            *now = Some(Now { step, done, of, progress });
        }
        if let Some(now) = now.as_mut() {
            now.done = done;
            now.progress.set(done, done);
        }
    }
}

impl Progress for Watching<'_, Step> {
    fn stop(&self) -> bool {
        signals::stopped()
    }

    fn done(&self, step: Step, done: u64, of: u64) {
        let names = match step {
            Step::Reading => ("reading", "dialogues"),
            Step::Linking(Kind::Utterances) => ("linking utterances", "vectors"),
            Step::Linking(Kind::Dialogues) => ("linking dialogues", "vectors"),
            Step::Measuring(_) => ("measuring recall", "queries"),
        };
        self.show(step, names, done, of);
    }
}

impl rank::Progress for Watching<'_, rank::Step> {
    fn stop(&self) -> bool {
        signals::stopped()
    }

    fn done(&self, step: rank::Step, done: usize, of: usize) {
        let names = match step {
            rank::Step::Encoding => ("encoding", "items"),
            rank::Step::FindingTopics => ("finding topics", "rounds"),
            rank::Step::Ranking => ("ranking", "queries"),
            rank::Step::Clustering => ("clustering", "runs"),
            rank::Step::Linking => ("linking", "vectors"),
            rank::Step::Mapping => ("drawing a map", "rounds"),
        };
        self.show(step, names, done as u64, of as u64);
    }
}
