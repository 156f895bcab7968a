//! Progress of long commands: a bar on a terminal, otherwise a line every few seconds. `--no-progress` disables both.

use std::{
    fmt,
    time::{Duration, Instant},
};

use indicatif::{HumanDuration, ProgressState, ProgressStyle};

use crate::cli::printer::{Printer, grouped, rate};

const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// Display of the progress of a long operation: a bar, lines of text, or nothing.
pub(crate) struct ProgressBar<'a> {
    printer: &'a Printer,
    kind: Kind,
    what: &'static str,
    unit: &'static str,
    total: Option<u64>,
    /// Values of `done` and `units` at the start, for the speed and the remaining time.
    before: (u64, u64),
    /// Text to print after the number of units.
    suffix: String,
    started: Instant,
    last: Instant,
}

enum Kind {
    Off,
    Bar(indicatif::ProgressBar),
    Plain,
}

impl<'a> ProgressBar<'a> {
    /// Starts showing progress. `total` is the final value of `done` in [`ProgressBar::set`]; `None` if it is not known.
    pub(crate) fn new(
        printer: &'a Printer,
        what: &'static str,
        unit: &'static str,
        total: Option<u64>,
    ) -> Self {
        let kind = match printer.progress() {
            None => Kind::Off,
            Some(false) => Kind::Plain,
            Some(true) => Kind::Bar(bar(what, total)),
        };
        let now = Instant::now();
        ProgressBar {
            printer,
            kind,
            what,
            unit,
            total,
            before: (0, 0),
            suffix: String::new(),
            started: now,
            last: now,
        }
    }

    /// Starts the display at work that an earlier run has done. That work does not count for the speed.
    pub(crate) fn after(mut self, done: u64, units: u64) -> Self {
        self.before = (done, units);
        if let Kind::Bar(bar) = &self.kind {
            bar.set_position(done);
            bar.reset_eta();
        }
        self
    }

    /// Sets a text to print after the number of units, beginning with the next update.
    pub(crate) fn set_suffix(&mut self, suffix: String) {
        self.suffix = format!(", {suffix}");
    }

    /// Updates the progress: `done` of the total, and the number of `units`, such as dialogues.
    pub(crate) fn set(&mut self, done: u64, units: u64) {
        let rate = rate(units.saturating_sub(self.before.1), self.seconds());
        match &self.kind {
            Kind::Off => {}
            Kind::Bar(bar) => {
                bar.set_position(done.min(self.total.unwrap_or(u64::MAX)));
                bar.set_message(format!("{} {}, {rate}/s{}", grouped(units), self.unit, self.suffix));
            }
            Kind::Plain if self.last.elapsed() >= PLAIN_EVERY => {
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
            Kind::Plain => {}
        }
    }

    /// Prints a line above the bar.
    pub(crate) fn say(&self, text: &str) {
        self.suspend(|| self.printer.say(text));
    }

    /// Hides the bar while `print` prints.
    pub(crate) fn suspend(&self, print: impl FnOnce()) {
        match &self.kind {
            Kind::Bar(bar) => bar.suspend(print),
            _ => print(),
        }
    }

    /// Seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}

impl Drop for ProgressBar<'_> {
    fn drop(&mut self) {
        if let Kind::Bar(bar) = &self.kind {
            bar.finish_and_clear();
        }
    }
}

/// Without a terminal, the remaining time is printed only after 1/200 of the total is done.
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
