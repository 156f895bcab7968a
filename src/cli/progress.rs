//! Progress of long commands: a bar on a terminal, otherwise a line every few seconds, or nothing if it is turned
//! off.

use std::{
    fmt,
    time::{Duration, Instant},
};

use indicatif::{HumanDuration, ProgressState, ProgressStyle};

use crate::cli::printer::{Printer, grouped};

const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// Progress of a long operation.
pub(crate) struct ProgressBar<'a> {
    printer: &'a Printer,
    kind: Kind,
    what: &'static str,
    unit: &'static str,
    total: Option<u64>,
    /// Part of the total and number of units that an earlier run has done.
    before: (u64, u64),
    /// Text to print after the units.
    more: String,
    started: Instant,
    last: Instant,
}

enum Kind {
    Off,
    Bar(indicatif::ProgressBar),
    Plain,
}

impl<'a> ProgressBar<'a> {
    /// Starts showing progress. `total` is the final value of `done` in [`ProgressBar::set`], if known.
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
            more: String::new(),
            started: now,
            last: now,
        }
    }

    /// Starts with work that was done earlier: `done` of the total, and `units`.
    pub(crate) fn after(mut self, done: u64, units: u64) -> Self {
        self.before = (done, units);
        if let Kind::Bar(bar) = &self.kind {
            bar.set_position(done);
            bar.reset_eta();
        }
        self
    }

    /// Sets a text to print after the units from now on.
    pub(crate) fn set_suffix(&mut self, more: String) {
        self.more = format!(", {more}");
    }

    /// Updates how much of the total is done, and the number of units.
    pub(crate) fn set(&mut self, done: u64, units: u64) {
        let rate =
            units.saturating_sub(self.before.1) as f64 / self.started.elapsed().as_secs_f64().max(1e-3);
        match &self.kind {
            Kind::Off => {}
            Kind::Bar(bar) => {
                bar.set_position(done.min(self.total.unwrap_or(u64::MAX)));
                let rate = grouped(rate as u64);
                bar.set_message(format!("{} {}, {rate}/s{}", grouped(units), self.unit, self.more));
            }
            Kind::Plain if self.last.elapsed() >= PLAIN_EVERY => {
                self.last = Instant::now();
                // An estimate from too little work is useless: a slow first block can turn seconds into hours.
                let has_estimate =
                    |total: &u64| *total > 0 && done - self.before.0.min(done) > total / ESTIMATE_AFTER;
                let left = self.total.filter(has_estimate).map(|total| {
                    let fraction = (done as f64 / total as f64).min(1.0);
                    let left = total.saturating_sub(done) as f64 / (done - self.before.0) as f64;
                    let seconds = self.started.elapsed().as_secs_f64() * left;
                    format!(", {:.0}%, about {seconds:.0} s left", fraction * 100.0)
                });
                self.printer.say(format!(
                    "{}: {} {}, {}/s{}{}",
                    self.what,
                    grouped(units),
                    self.unit,
                    grouped(rate as u64),
                    self.more,
                    left.unwrap_or_default()
                ));
            }
            Kind::Plain => {}
        }
    }

    /// Prints a line above the bar.
    pub(crate) fn say(&self, text: &str) {
        self.suspend(|| self.printer.say(text));
    }

    /// Hides the bar while `say` prints.
    pub(crate) fn suspend(&self, say: impl FnOnce()) {
        match &self.kind {
            Kind::Bar(bar) => bar.suspend(say),
            _ => say(),
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

/// Without a terminal, the remaining time is printed when more than the first 1/N of the total is done.
const ESTIMATE_AFTER: u64 = 200;

/// Writes the remaining time, once there is progress to estimate it from.
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
