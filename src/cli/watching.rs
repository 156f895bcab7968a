//! Bars for what takes several steps, told from any thread.

use std::sync::{Mutex, PoisonError};

use crate::{
    cli::{printer::Printer, progress::Progress, signals},
    eval::rank,
    index::{
        dense::{Step, Watch},
        vectors::Kind,
    },
};

/// Shows how far the step is that something is at, and ends it when somebody interrupts.
pub(crate) struct Watching<'a, S> {
    printer: &'a Printer,
    now: Mutex<Option<(S, Progress<'a>)>>,
}

impl<'a, S: Copy + PartialEq> Watching<'a, S> {
    pub(crate) fn new(printer: &'a Printer) -> Self {
        Watching { printer, now: Mutex::new(None) }
    }

    fn show(&self, step: S, (what, unit): (&'static str, &'static str), done: u64, of: u64) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.as_ref().is_none_or(|(last, _)| *last != step) {
            // The old bar goes before the new one comes.
            now.take();
            *now = Some((step, Progress::new(self.printer, what, unit, Some(of))));
        }
        if let Some((_, progress)) = now.as_mut() {
            progress.set(done, done);
        }
    }
}

impl Watch for Watching<'_, Step> {
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

impl rank::Watch for Watching<'_, rank::Step> {
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
