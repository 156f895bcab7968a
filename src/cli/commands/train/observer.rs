//! Shows the progress and the messages of a training run.

use std::sync::{Mutex, Once, PoisonError};

use crate::cli::{printer::Printer, progress::ProgressBar, progress::names_of_rank_step, signals};
use turnwise_memory as memory;
use turnwise_train::run::{Progress, RunObserver, Stage};

/// Maximum size in bytes of the freed memory that is kept for new tensors.
const TENSOR_CACHE_BYTES: usize = 2 << 30;

/// Prints messages and shows one progress bar at a time.
pub(super) struct RunPrinter<'a> {
    printer: &'a Printer,
    current: Mutex<Option<Current<'a>>>,
}

/// Progress bar of the current stage of a run.
struct Current<'a> {
    stage: Stage,
    done: u64,
    total: Option<u64>,
    bar: ProgressBar<'a>,
}

impl<'a> RunPrinter<'a> {
    pub(super) fn new(printer: &'a Printer) -> Self {
        RunPrinter { printer, current: Mutex::new(None) }
    }

    /// Prints a message. The bar of [`Stage::Reading`] stays, because reading continues; any other bar is removed.
    fn print(&self, print: impl FnOnce(&Printer)) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        match current.as_ref() {
            Some(Current { stage: Stage::Reading, bar, .. }) => bar.suspend(|| print(self.printer)),
            _ => {
                current.take();
                print(self.printer);
            }
        }
    }
}

impl RunObserver for RunPrinter<'_> {
    fn should_stop(&self) -> bool {
        signals::stopped()
    }

    fn progress(&self, &Progress { stage, done, total, items, detail }: &Progress<'_>) {
        static CACHE: Once = Once::new();
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // If a stage starts again for different data, `done` is much smaller. If threads report out of order, it is
        // only slightly smaller.
        let continues = |at: &Current<'_>| at.stage == stage && at.total == total && at.done <= 2 * done;
        if !current.as_ref().is_some_and(continues) {
            // Remove the old bar before drawing the new one.
            current.take();
            let (what, unit) = match stage {
                Stage::Reading => ("reading", "dialogues"),
                Stage::Encoding => ("encoding", "dialogues"),
                Stage::FittingWords => ("fitting words", "dialogues"),
                Stage::Mining => ("mining hard negatives", "texts"),
                Stage::Training => ("training", "examples"),
                Stage::EncodingContexts => ("reading contexts", "utterances"),
                Stage::Evaluating(step) => names_of_rank_step(step),
            };
            let mut bar = ProgressBar::new(self.printer, what, unit, total);
            if stage == Stage::Training {
                CACHE.call_once(|| memory::enable_block_cache(TENSOR_CACHE_BYTES));
                // The displayed speed counts only the steps since this bar appeared.
                bar = bar.after(done, items);
            }
            *current = Some(Current { stage, done, total, bar });
        }
        if let Some(current) = current.as_mut() {
            current.done = done;
            if !detail.is_empty() {
                current.bar.set_suffix(detail.to_owned());
            }
            current.bar.set(done, items);
        }
    }

    fn note(&self, message: &str) {
        self.print(|printer| printer.say(message));
    }

    fn detail(&self, message: &str) {
        self.print(|printer| printer.detail(message));
    }

    fn warn(&self, message: &str) {
        self.print(|printer| printer.warn(message));
    }
}
