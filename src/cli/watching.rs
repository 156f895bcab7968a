//! Progress bars of operations with several steps, updated from any thread.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cli::{prelude::*, printer::Printer};
use turnwise_eval::rank;
use turnwise_index::{
    dense::{Progress, Step},
    vectors::Kind,
};
use turnwise_shards::{self as shards, Amount};

/// Shows the progress of the current step of an operation, and reports to the operation whether the user stopped it.
pub(crate) struct StepProgress<'a, S> {
    printer: &'a Printer,
    current: Mutex<Option<Current<'a, S>>>,
}

/// Bar of the current step.
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

/// Shows the progress and the messages of embedding, encoding in shards and migrations.
pub(crate) struct TaskProgress<'a> {
    printer: &'a Printer,
    bar: Mutex<Option<ProgressBar<'a>>>,
    graphs: StepProgress<'a, Step>,
}

impl<'a> TaskProgress<'a> {
    pub(crate) fn new(printer: &'a Printer) -> Self {
        TaskProgress { printer, bar: Mutex::new(None), graphs: StepProgress::new(printer) }
    }

    fn bar(&self) -> MutexGuard<'_, Option<ProgressBar<'a>>> {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for TaskProgress<'_> {
    fn stop(&self) -> bool {
        signals::stopped()
    }

    fn done(&self, step: Step, done: u64, of: u64) {
        self.graphs.done(step, done, of);
    }
}

impl shards::Progress for TaskProgress<'_> {
    fn begin(&self, step: shards::Step, total: Option<u64>, before: u64) {
        let (what, unit) = match step {
            shards::Step::Embedding(Kind::Utterances) => ("embedding", "texts"),
            shards::Step::Embedding(Kind::Dialogues) => ("embedding", "dialogues"),
            shards::Step::Encoding => ("encoding", "dialogues"),
            shards::Step::CheckingShards => ("checking", "shards"),
            shards::Step::Assembling => ("assembling", "rows"),
            shards::Step::CheckingDialogues => ("checking", "dialogues"),
            shards::Step::Reading => ("reading", "dialogues"),
            shards::Step::Copying => ("moving", "dialogues"),
            shards::Step::Indexing => ("indexing", "utterances"),
        };
        *self.bar() = Some(ProgressBar::new(self.printer, what, unit, total).after(before, before));
    }

    fn advance(&self, amount: Amount) {
        let mut bar = self.bar();
        let Some(bar) = bar.as_mut() else { return };
        let rate = |n: u64| rate(n, bar.seconds());
        match (amount.texts, amount.tokens) {
            (0, 0) => {}
            (0, tokens) => bar.set_suffix(format!("{} tokens/s", rate(tokens))),
            (texts, tokens) => bar.set_suffix(format!("{} texts/s, {} tokens/s", rate(texts), rate(tokens))),
        }
        bar.set(amount.done, amount.units);
    }

    fn end(&self) {
        *self.bar() = None;
    }

    fn warn(&self, text: String) {
        match self.bar().as_ref() {
            Some(bar) => bar.suspend(|| self.printer.warn(text)),
            None => self.printer.warn(text),
        }
    }

    fn say(&self, text: String) {
        match self.bar().as_ref() {
            Some(bar) => bar.say(&text),
            None => self.printer.say(text),
        }
    }

    fn detail(&self, text: String) {
        match self.bar().as_ref() {
            Some(bar) => bar.suspend(|| self.printer.detail(text)),
            None => self.printer.detail(text),
        }
    }
}
