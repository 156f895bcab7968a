//! Ctrl-C and SIGTERM: the first asks to stop in good order, the second stops at once.
//! So does the first where nothing is under way that could be brought in order.

use std::sync::atomic::{AtomicBool, Ordering};

use turnwise_core::error::{Class, Error, Result};

static STOP: AtomicBool = AtomicBool::new(false);
/// Whether the command looks at `STOP` now and then.
static HEEDED: AtomicBool = AtomicBool::new(false);

/// Set once the user wants to stop.
pub(crate) fn stop() -> &'static AtomicBool {
    HEEDED.store(true, Ordering::Relaxed);
    &STOP
}

/// Whether the user wants to stop.
pub(crate) fn stopped() -> bool {
    stop().load(Ordering::Relaxed)
}

/// From here on there is nothing to bring in order: the next signal ends the program.
pub(crate) fn let_end() -> Result<()> {
    HEEDED.store(false, Ordering::Relaxed);
    match STOP.load(Ordering::Relaxed) {
        true => Err(Error::Interrupted { hint: None }),
        false => Ok(()),
    }
}

pub(crate) fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        // A command that does not ask, or has not begun to, has nothing to bring in order.
        if STOP.swap(true, Ordering::Relaxed) || !HEEDED.load(Ordering::Relaxed) {
            std::process::exit(i32::from(Class::Interrupted.exit_code()));
        }
    })
    .map_err(|e| Error::Internal(format!("cannot listen for Ctrl-C: {e}")))
}
