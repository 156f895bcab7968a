//! The command line: arguments, settings, output, and one module per command.

mod args;
mod commands;
mod encoders;
mod env_vars;
mod indexes;
mod printer;
mod progress;
mod settings;
mod signals;

use std::{
    ffi::OsString,
    io::{self, Write as _},
    process::ExitCode,
};

use clap::{CommandFactory, FromArgMatches, error::ErrorKind};

use crate::cli::{
    args::{Cli, Command},
    printer::Printer,
    settings::Settings,
};
use turnwise_core::error::{Class, Error, Result};

/// Types and functions that most commands use.
mod prelude {
    pub(super) use std::{
        io::{self, Write},
        path::{Path, PathBuf},
    };

    pub(super) use serde::Serialize;

    pub(super) use crate::cli::{
        Context,
        printer::{BOLD, DIM, NAME, bytes, counted, counted_with, grouped, rate, totals},
        progress::ProgressBar,
        signals,
    };
    pub(super) use turnwise_core::error::{Error, IoContext, Result};
}

/// Runs the program. The first argument is the program's name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    install_panic_hook();
    let parsed = allow_negative_numbers(Cli::command()).try_get_matches_from(&args);
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(e) => return print_clap_error(&e),
    };
    // A panic is a bug. The panic hook has printed it; here it sets the exit code.
    let outcome = std::panic::catch_unwind(|| run(cli, &command_line(&args)));
    outcome.unwrap_or_else(|_| ExitCode::from(Class::Internal.exit_code()))
}

fn run(mut cli: Cli, command_line: &str) -> ExitCode {
    // For `eval`, -q is the option of trec_eval that prints each query, not --quiet.
    cli.global.quiet &= !matches!(cli.command, Command::Eval(_));
    let settings = match Settings::resolve(&cli.global) {
        Ok(settings) => settings,
        Err(e) => return fail(&Printer::plain(), &e),
    };
    let printer = Printer::new(&settings, &cli.global);
    if cli.global.engine.is_some() && !cli.command.handles_engine() {
        return fail(&printer, &indexes::unused_engine());
    }
    if let (Command::Demo, Some(index)) = (&cli.command, &cli.global.index)
        && let Err(e) = commands::check_demo_name(index)
    {
        return fail(&printer, &e);
    }
    let outcome = start_threads(&settings)
        .and_then(|()| signals::install())
        .and_then(|()| commands::run(cli.command, &Context { settings, printer: &printer, command_line }));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => fail(&printer, &e),
    }
}

/// Settings and output, passed to every command.
pub(crate) struct Context<'a> {
    pub(crate) settings: Settings,
    pub(crate) printer: &'a Printer,
    /// Command line as typed. The lock file of an index shows it to other processes.
    pub(crate) command_line: &'a str,
}

/// Copy of a [`Context`] for threads that cannot borrow one. Its printer omits status messages and progress.
#[cfg(feature = "serve")]
pub(crate) struct Owned {
    settings: Settings,
    printer: Printer,
    command_line: String,
}

#[cfg(feature = "serve")]
impl Owned {
    pub(crate) fn of(context: &Context<'_>) -> Self {
        Owned {
            settings: context.settings.clone(),
            printer: Printer::for_warnings(),
            command_line: context.command_line.to_owned(),
        }
    }

    pub(crate) fn context(&self) -> Context<'_> {
        Context { settings: self.settings.clone(), printer: &self.printer, command_line: &self.command_line }
    }
}

fn start_threads(settings: &Settings) -> Result<()> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(settings.threads)
        .build_global()
        .map_err(|e| Error::Internal(format!("cannot start {} threads: {e}", settings.threads)))
}

fn fail(printer: &Printer, e: &Error) -> ExitCode {
    // If the program that reads the output has closed the pipe, as `head` does, this is not an error.
    if let Error::Io { source, .. } = e
        && source.kind() == io::ErrorKind::BrokenPipe
    {
        return ExitCode::SUCCESS;
    }
    printer.error(e);
    ExitCode::from(e.class().exit_code())
}

/// Makes clap parse a negative number as a value. If the value is not allowed, the error is then about the value, not
/// about an unknown option.
fn allow_negative_numbers(command: clap::Command) -> clap::Command {
    command
        .mut_args(|arg| match arg.get_action().takes_values() {
            true => arg.allow_negative_numbers(true),
            false => arg,
        })
        .mut_subcommands(allow_negative_numbers)
}

/// Message of [`std::num::ParseIntError`] for text that is not a number. Clap includes it in its error messages.
const INVALID_DIGIT: &str = "invalid digit found in string";

fn print_clap_error(e: &clap::Error) -> ExitCode {
    // The message of Rust's parser does not help a user of the program.
    let text = e.render().ansi().to_string().replace(INVALID_DIGIT, "must be a non-negative integer");
    let printed = match e.use_stderr() {
        true => write!(anstream::stderr(), "{text}"),
        false => write!(anstream::stdout(), "{text}"),
    };
    match e.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ if printed.is_err() => ExitCode::SUCCESS,
        _ => ExitCode::from(Class::Input.exit_code()),
    }
}

fn command_line(args: &[OsString]) -> String {
    let mut words = args.iter().map(|a| a.to_string_lossy());
    let program = words.next().unwrap_or_default();
    let program = program.rsplit(['/', '\\']).next().unwrap_or("turnwise").to_owned();
    let mut line = words.fold(program, |line, word| line + " " + &word);
    if line.len() > 200 {
        let end = line.char_indices().map(|(at, _)| at).take_while(|at| *at <= 200).last().unwrap_or(0);
        line.truncate(end);
        line.push('…');
    }
    line
}

/// Installs a hook that prints a panic as an internal error with its source location. Panics that are caught and
/// converted to errors are not printed.
fn install_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        if turnwise_core::error::panic_is_caught() {
            return;
        }
        let location = info.location().map(|l| format!(" at {}:{}", l.file(), l.line())).unwrap_or_default();
        let message = info
            .payload()
            .downcast_ref::<&str>()
            .map(|s| (*s).to_owned())
            .or_else(|| info.payload().downcast_ref::<String>().cloned())
            .unwrap_or_default();
        Printer::plain().error(&Error::Internal(format!("{message}{location}")));
    }));
}

/// Returns the definition of the command line, for shell completions, the man page and tests.
pub fn definition() -> clap::Command {
    Cli::command()
}
