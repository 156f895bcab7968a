//! Ctrl-C and SIGTERM: the first asks to stop in good order, the second stops at once.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Class, Error, Result};

static STOP: AtomicBool = AtomicBool::new(false);

/// Set once the user wants to stop.
pub(crate) fn stop() -> &'static AtomicBool {
    &STOP
}

/// Whether the user wants to stop.
pub(crate) fn stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

pub(crate) fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(Class::Interrupted.exit_code()));
        }
    })
    .map_err(|e| Error::Internal(format!("cannot listen for Ctrl-C: {e}")))
}
