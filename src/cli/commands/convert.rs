//! `turnwise corpus convert`, and the function that reads files without an index.

use std::{collections::HashSet, path::PathBuf, sync::atomic::Ordering};

use crate::cli::{
    Context,
    args::{ReadArgs, WriteArgs},
    commands,
    printer::{counted, grouped},
    progress::ProgressBar,
    signals,
};
use turnwise_core::error::{Error, Result};
use turnwise_corpus::output::Output;
use turnwise_corpus::{
    Dialogue,
    clean::{Cleaned, Cleaning},
    formats::Problem,
    writers::Writer,
};

pub(super) fn run(
    paths: &[PathBuf],
    read: &ReadArgs,
    cleaning: &Cleaning,
    write: &WriteArgs,
    context: &Context<'_>,
) -> Result<()> {
    let mut out = Output::create(&write.output)?;
    let mut writer = Writer::new(write.to);
    let mut cleaned = Cleaned::default();
    let (mut written, mut left_out) = (0u64, 0u64);
    let mut texts = HashSet::new();
    let problems = each_dialogue(paths, read, "converting", context, &mut |mut dialogue| {
        let kept = cleaning.apply(&mut dialogue, &mut cleaned)
            && (!cleaning.dedupe || texts.insert(dialogue.text_key()))
            && write.filter.as_ref().is_none_or(|f| f.matches(&dialogue));
        if !kept {
            left_out += 1;
            return Ok(());
        }
        written += 1;
        out.with(|out| writer.write(out, &dialogue))
    })?;
    out.finish()?;
    let mut parts = vec![format!("{} written", counted(written, "dialogue"))];
    if left_out > 0 {
        parts.push(format!("{} skipped", grouped(left_out)));
    }
    if problems.rejected > 0 {
        parts.push(format!("{} rejected", grouped(problems.rejected)));
    }
    context.printer.say(parts.join(", "));
    problems.into_result()
}

/// Counts of the problems found while reading files.
#[derive(Debug, Default)]
pub(super) struct Problems {
    pub(super) rejected: u64,
    damaged_files: u64,
}

impl Problems {
    /// Returns an error if a file could not be read to its end, even if the other files were fine.
    pub(super) fn into_result(self) -> Result<()> {
        match self.damaged_files {
            0 => Ok(()),
            n => Err(Error::data(format!("{} could not be read to the end", counted(n, "file")))),
        }
    }
}

/// Reads files and folders and passes each dialogue to `f`. Warns about rejected records and stops at the
/// limit.
pub(super) fn each_dialogue(
    paths: &[PathBuf],
    read: &ReadArgs,
    what: &'static str,
    context: &Context<'_>,
    f: &mut dyn FnMut(Dialogue) -> Result<()>,
) -> Result<Problems> {
    let (plan, options) = commands::plan(paths, read, context)?;
    if !plan.unrecognised.is_empty() {
        let files = counted(plan.unrecognised.len() as u64, "file");
        context.printer.warn(format!("{files} not recognized and skipped (-v lists them)"));
    }
    let total = plan.sources.iter().map(|s| s.bytes()).sum::<Option<u64>>().filter(|n| *n > 0);
    let mut progress = ProgressBar::new(context.printer, what, "dialogues", total);
    let mut problems = Problems::default();
    let mut seen = 0u64;
    for source in plan.sources {
        for item in source.read(&options)? {
            if signals::stopped() {
                return Err(Error::Interrupted { hint: None });
            }
            match item {
                Ok(dialogue) => f(dialogue)?,
                Err(problem) => {
                    let reject = match problem {
                        Problem::Record(reject) => reject,
                        Problem::File(reject) => {
                            problems.damaged_files += 1;
                            reject
                        }
                    };
                    problems.rejected += 1;
                    if problems.rejected <= 5 {
                        context.printer.warn(format!("rejected: {reject}"));
                    }
                    let allowed = context.settings.max_errors;
                    if problems.rejected > allowed {
                        let rejected = problems.rejected;
                        let e = Error::TooManyRejects { rejected, allowed, last: reject };
                        return Err(Error::Data {
                            message: e.to_string(),
                            hint: Some("allow more with TURNWISE_INGEST_MAX_ERRORS=N or the setting ingest.max_errors".into()),
                        });
                    }
                }
            }
            seen += 1;
            if seen.is_multiple_of(64) {
                progress.set(options.bytes_read.load(Ordering::Relaxed), seen);
            }
        }
    }
    Ok(problems)
}
