//! Bars for what takes several steps, told from any thread.

use std::sync::{Mutex, PoisonError};

use crate::{
    cli::{printer::Printer, progress::Progress, signals},
    index::{
        dense::{Step, Watch},
        vectors::Kind,
    },
};

/// Shows how far the building of graphs is, and ends it when somebody interrupts.
pub(crate) struct Watching<'a> {
    printer: &'a Printer,
    now: Mutex<Option<(Step, Progress<'a>)>>,
}

impl<'a> Watching<'a> {
    pub(crate) fn new(printer: &'a Printer) -> Self {
        Watching { printer, now: Mutex::new(None) }
    }
}

impl Watch for Watching<'_> {
    fn stop(&self) -> bool {
        signals::stopped()
    }

    fn done(&self, step: Step, done: u64, of: u64) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.as_ref().is_none_or(|(last, _)| *last != step) {
            // The old bar goes before the new one comes.
            now.take();
            let (what, unit) = names(step);
            *now = Some((step, Progress::new(self.printer, what, unit, Some(of))));
        }
        if let Some((_, progress)) = now.as_mut() {
            progress.set(done, done);
        }
    }
}

fn names(step: Step) -> (&'static str, &'static str) {
    match step {
        Step::Reading => ("reading", "dialogues"),
        Step::Linking(Kind::Utterances) => ("linking utterances", "vectors"),
        Step::Linking(Kind::Dialogues) => ("linking dialogues", "vectors"),
        Step::Measuring(_) => ("measuring recall", "queries"),
    }
}
