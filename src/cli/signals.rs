//! Handles Ctrl-C and SIGTERM. The first signal requests a clean stop; the second one ends the program at once.
//!
//! The first signal also ends the program at once if the running command does not check for it.

use std::sync::atomic::{AtomicBool, Ordering};

use turnwise_core::error::{Class, Error, Result};

static STOP: AtomicBool = AtomicBool::new(false);
/// Whether the running command regularly checks `STOP`, the flag of a requested stop.
static CHECKED: AtomicBool = AtomicBool::new(false);

/// Returns the flag that is set when the user requests a stop. After this call, the caller must check it regularly.
pub(crate) fn stop() -> &'static AtomicBool {
    CHECKED.store(true, Ordering::Relaxed);
    &STOP
}

/// Whether the user has requested a stop. After the first call, the caller must repeat the call regularly.
pub(crate) fn stopped() -> bool {
    stop().load(Ordering::Relaxed)
}

/// Returns an error if the user has requested a stop. After the first call, the caller must repeat the call regularly.
pub(crate) fn check() -> Result<()> {
    error_if(stopped())
}

fn error_if(stopped: bool) -> Result<()> {
    if stopped { Err(Error::Interrupted { hint: None }) } else { Ok(()) }
}

/// Lets the next signal end the program at once. Fails if the user has already requested a stop.
pub(crate) fn allow_abort() -> Result<()> {
    // In this order, no signal is lost: one that arrives after the first line ends the program.
    CHECKED.store(false, Ordering::Relaxed);
    error_if(STOP.load(Ordering::Relaxed))
}

/// Installs the signal handler.
pub(crate) fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        // A command that does not check for the signal needs no clean stop.
        if STOP.swap(true, Ordering::Relaxed) || !CHECKED.load(Ordering::Relaxed) {
            std::process::exit(i32::from(Class::Interrupted.exit_code()));
        }
    })
    .map_err(|e| Error::Internal(format!("cannot install the Ctrl-C handler: {e}")))
}
