//! Handles Ctrl-C and SIGTERM. The first signal requests a clean stop; the second one ends the program at once.
//!
//! If the running command does not check for signals, the first signal ends the program at once.

use std::sync::atomic::{AtomicBool, Ordering};

use turnwise_core::error::{Class, Error, Result};

static STOP: AtomicBool = AtomicBool::new(false);
/// Whether the running command regularly checks the flag `STOP`, which is set when the user requests a stop.
static CHECKED: AtomicBool = AtomicBool::new(false);

/// Returns the flag that is set when the user requests a stop. After this call, the first signal only sets the flag, so
/// the caller must check the flag regularly.
pub(crate) fn stop() -> &'static AtomicBool {
    CHECKED.store(true, Ordering::Relaxed);
    &STOP
}

/// Returns whether the user has requested a stop. Once this function has been called, the first signal no longer ends
/// the program at once. The caller must then call the function regularly.
pub(crate) fn stopped() -> bool {
    stop().load(Ordering::Relaxed)
}

/// Returns an error if the user has requested a stop. Once this function has been called, the first signal no longer
/// ends the program at once. The caller must then call the function regularly.
pub(crate) fn check() -> Result<()> {
    error_if(stopped())
}

fn error_if(stopped: bool) -> Result<()> {
    if stopped { Err(Error::Interrupted { hint: None }) } else { Ok(()) }
}

/// Lets the next signal end the program at once. Fails if the user has already requested a stop.
pub(crate) fn allow_abort() -> Result<()> {
    // In this order, no signal is lost: a signal that arrives after the next statement ends the program.
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
