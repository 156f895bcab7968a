//! Output of the commands. Results go to standard output; messages, warnings and errors go to standard error.

use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};

use crate::cli::{
    args::{Format, GlobalArgs},
    settings::Settings,
};
use turnwise_core::error::{Error, IoContext, Result};

pub(crate) use turnwise_core::numbers::{bytes, grouped};

/// Formats a count with its noun, such as `1 query` and `2 queries`.
pub(crate) fn counted(n: u64, one: &str) -> String {
    match (n, one) {
        (1, _) => format!("1 {one}"),
        (_, "query") => format!("{} queries", grouped(n)),
        (_, "log entry") => format!("{} log entries", grouped(n)),
        (_, "search") => format!("{} searches", grouped(n)),
        _ => format!("{} {one}s", grouped(n)),
    }
}

/// Formats a count with a noun and a verb, such as `1 vector is` or `2 vectors are` for `["is", "are"]`.
pub(crate) fn counted_with(n: u64, one: &str, [singular, plural]: [&str; 2]) -> String {
    format!("{} {}", counted(n, one), if n == 1 { singular } else { plural })
}

/// Formats the size of a set of dialogues, such as `2 dialogues with 9 turns`.
pub(crate) fn totals(dialogues: u64, turns: u64) -> String {
    format!("{} with {}", counted(dialogues, "dialogue"), counted(turns, "turn"))
}

/// Formats a speed as a number of items per second.
pub(crate) fn rate(n: u64, seconds: f64) -> String {
    grouped((n as f64 / seconds.max(1e-3)) as u64)
}

/// Prints results and messages according to --format, --quiet and --verbose.
pub(crate) struct Printer {
    pub(crate) format: Format,
    quiet: bool,
    verbose: u8,
    progress: bool,
}

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const NAME: Style = AnsiColor::Cyan.on_default();
const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const HINT: Style = AnsiColor::Green.on_default().bold();

impl Printer {
    pub(crate) fn new(settings: &Settings, args: &GlobalArgs) -> Self {
        Printer {
            format: settings.format,
            quiet: args.quiet,
            verbose: args.verbose,
            progress: settings.progress && !args.quiet,
        }
    }

    /// Returns a printer to use before the settings are known.
    pub(crate) fn plain() -> Self {
        Printer { format: Format::Text, quiet: false, verbose: 0, progress: false }
    }

    /// Returns a printer for background work. It prints warnings, errors and hints, but no status messages.
    #[cfg(feature = "serve")]
    pub(crate) fn for_warnings() -> Self {
        Printer { quiet: true, ..Printer::plain() }
    }

    /// Returns how to show progress: `Some(true)` as a bar on a terminal, `Some(false)` as lines of text, `None` not at
    /// all.
    pub(crate) fn progress(&self) -> Option<bool> {
        self.progress.then(|| io::stderr().is_terminal())
    }

    /// Returns whether --verbose was given.
    pub(crate) fn is_verbose(&self) -> bool {
        self.verbose > 0
    }

    /// Prints a status line, unless --quiet is given.
    pub(crate) fn say(&self, text: impl AsRef<str>) {
        if !self.quiet {
            self.line(text.as_ref());
        }
    }

    /// Prints a line of details if --verbose is given and --quiet is not.
    pub(crate) fn detail(&self, text: impl AsRef<str>) {
        if self.is_verbose() && !self.quiet {
            self.line(&format!("{DIM}{}{DIM:#}", text.as_ref()));
        }
    }

    /// Prints a warning, even with --quiet.
    pub(crate) fn warn(&self, text: impl AsRef<str>) {
        self.line(&format!("{WARNING}warning{WARNING:#}: {}", text.as_ref()));
    }

    /// Prints a suggestion for the next step, unless --quiet is given.
    pub(crate) fn suggest(&self, text: impl AsRef<str>) {
        if !self.quiet {
            self.hint(text);
        }
    }

    /// Prints how to fix the problem that was just printed, even with --quiet.
    pub(crate) fn hint(&self, text: impl AsRef<str>) {
        self.line(&format!("{HINT}hint{HINT:#}: {}", text.as_ref()));
    }

    /// Prints an error and its hint.
    pub(crate) fn error(&self, e: &Error) {
        self.line(&format!("{ERROR}error{ERROR:#}: {e}"));
        if let Some(hint) = e.hint() {
            self.hint(hint);
        }
    }

    fn line(&self, text: &str) {
        // If standard error is closed, there is nowhere to report it.
        let _ = writeln!(anstream::stderr().lock(), "{text}");
    }

    /// Prints a result in the output format given by --format. The function `text` writes the text format.
    pub(crate) fn result<T: serde::Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        to_stdout(|out| match self.format {
            Format::Text => text(out),
            Format::Json => {
                serde_json::to_writer_pretty(&mut *out, value)?;
                writeln!(out)
            }
            Format::Jsonl => write_json_line(value, out),
        })
    }

    /// Prints a list of results in the output format: a JSON array, JSON lines (one result per line), or text. The
    /// function `text` writes the text format.
    pub(crate) fn results<T: serde::Serialize>(
        &self,
        values: &[T],
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        match self.format {
            Format::Jsonl => to_stdout(|out| values.iter().try_for_each(|value| write_json_line(value, out))),
            _ => self.result(&values, text),
        }
    }
}

fn to_stdout(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut out = io::BufWriter::new(anstream::stdout().lock());
    write(&mut out).and_then(|()| out.flush()).at("write to", "standard output")
}

/// Writes a value as one line of JSON.
pub(crate) fn write_json_line<T: serde::Serialize>(value: &T, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    writeln!(out)
}
