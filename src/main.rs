//! The `turnwise` program: parses, runs, maps the outcome to an exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    turnwise::cli::main(std::env::args_os())
}
