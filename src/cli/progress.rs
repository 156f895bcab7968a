//! Progress of long commands: a bar on a terminal, otherwise a line every few seconds. `--no-progress` disables both.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{HumanDuration, ProgressState, ProgressStyle};

use crate::cli::{
    prelude::*,
    printer::{Printer, rate},
};
use turnwise_eval::rank;
use turnwise_index::{
    dense::{Progress, Step},
    vectors::Kind,
};
use turnwise_shards::{self as shards, Amount};

const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// Display of the progress of a long operation: a bar, lines of text, or nothing.
pub(crate) struct ProgressBar<'a> {
    printer: &'a Printer,
    style: Style,
    what: &'static str,
    unit: &'static str,
    total: Option<u64>,
    /// Values of `done` and `units` at the start. They do not count toward the speed and the remaining time.
    before: (u64, u64),
    /// Text to print after the speed.
    suffix: String,
    started: Instant,
    last: Instant,
}

/// How progress is shown.
enum Style {
    Off,
    Bar(indicatif::ProgressBar),
    Plain,
}

impl<'a> ProgressBar<'a> {
    /// Starts showing progress. `total` is the final value of `done` in [`ProgressBar::set`]; `None` if unknown.
    pub(crate) fn new(
        printer: &'a Printer,
        what: &'static str,
        unit: &'static str,
        total: Option<u64>,
    ) -> Self {
        let style = match printer.progress() {
            None => Style::Off,
            Some(false) => Style::Plain,
            Some(true) => Style::Bar(bar(what, total)),
        };
        let now = Instant::now();
        ProgressBar {
            printer,
            style,
            what,
            unit,
            total,
            before: (0, 0),
            suffix: String::new(),
            started: now,
            last: now,
        }
    }

    /// Starts the display at the progress that an earlier run reached. That progress does not count toward the speed.
    pub(crate) fn after(mut self, done: u64, units: u64) -> Self {
        self.before = (done, units);
        if let Style::Bar(bar) = &self.style {
            bar.set_position(done);
            bar.reset_eta();
        }
        self
    }

    /// Sets a text to print after the speed, beginning with the next update.
    pub(crate) fn set_suffix(&mut self, suffix: String) {
        self.suffix = format!(", {suffix}");
    }

    /// Updates the progress. `done` is compared with the total given to [`ProgressBar::new`]. `units` is the number of
    /// finished units, such as dialogues, from which the speed is computed.
    pub(crate) fn set(&mut self, done: u64, units: u64) {
        let rate = rate(units.saturating_sub(self.before.1), self.seconds());
        match &self.style {
            Style::Off => {}
            Style::Bar(bar) => {
                bar.set_position(done.min(self.total.unwrap_or(u64::MAX)));
                bar.set_message(format!("{} {}, {rate}/s{}", grouped(units), self.unit, self.suffix));
            }
            Style::Plain if self.last.elapsed() >= PLAIN_EVERY => {
                self.last = Instant::now();
                // The remaining time cannot be estimated from the first few items, which can be slow.
                let has_estimate =
                    |total: &u64| *total > 0 && done - self.before.0.min(done) > total / ESTIMATE_AFTER;
                let left = self.total.filter(has_estimate).map(|total| {
                    let fraction = (done as f64 / total as f64).min(1.0);
                    let left = total.saturating_sub(done) as f64 / (done - self.before.0) as f64;
                    let seconds = self.seconds() * left;
                    format!(", {:.0}%, about {seconds:.0} s left", fraction * 100.0)
                });
                let ProgressBar { what, unit, suffix, .. } = self;
                let (units, left) = (grouped(units), left.unwrap_or_default());
                self.printer.say(format!("{what}: {units} {unit}, {rate}/s{suffix}{left}"));
            }
            Style::Plain => {}
        }
    }

    /// Prints a line above the bar.
    pub(crate) fn say(&self, text: &str) {
        self.suspend(|| self.printer.say(text));
    }

    /// Hides the bar while `print` prints.
    pub(crate) fn suspend(&self, print: impl FnOnce()) {
        match &self.style {
            Style::Bar(bar) => bar.suspend(print),
            _ => print(),
        }
    }

    /// Returns the seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}

impl Drop for ProgressBar<'_> {
    fn drop(&mut self) {
        if let Style::Bar(bar) = &self.style {
            bar.finish_and_clear();
        }
    }
}

/// Without a terminal, the remaining time is printed only after 1/200 of the total is done. Earlier estimates would be
/// inaccurate.
const ESTIMATE_AFTER: u64 = 200;

/// Writes the remaining time, except at the start.
fn left(state: &ProgressState, out: &mut dyn fmt::Write) {
    if state.pos() > 0 {
        let _ = write!(out, "  {:#} left", HumanDuration(state.eta()));
    }
}

fn bar(what: &'static str, total: Option<u64>) -> indicatif::ProgressBar {
    let (bar, template) = match total {
        Some(total) => {
            (indicatif::ProgressBar::new(total), "{prefix} {bar:30.cyan/dim} {percent:>3}%  {msg}{left}")
        }
        None => (indicatif::ProgressBar::new_spinner(), "{prefix} {spinner}  {msg}  {elapsed}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.with_key("left", left));
    }
    bar.set_prefix(what);
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// Shows the progress of the current step of an operation. Also reports to the operation whether the user requested a
/// stop.
pub(crate) struct StepProgress<'a, S> {
    printer: &'a Printer,
    current: Mutex<Option<Current<'a, S>>>,
}

/// Progress bar of the current step.
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
        // If a step starts again for different data, `done` is much smaller. If threads report out of order, it is only
        // slightly smaller.
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

/// Returns the displayed name of an evaluation step and the unit of its progress.
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

/// Shows the progress and the messages of three operations: embedding, encoding in shards, and migrations.
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
