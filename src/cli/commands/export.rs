//! `turnwise corpus export`: writes the dialogues of an index to a file.

use crate::cli::{args::WriteArgs, prelude::*};
use turnwise_corpus::output::Output;
use turnwise_corpus::writers::Writer;

pub(super) fn run(write: &WriteArgs, context: &Context<'_>) -> Result<()> {
    let snapshot = context.snapshot()?;
    let mut out = Output::create(&write.output)?;
    let mut writer = Writer::new(write.to);
    let mut progress =
        ProgressBar::new(context.printer, "exporting", "dialogues", Some(snapshot.totals().dialogues));
    let (mut seen, mut written) = (0, 0);
    for dialogue in snapshot.dialogues() {
        signals::check()?;
        let dialogue = dialogue?;
        seen += 1;
        if write.filter.as_ref().is_none_or(|f| f.matches(&dialogue)) {
            written += 1;
            out.with(|out| writer.write(out, &dialogue))?;
        }
        progress.set(seen, seen);
    }
    drop(progress);
    out.finish()?;
    context.printer.say(format!("{} written", counted(written, "dialogue")));
    Ok(())
}
